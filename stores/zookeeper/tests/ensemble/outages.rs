//! Servers die, stand still and come back while locks are used.

use std::time::{Duration, Instant};

use leasehold_client::Client;
use leasehold_testkit::outages::a_client_is_let_in_after;
use leasehold_testkit::servers::zookeeper::Ensemble;
use leasehold_testkit::servers::{ZooKeeper, until};
use leasehold_testkit::wait::{eventually, soon};
use tokio::runtime::Runtime;

use crate::common;
use crate::load::{Load, Outcome};
use crate::runtime;

/// A session that lives through an election, and one that may not.
const PATIENT: &str = "8s";
const SHORT: &str = "1200ms";

/// Runs a load, lets something happen to the servers, and checks that nothing is left behind.
fn under_load(session: &str, what: impl FnOnce(&Ensemble, &Load)) -> Outcome {
    let (ensemble, runtime) = (Ensemble::start(), runtime());
    let url = format!("{}?root={}&session={session}", ensemble.url(), common::root());
    let load = Load::start(&runtime, &url, 2);
    load.goes_on(20);
    what(&ensemble, &load);
    load.goes_on(20);
    finish(&ensemble, load, &runtime)
}

fn finish(ensemble: &Ensemble, load: Load, runtime: &Runtime) -> Outcome {
    // Clients that are idle watch nothing; when they are closed, nothing of them is left.
    let outcome = load.finish(runtime, || {
        until("no watch is left", || match ensemble.watch_count() {
            0 => Ok(()),
            left => Err(format!(
                "{left}: {:?}",
                ensemble.members().iter().map(|one| one.watches()).collect::<Vec<_>>()
            )),
        });
    });
    ensemble.wait_until_clean(&[]);
    assert!(outcome.visits >= 40, "{outcome:?}");
    outcome
}

#[test]
fn counters_stay_exact_when_the_leader_is_killed_and_comes_back() {
    under_load(PATIENT, |ensemble, load| {
        let dead = ensemble.kill_leader();
        ensemble.wait_until_ready();
        load.goes_on(20);
        dead.restart();
        ensemble.wait_until_ready();
    });
}

#[test]
fn counters_stay_exact_when_one_after_the_other_is_killed_and_sessions_are_short() {
    under_load(SHORT, |ensemble, load| {
        for member in ensemble.members() {
            member.kill();
            ensemble.wait_until_ready();
            member.restart();
            ensemble.wait_until_ready();
            load.goes_on(5);
        }
    });
}

#[test]
fn counters_stay_exact_while_a_follower_stands_still_and_comes_back() {
    paused(|ensemble| ensemble.followers()[0]);
}

#[test]
fn counters_stay_exact_while_the_leader_stands_still_and_comes_back() {
    paused(|ensemble| ensemble.leader());
}

/// Longer than a session, so that those who were connected to it must go elsewhere, or start anew.
fn paused(which: fn(&Ensemble) -> &ZooKeeper) {
    under_load(SHORT, |ensemble, load| {
        let paused = which(ensemble);
        paused.pause();
        ensemble.wait_until_ready();
        load.goes_on(20);
        paused.resume();
        ensemble.wait_until_ready();
    });
}

#[test]
fn counters_stay_exact_when_the_quorum_is_lost_and_regained() {
    let outcome = under_load(PATIENT, |ensemble, _| {
        lose_the_quorum(ensemble);
        regain_the_quorum(ensemble);
    });
    assert_eq!(outcome.lost, 0, "sessions outlived it: {outcome:?}");
}

fn lose_the_quorum(ensemble: &Ensemble) {
    ensemble[0].kill();
    ensemble[1].kill();
    ensemble.wait_until_lost();
}

fn regain_the_quorum(ensemble: &Ensemble) {
    for member in &ensemble.members()[..2] {
        member.restart();
        ensemble.wait_until_ready();
    }
}

