//! Sentinels make another server the master.

use std::time::Duration;

use leasehold_client::{Client, Lost};
use leasehold_core::{Fence, Kind};
use leasehold_testkit::servers::Sentinels;
use leasehold_testkit::wait::{eventually, not_yet, soon};

use crate::common::play::{connect, fresh_url, granted, lock, release, waiter};
use crate::load::{LEASE, Load, Outcome};
use crate::pool::sentinels;
use crate::runtime;

/// How the master goes.
#[derive(Debug, Clone, Copy)]
enum End {
    Killed,
    Paused,
    ByHand,
}

impl End {
    /// Makes another server the master.
    fn happens_to(self, set: &Sentinels) -> u16 {
        match self {
            End::Killed => {
                let old = set.kill_master();
                set.wait_for_new_master(old);
                old
            }
            End::Paused => {
                let old = set.pause_master();
                set.wait_for_new_master(old);
                old
            }
            End::ByHand => {
                let old = set.master();
                set.failover();
                old
            }
        }
    }

    /// The old master comes back, and believes for a moment that it still is one.
    fn undo(self, set: &Sentinels, old: u16) {
        match self {
            End::Killed => set.node(old).restart(),
            End::Paused => set.node(old).resume(),
            End::ByHand => {}
        }
    }
}

fn under_load(end: End, options: &str) -> Outcome {
    let (set, runtime) = (sentinels(), runtime());
    let load = Load::start(&runtime, &fresh_url(&set.url(), options), 2);
    load.goes_on(20);
    let old = end.happens_to(&set);
    load.goes_on(20);
    end.undo(&set, old);
    load.goes_on(20);
    load.finish(&runtime)
}

/// No grant that counted was lost.
fn nobody_held_together(outcome: &Outcome) {
    assert_eq!((outcome.together, outcome.refused), (0, 0), "{outcome:?}");
    assert!(outcome.visits >= 120, "{outcome:?}");
}

/// Grants can be lost, and tokens catch every write of those who did not know.
fn tokens_caught_it(outcome: &Outcome) {
    assert!(outcome.refused == 0 || outcome.together > 0, "somebody was refused who was alone: {outcome:?}");
    assert!(outcome.visits >= 120, "{outcome:?}");
}

#[test]
fn counters_stay_exact_when_the_master_is_killed() {
    nobody_held_together(&under_load(End::Killed, ""));
}

#[test]
fn counters_stay_exact_when_the_master_stands_still_and_comes_back() {
    nobody_held_together(&under_load(End::Paused, ""));
}

#[test]
fn counters_stay_exact_when_a_failover_is_asked_for() {
    nobody_held_together(&under_load(End::ByHand, ""));
}

#[test]
fn without_replicas_tokens_catch_what_is_lost_when_the_master_is_killed() {
    tokens_caught_it(&under_load(End::Killed, "replicas=0"));
}

#[test]
fn without_replicas_tokens_catch_what_is_lost_when_the_master_stands_still_and_comes_back() {
    tokens_caught_it(&under_load(End::Paused, "replicas=0"));
}

#[test]
fn waiters_wait_on_and_the_holder_knows_whether_it_holds() {
    let (set, runtime) = (sentinels(), runtime());
    let url = fresh_url(&set.url(), "");
    let builder = || Client::builder().default_lease(LEASE).retry_for(Duration::from_secs(20));
    runtime.block_on(async {
        let (a, b, c) =
            (connect(&url, builder()).await, connect(&url, builder()).await, connect(&url, builder()).await);
        let guard = lock(&a.mutex("x")).await;
        let first = waiter(&b.mutex("x"));
        while a.inspect("x").await.expect("a look").waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        let mut second = waiter(&c.mutex("x"));
        while a.inspect("x").await.expect("a look").waiters.len() < 2 {
            tokio::task::yield_now().await;
        }
        let old = tokio::task::block_in_place(|| {
            let old = set.kill_master();
            set.wait_for_new_master(old);
            old
        });
        // The grant and the queue were on the replica that took over.
        let seen = soon("a look", a.inspect("x")).await.expect("a look");
        assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 2), "{seen:#?}");
        assert!(guard.is_held(), "it had time enough to be renewed");
        not_yet("a waiter got in or gave up", &mut second).await;
        let token = guard.token();
        release(guard).await;
        let first = granted(first).await;
        assert!(first.token() > token);
        not_yet("two hold at once", &mut second).await;
        release(first).await;
        release(granted(second).await).await;
        tokio::task::block_in_place(|| set.restart(old));
    });
}

/// The replicas look elsewhere for a moment, so that they don't have what is granted then; the master dies.
fn lose_what_comes(set: &Sentinels, between: impl FnOnce()) -> u16 {
    let master = set.master();
    let nowhere = set.sentinel_ports()[0].to_string();
    for replica in set.nodes().iter().filter(|node| node.port() != master) {
        replica.cli(&["REPLICAOF", "127.0.0.1", &nowhere]);
    }
    between();
    set.node(master).kill();
    set.wait_for_new_master(master);
    master
}

#[test]
fn a_grant_that_no_replica_had_is_lost_and_its_token_is_refused() {
    let (set, runtime) = (sentinels(), runtime());
    let url = fresh_url(&set.url(), "replicas=0");
    let builder = || Client::builder().default_lease(LEASE).retry_for(Duration::from_secs(20));
    let (a, b) = (runtime.block_on(connect(&url, builder())), runtime.block_on(connect(&url, builder())));
    runtime.block_on(async { release(lock(&a.mutex("x")).await).await });
    let mut guard = None;
    let old = lose_what_comes(&set, || guard = Some(runtime.block_on(lock(&a.mutex("x")))));
    let guard = guard.expect("a guard");
    let fence = Fence::new();
    fence.check(guard.token()).expect("it is the first");
    runtime.block_on(async {
        let next = lock(&b.mutex("x")).await;
        assert!(next.token() > guard.token(), "what was lost is older than what came after it");
        fence.check(next.token()).expect("it is later");
        assert!(fence.check(guard.token()).is_err(), "the double hold is caught");
        // And the one who lost it is told at its next renewal, or by the clock if the new master is found late.
        let why = soon("the loss", guard.lost()).await;
        assert!(matches!(why, Lost::Wiped | Lost::Revoked | Lost::Expired), "{why}");
        assert!(next.is_held());
        release(next).await;
    });
    set.restart(old);
}

#[test]
fn with_replicas_demanded_there_is_no_grant_that_can_be_lost() {
    let (set, runtime) = (sentinels(), runtime());
    let url = fresh_url(&set.url(), "replicas-timeout=200ms");
    let builder = || Client::builder().default_lease(LEASE).retry_for(Duration::from_millis(300));
    let a = runtime.block_on(connect(&url, builder()));
    // On a machine that stalls a replica may need longer than this client waits.
    let mutex = a.mutex("x");
    let first = runtime.block_on(eventually("a lock that replicas have", || mutex.lock()));
    runtime.block_on(release(first));
    let mut outcome = None;
    let old = lose_what_comes(&set, || outcome = Some(runtime.block_on(a.mutex("x").lock())));
    let error = outcome.expect("an outcome").expect_err("no replica has it");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    runtime.block_on(async { release(lock(&connect(&url, Client::builder()).await.mutex("x")).await).await });
    set.restart(old);
}
