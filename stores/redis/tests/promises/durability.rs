//! With `replicas=1` a grant counts when a replica has it: without replicas there are none, and holders lose theirs in time.

use std::time::Duration;

use leasehold_client::{Client, Lost};
use leasehold_core::Kind;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::servers::resp::Reply;
use leasehold_testkit::servers::until;
use leasehold_testkit::wait::{eventually, soon};

use crate::common::play::{connect, fresh_url, granted, lock, on, release, waiter};

/// How soon a claim that can't be made durable gives up here.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A master and its replica.
struct Pair {
    master: Redis,
    replica: Redis,
}

impl Pair {
    fn start() -> Self {
        let pair =
            Pair { master: Redis::start(RedisOptions::new()), replica: Redis::start(RedisOptions::new()) };
        pair.replica.cli(&["REPLICAOF", "127.0.0.1", &pair.master.port().to_string()]);
        pair.wait_until_linked();
        pair
    }

    fn wait_until_linked(&self) {
        until("the replica is in sync", || match self.replica.info("master_link_status") {
            status if status == "up" => Ok(()),
            status => Err(status),
        });
        // A master sends nothing to a replica that is new until it has heard from it.
        until("the replica gets what the master writes", || {
            let mut master = self.master.connect().map_err(|e| e.to_string())?;
            let write = master.ask(&["SET", "a", "b", "PX", "1"]).map_err(|e| e.to_string())?;
            match master.ask(&["WAIT", "1", "1000"]) {
                Ok(Reply::Int(1)) => Ok(()),
                other => Err(format!("{write:?} {other:?}")),
            }
        });
    }

    /// Brings the replica back after it was killed.
    fn bring_back(&self) {
        self.replica.restart();
        self.replica.cli(&["REPLICAOF", "127.0.0.1", &self.master.port().to_string()]);
        self.wait_until_linked();
    }

    /// Waits until somebody has waited for the replica, and given up.
    async fn was_waited_for_in_vain(&self) {
        let before = self.master.calls("wait");
        eventually("the replica was waited for", || async {
            // The second begins when the first is over.
            match self.master.calls("wait") - before {
                waits if waits >= 2 => Ok(()),
                waits => Err(waits),
            }
        })
        .await;
    }

    fn url(&self) -> String {
        fresh_url(&self.master.url(), "replicas=1&replicas-timeout=400ms")
    }
}

#[test]
fn without_its_replica_a_lock_fails_and_leaves_nothing_behind() {
    let pair = Pair::start();
    let url = pair.url();
    on(pair, &url.clone(), |stage, pair| async move {
        let client = connect(&url, Client::builder().retry_for(PATIENCE)).await;
        release(lock(&client.mutex("x")).await).await;
        pair.replica.kill();
        let mutex = client.mutex("x");
        for _ in 0..2 {
            let error = soon("the error", mutex.lock()).await.expect_err("no replica has it");
            assert_eq!(error.kind(), Kind::Unavailable, "{error}");
            assert!(error.to_string().contains("not enough replicas: 1 wanted, 0 answered"), "{error}");
            assert!(error.to_string().contains("replicas=0"), "it says what can be done: {error}");
            stage.free("x").await;
        }
        assert!(soon("a try", mutex.try_lock()).await.is_err(), "a try finds no lock either");
        stage.free("x").await;
        let permits = soon("the error", client.semaphore("s", 2).acquire(1)).await;
        assert!(permits.is_err());
        stage.free("s").await;
        pair.bring_back();
        release(lock(&mutex).await).await;
    });
}

/// A release that was sent in between, on a connection that broke, could come to pass after the second answer: nobody would know.
#[test]
fn a_grant_whose_replicas_are_not_known_is_asked_for_again_and_not_given_back() {
    let pair = Pair::start();
    let proxy = Proxy::start(pair.master.address());
    let url = fresh_url(&format!("redis://{}", proxy.address()), "replicas=1&replicas-timeout=5s");
    on((pair, proxy), &url.clone(), |_stage, both| async move {
        let (pair, proxy) = &*both;
        let client = connect(&url, Client::builder().retry_for(Duration::from_secs(20))).await;
        // The scripts are known, and so is the connection that waits for replicas.
        release(lock(&client.mutex("x")).await).await;
        for lost in 0..2 {
            let before = pair.master.calls("evalsha");
            if lost == 0 {
                proxy.cut_before(b"WAIT")
            } else {
                proxy.lose_answer_to(b"WAIT")
            }
            let guard = lock(&client.mutex("x")).await;
            assert_eq!(proxy.faults_left(), 0);
            assert_eq!(pair.master.calls("evalsha") - before, 2, "two asks, and no release");
            release(guard).await;
        }
    });
}