/// A holder that can't reach a quorum is told before its session can end, and those who waited get in afterwards.
#[test]
fn a_holder_is_told_while_the_quorum_is_lost_and_a_waiter_gets_in_when_it_is_back() {
    let (ensemble, runtime) = (Ensemble::start(), runtime());
    // The client crate itself would give it up after 7/5 of this.
    let session = Duration::from_secs(4);
    let url = format!("{}?root={}&session=", ensemble.url(), common::root());
    let connect = || {
        let builder = Client::builder().retry_for(Duration::from_secs(60));
        let store = common::open(&format!("{url}{}ms", session.as_millis())).expect("a store");
        runtime.block_on(builder.open(store)).expect("a client")
    };
    let (holder, other) = (connect(), connect());
    let guard = runtime.block_on(soon("a lock", holder.mutex("x").lock())).expect("a lock");
    let mutex = other.mutex("x");
    let waiter = runtime.spawn(async move { mutex.lock().await });
    until("one waits", || match runtime.block_on(holder.inspect("x")) {
        Ok(seen) if seen.waiters.len() == 1 => Ok(()),
        seen => Err(format!("{seen:?}")),
    });
    let token = guard.token();
    let load = Load::start(&runtime, &format!("{url}{SHORT}"), 2);
    load.goes_on(20);
    ensemble[0].kill();
    ensemble[1].kill();
    // Nobody who counts can have heard of the holder after this.
    let unheard = Instant::now();
    runtime.block_on(soon("the holder is told", guard.lost()));
    assert!(!guard.is_held() && unheard.elapsed() < session, "told after {:?}", unheard.elapsed());
    ensemble.wait_until_lost();
    assert!(!waiter.is_finished(), "nobody can hold without a quorum");
    regain_the_quorum(&ensemble);
    let next = runtime.block_on(soon("a successor", waiter)).expect("a task").expect("a lock");
    assert!(next.token() > token);
    let _ = runtime.block_on(soon("an end", guard.release()));
    runtime.block_on(soon("an end", next.release())).expect("a release");
    load.goes_on(20);
    for client in [holder, other] {
        runtime.block_on(soon("an end", client.close())).expect("a closed client");
    }
    finish(&ensemble, load, &runtime);
}

/// A member that stands still takes nobody's lock with it: whoever is connected to it goes on at another one in time, also if the
/// silent one is chosen again.
#[test]
fn no_idle_holder_loses_its_lock_when_a_follower_stands_still() {
    let (ensemble, runtime) = (Ensemble::start(), runtime());
    let url = format!("{}?root={}&session=10s", ensemble.url(), common::root());
    let holders = runtime.block_on(async {
        let mut holders = Vec::new();
        for n in 0..12 {
            let builder = Client::builder().label(format!("{n}"));
            let client = builder.open(common::open(&url).expect("a store")).await.expect("a client");
            let guard = soon("a lock", client.mutex(format!("x{n}")).lock()).await.expect("a lock");
            holders.push((client, guard));
        }
        holders
    });
    let follower = ensemble.followers()[0];
    follower.pause();
    let certain: Vec<_> = holders.iter().map(|(_, guard)| guard.deadline().expect("an end")).collect();
    runtime.block_on(async {
        for ((_, guard), before) in holders.into_iter().zip(certain) {
            eventually("it is renewed, or lost", || async {
                let lasts = guard.deadline().expect("an end");
                // More than the last sign of life before it could give.
                if lasts > before + Duration::from_secs(2) || !guard.is_held() {
                    Ok(())
                } else {
                    Err(guard.remaining())
                }
            })
            .await;
            assert!(guard.is_held(), "{} was lost with a follower", guard.name());
            soon("a release", guard.release()).await.expect("a release of a lock that was held");
        }
    });
    follower.resume();
}

#[test]
fn a_client_waits_for_an_ensemble_without_a_leader() {
    let ensemble = Ensemble::start();
    ensemble.members()[1..].iter().for_each(|member| member.kill());
    ensemble.wait_until_lost();
    let url = format!("zookeeper://{}", ensemble.members()[0].address());
    let restart = || ensemble.members()[1..].iter().for_each(|member| member.restart());
    runtime().block_on(a_client_is_let_in_after(
        common::open(&url).expect("a store"),
        "its ensemble has no leader",
        restart,
    ));
}
