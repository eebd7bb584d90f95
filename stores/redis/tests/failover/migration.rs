//! A slot moves to another node while locks on it are held and waited for.

use std::time::Duration;

use leasehold_client::{Client, ClientBuilder, Guard};
use leasehold_core::{Kind, Result};
use leasehold_testkit::servers::Cluster;
use leasehold_testkit::wait::eventually;
use tokio::task::{JoinHandle, block_in_place};

use crate::common::play::{connect, fresh_url, granted, lock, release, waiter};
use crate::load::Load;
use crate::pool::cluster;
use crate::runtime;

/// Longer than a slot is on its way here: a cluster may refuse everything about it meanwhile.
const LEASE: Duration = Duration::from_secs(5);

/// How long a command may take: what is refused for now is tried again within this time.
const COMMAND: &str = "timeout=400ms";

fn key(url: &str, name: &str) -> String {
    let prefix = url.split("prefix=").nth(1).and_then(|rest| rest.split('&').next()).expect("a prefix");
    format!("{prefix}n:{{{name}}}")
}

/// Another master than the one that owns this slot.
fn elsewhere(cluster: &Cluster, slot: u16) -> u16 {
    let owner = cluster.owner_of_slot(slot).port();
    let masters = cluster.nodes().iter().filter(|node| node.info("role") == "master");
    masters.map(|node| node.port()).find(|port| *port != owner).expect("another master")
}

fn with(lease: Duration) -> ClientBuilder {
    Client::builder().default_lease(lease).retry_for(Duration::from_secs(20))
}

/// A holder and one that waits for a lock, and others who look at it.
struct Scene {
    name: &'static str,
    key: String,
    guard: Guard,
    waiting: JoinHandle<Result<Guard>>,
    third: Client,
}

impl Scene {
    /// Every test has a name, and so a slot, of its own: one that fails can leave its slot on the way.
    async fn set(url: &str, name: &'static str, lease: Duration) -> Scene {
        let (a, b) = (connect(url, with(lease)).await, connect(url, with(lease)).await);
        let third = connect(url, with(lease)).await;
        let guard = lock(&a.mutex(name)).await;
        let waiting = waiter(&b.mutex(name));
        let scene = Scene { name, key: key(url, name), guard, waiting, third };
        scene.waiters(1).await;
        scene
    }

    async fn waiters(&self, count: usize) {
        eventually("they wait", || async {
            match self.third.inspect(self.name).await.expect("a look") {
                seen if (seen.holders.len(), seen.waiters.len()) == (1, count) => Ok(()),
                seen => Err(seen),
            }
        })
        .await;
    }

    /// Others ask for the lock, and get nothing: neither now, nor did the one who waits.
    async fn is_safe(&mut self, when: &str) {
        let short = Duration::from_millis(150);
        // A cluster may say "try again" for as long as the slot is on its way.
        let tried = self.third.mutex(self.name).lock_within(short).await;
        match tried {
            Ok(None) => {}
            Ok(Some(other)) => panic!("{other:?} was given out beside {:?} {when}", self.guard),
            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "it can be had later, {when}: {error}"),
        }
        assert!(!self.waiting.is_finished() || !self.guard.is_held(), "two hold at once {when}");
        assert!(self.guard.is_held(), "the lock was lost {when}");
        assert!(!self.waiting.is_finished(), "a waiter got in or gave up {when}");
    }

    /// The lock is still held and waited for; then it goes on to all who wait.
    async fn goes_on(mut self) {
        self.is_safe("in the end").await;
        let last = waiter(&self.third.mutex(self.name));
        self.waiters(2).await;
        let token = self.guard.token();
        release(self.guard).await;
        let next = granted(self.waiting).await;
        assert!(next.token() > token);
        release(next).await;
        release(granted(last).await).await;
    }
}

#[test]
fn a_lock_moves_with_its_slot() {
    let (cluster, runtime) = (cluster(), runtime());
    let url = fresh_url(&cluster.url(), COMMAND);
    runtime.block_on(async {
        let scene = Scene::set(&url, "whole", LEASE).await;
        block_in_place(|| {
            let slot = cluster.slot_of(&scene.key);
            cluster.migrate_slot(slot, elsewhere(&cluster, slot));
        });
        scene.goes_on().await;
    });
}

/// Moves these keys one after the other, and looks after each of them.
fn key_by_key(name: &'static str, parts: [&'static str; 4]) {
    let (cluster, runtime) = (cluster(), runtime());
    let url = fresh_url(&cluster.url(), COMMAND);
    runtime.block_on(async {
        let mut scene = Scene::set(&url, name, LEASE).await;
        let slot = cluster.slot_of(&scene.key);
        let migration = block_in_place(|| cluster.begin_migration(slot, elsewhere(&cluster, slot)));
        scene.is_safe("when the slot is about to move").await;
        for part in parts {
            block_in_place(|| migration.move_key(&format!("{}{part}", scene.key)));
            scene.is_safe(&format!("after {part:?} was moved")).await;
        }
        block_in_place(|| migration.finish());
        scene.goes_on().await;
    });
}

#[test]
fn a_lock_is_safe_while_its_keys_move_one_by_one() {
    key_by_key("forth", ["", ":e", ":o", ":x"]);
}

#[test]
fn a_lock_is_safe_while_its_keys_move_one_by_one_the_other_way_round() {
    key_by_key("back", [":x", ":o", ":e", ""]);
}

#[test]
fn a_migration_that_is_given_up_harms_no_lock() {
    let (cluster, runtime) = (cluster(), runtime());
    let url = fresh_url(&cluster.url(), COMMAND);
    runtime.block_on(async {
        let mut scene = Scene::set(&url, "given up", LEASE).await;
        let slot = cluster.slot_of(&scene.key);
        let migration = block_in_place(|| cluster.begin_migration(slot, elsewhere(&cluster, slot)));
        block_in_place(|| migration.move_keys());
        scene.is_safe("after all keys were moved").await;
        block_in_place(|| migration.abandon());
        scene.goes_on().await;
    });
}

#[test]
fn one_who_comes_when_the_slot_has_moved_is_told_by_a_message() {
    let (cluster, runtime) = (cluster(), runtime());
    let url = fresh_url(&cluster.url(), COMMAND);
    runtime.block_on(async {
        // So long that nobody gets in by asking now and then.
        let long = || with(Duration::from_secs(600));
        let (a, b) = (connect(&url, long()).await, connect(&url, long()).await);
        let guard = lock(&a.mutex("told")).await;
        block_in_place(|| {
            let slot = cluster.slot_of(&key(&url, "told"));
            cluster.migrate_slot(slot, elsewhere(&cluster, slot));
        });
        // It asks where the lock was.
        let waiting = waiter(&b.mutex("told"));
        eventually("it waits", || async {
            match a.inspect("told").await.expect("a look") {
                seen if seen.waiters.len() == 1 => Ok(()),
                seen => Err(seen),
            }
        })
        .await;
        release(guard).await;
        release(granted(waiting).await).await;
    });
}

#[test]
fn counters_stay_exact_while_slots_move() {
    let (cluster, runtime) = (cluster(), runtime());
    let url = fresh_url(&cluster.url(), "");
    let load = Load::start(&runtime, &url, 3);
    load.goes_on(10);
    for n in 0..3 {
        let slot = cluster.slot_of(&key(&url, &format!("counter {n}")));
        for _ in 0..2 {
            cluster.migrate_slot(slot, elsewhere(&cluster, slot));
        }
        load.goes_on(5);
    }
    let outcome = load.finish(&runtime);
    assert_eq!((outcome.together, outcome.refused), (0, 0), "{outcome:?}");
}