#[test]
fn a_waiter_gets_in_only_when_a_replica_has_its_grant() {
    let pair = Pair::start();
    let url = pair.url();
    on(pair, &url, |stage, pair| async move {
        let lease = Duration::from_secs(6);
        let short = || stage.open(Client::builder().default_lease(lease));
        let (a, b) = (short().await.mutex("x"), short().await.mutex("x"));
        let held = lock(&a).await;
        let waiting = waiter(&b);
        stage.waiters("x", 1).await;
        pair.replica.pause();
        release(held).await;
        pair.was_waited_for_in_vain().await;
        assert!(!waiting.is_finished(), "it got in, and a failover would have lost it");
        pair.replica.resume();
        release(granted(waiting).await).await;
    });
}

#[test]
fn a_holder_whose_renewals_reach_no_replica_loses_its_lock_in_time() {
    let pair = Pair::start();
    let url = pair.url();
    on(pair, &url.clone(), |stage, pair| async move {
        let lease = Duration::from_millis(900);
        let guard = lock(&stage.open(Client::builder().default_lease(lease)).await.mutex("x")).await;
        // It stands still: it has the grant, and none of the renewals.
        pair.replica.pause();
        let why = soon("the loss", guard.lost()).await;
        // On a busy machine somebody else may have seen its end first; then it hears that it was taken away.
        assert!(matches!(why, Lost::Expired | Lost::Revoked), "{why:?}");
        assert!(!guard.is_held());
        // What would be master after a failover: the lease ends there too, and not before the holder knew.
        pair.master.kill();
        pair.replica.resume();
        pair.replica.cli(&["REPLICAOF", "NO", "ONE"]);
        let there = url.replace(&pair.master.address().to_string(), &pair.replica.address().to_string());
        let there = connect(&there.replace("replicas=1", "replicas=0"), Client::builder()).await;
        let next = lock(&there.mutex("x")).await;
        assert!(next.token() > guard.token());
        release(next).await;
        drop(guard);
        pair.master.restart_empty();
    });
}

#[test]
fn a_holder_keeps_its_lock_if_the_replica_is_away_for_a_short_time() {
    let pair = Pair::start();
    let url = pair.url();
    on(pair, &url, |stage, pair| async move {
        let lease = Duration::from_secs(3);
        let guard = lock(&stage.open(Client::builder().default_lease(lease)).await.mutex("x")).await;
        pair.replica.pause();
        pair.was_waited_for_in_vain().await;
        pair.replica.resume();
        let mut lost = Box::pin(guard.lost());
        assert!(tokio::time::timeout(lease, &mut lost).await.is_err(), "it was lost");
        drop(lost);
        release(guard).await;
    });
}

#[test]
fn with_no_replicas_demanded_none_are_waited_for() {
    let pair = Pair::start();
    let url = fresh_url(&pair.master.url(), "");
    on(pair, &url, |stage, pair| async move {
        pair.replica.kill();
        let before = pair.master.calls("wait");
        release(lock(&stage.client("a").await.mutex("x")).await).await;
        assert_eq!(pair.master.calls("wait"), before);
    });
}

#[test]
fn a_durable_lock_is_one_script_and_one_wait() {
    let pair = Pair::start();
    let url = pair.url();
    on(pair, &url, |stage, pair| async move {
        let mutex = stage.client("a").await.mutex("x");
        release(lock(&mutex).await).await;
        let (scripts, waits) = (pair.master.calls("evalsha"), pair.master.calls("wait"));
        let guard = lock(&mutex).await;
        assert_eq!((pair.master.calls("evalsha") - scripts, pair.master.calls("wait") - waits), (1, 1));
        release(guard).await;
        assert_eq!(pair.master.calls("wait") - waits, 1, "a release need not be durable");
    });
}
