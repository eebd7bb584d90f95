//! Another node of a cluster takes over.

use std::time::Duration;

use leasehold_client::Client;
use leasehold_testkit::servers::Cluster;
use leasehold_testkit::wait::not_yet;

use crate::common::play::{connect, fresh_url, granted, lock, release, waiter};
use crate::load::{LEASE, Load, Outcome};
use crate::pool::cluster;
use crate::runtime;

/// Enough names that every master has some.
const NAMES: usize = 9;

/// Where the first of them lives.
fn slot(cluster: &Cluster, url: &str, name: &str) -> u16 {
    let prefix = url.split("prefix=").nth(1).and_then(|rest| rest.split('&').next()).expect("a prefix");
    cluster.slot_of(&format!("{prefix}n:{{{name}}}"))
}

fn killed_under_load(options: &str) -> Outcome {
    let (cluster, runtime) = (cluster(), runtime());
    let url = fresh_url(&cluster.url(), options);
    let load = Load::start(&runtime, &url, NAMES);
    load.goes_on(5);
    let slot = slot(&cluster, &url, "counter 0");
    let old = cluster.kill_master_of(slot);
    cluster.wait_for_new_owner(slot, old);
    if options == "replicas=0" {
        load.goes_on(5);
    }
    // The only replica is the master now: where one is demanded, nothing can be granted before there is another.
    cluster.restart(old);
    load.goes_on(5);
    load.finish(&runtime)
}

#[test]
fn counters_stay_exact_when_a_master_is_killed() {
    let outcome = killed_under_load("");
    assert_eq!((outcome.together, outcome.refused), (0, 0), "{outcome:?}");
}

#[test]
fn without_replicas_tokens_catch_what_is_lost_when_a_master_is_killed() {
    let outcome = killed_under_load("replicas=0");
    assert!(outcome.refused == 0 || outcome.together > 0, "somebody was refused who was alone: {outcome:?}");
}

#[test]
fn counters_stay_exact_when_a_failover_is_asked_for() {
    let (cluster, runtime) = (cluster(), runtime());
    let url = fresh_url(&cluster.url(), "");
    let load = Load::start(&runtime, &url, NAMES);
    load.goes_on(5);
    for _ in 0..2 {
        let master = cluster.owner_of_slot(slot(&cluster, &url, "counter 0")).port();
        let replica = cluster.replicas_of(master)[0].port();
        cluster.failover(replica);
        load.goes_on(5);
    }
    let outcome = load.finish(&runtime);
    assert_eq!((outcome.together, outcome.refused), (0, 0), "{outcome:?}");
}

#[test]
fn waiters_wait_on_when_their_master_is_killed() {
    let (cluster, runtime) = (cluster(), runtime());
    let url = fresh_url(&cluster.url(), "");
    let builder = || Client::builder().default_lease(LEASE).retry_for(Duration::from_secs(20));
    runtime.block_on(async {
        let (a, b) = (connect(&url, builder()).await, connect(&url, builder()).await);
        let guard = lock(&a.mutex("x")).await;
        let mut waiting = waiter(&b.mutex("x"));
        while a.inspect("x").await.expect("a look").waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        tokio::task::block_in_place(|| {
            let slot = slot(&cluster, &url, "x");
            let old = cluster.kill_master_of(slot);
            cluster.wait_for_new_owner(slot, old);
            // The only replica is the master now: nothing can be granted before there is another.
            cluster.restart(old);
        });
        if guard.is_held() {
            not_yet("a waiter got in or gave up", &mut waiting).await;
            release(guard).await;
        }
        release(granted(waiting).await).await;
    });
}
