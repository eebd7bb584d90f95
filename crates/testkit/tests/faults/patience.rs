//! How long a verb waits for a store that is away, and what it says then.

use std::time::{Duration, Instant};

use leasehold_client::{Backoff, Client, Order, Part};
use leasehold_core::{Error, Kind, Result};
use leasehold_testkit::faulty::{Cut, Fault, Op};
use leasehold_testkit::wait::{eventually, not_yet, soon};
use tokio::time::sleep;

use super::{granted, lock, on_a_faulty_store, waiter, with_lease};

const CUTS: [Cut; 2] = [Cut::Refused, Cut::Silent];

/// A limit of a claim.
const LIMIT: Duration = Duration::from_millis(300);

/// So long that only an error of judgement lasts it out.
const LONG: Duration = Duration::from_secs(40);

/// What came of a claim in an outage, and how long that took.
async fn failure<T>(what: &str, claim: impl Future<Output = Result<Option<T>>>) -> (Error, Duration) {
    let since = Instant::now();
    match soon(what, claim).await {
        Err(error) => (error, since.elapsed()),
        Ok(Some(_)) => panic!("{what}: a lock was got from nowhere"),
        Ok(None) => panic!("{what}: busy, and nobody holds it"),
    }
}

#[test]
fn a_free_lock_of_a_store_that_is_away_is_unavailable_at_the_limit_and_never_busy() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            for client in scene.weak_ones().await {
                scene.faulty.cut(cut);
                let spin = Order::Spin(Backoff::default());
                let outcomes = [
                    failure("lock", client.mutex("x").lock_within(LIMIT)).await,
                    failure("barge", client.mutex("x").order(Order::Barge).lock_within(LIMIT)).await,
                    failure("spin", client.mutex("x").order(spin).lock_within(LIMIT)).await,
                    failure("lease", client.mutex("x").lease(LONG).lock_within(LIMIT)).await,
                    failure("read", client.rwlock("x").read_within(LIMIT)).await,
                    failure("permits", client.semaphore("y", 2).acquire_within(1, LIMIT)).await,
                    failure("lead", client.leader("x").campaign_within(LIMIT)).await,
                    failure("stripe", client.striped("x", 4).lock_within("k", LIMIT)).await,
                    failure("multi", multi(&client).lock_within(LIMIT)).await,
                    failure("spinning multi", multi(&client).order(spin).lock_within(LIMIT)).await,
                ];
                for (error, time) in outcomes {
                    assert_eq!(error.kind(), Kind::Unavailable, "{cut:?}: {error}");
                    assert!(time >= LIMIT, "{cut:?}: gave up after {time:?}: {error}");
                    assert!(time < LIMIT * 10, "{cut:?}: took {time:?}: {error}");
                }
                scene.faulty.heal();
            }
        }
    });
}

fn multi(client: &Client) -> leasehold_client::Multi {
    client.multi([Part::mutex("x"), Part::mutex("z")])
}

#[test]
fn a_local_waiter_of_a_store_that_is_away_is_told_the_same() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            let client = scene.weak(with_lease()).await;
            scene.faulty.cut(cut);
            let (one, other) = (client.mutex("x"), client.mutex("x"));
            let (first, second) = tokio::join!(
                failure("first", one.lock_within(LIMIT)),
                failure("second", other.lock_within(LIMIT))
            );
            assert_eq!((first.0.kind(), second.0.kind()), (Kind::Unavailable, Kind::Unavailable), "{cut:?}");
            scene.faulty.heal();
        }
    });
}

#[test]
fn a_lock_that_another_holds_is_busy_at_the_limit() {
    on_a_faulty_store(|scene| async move {
        let held = lock(&scene.strong().await.mutex("x")).await;
        for client in scene.weak_ones().await {
            let spin = Order::Spin(Backoff::default());
            let outcomes = [
                client.mutex("x").lock_within(LIMIT).await.map(|g| g.is_some()),
                client.mutex("x").order(spin).lock_within(LIMIT).await.map(|g| g.is_some()),
                multi(&client).lock_within(LIMIT).await.map(|g| g.is_some()),
                client.mutex("x").try_lock().await.map(|g| g.is_some()),
                client.mutex("x").lock_within(Duration::ZERO).await.map(|g| g.is_some()),
            ];
            for outcome in outcomes {
                assert!(!outcome.expect("an answer"));
            }
        }
        held.release().await.expect("a release");
    });
}

#[test]
fn a_claim_does_not_give_up_before_its_limit() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for cut in CUTS {
            // The client's own patience is much shorter than the limit, and than the outage.
            let client = scene.weak(with_lease().retry_for(Duration::from_millis(100))).await;
            let holder = lock(&strong.mutex("x")).await;
            let (queued, new) = (client.mutex("x"), client.mutex("y"));
            let mut queued = tokio::spawn(async move { queued.lock_within(LONG).await });
            scene.stage.waiters("x", 1).await;
            scene.faulty.cut(cut);
            let mut new = tokio::spawn(async move { new.lock_within(LONG).await });
            // Longer than a place in the queue lasts.
            sleep(Duration::from_millis(1200)).await;
            not_yet("a queued claim gave up", &mut queued).await;
            not_yet("a new claim gave up", &mut new).await;
            scene.faulty.heal();
            holder.release().await.expect("a release");
            for claim in [queued, new] {
                let guard = soon("a grant", claim).await.expect("a task").expect("a lock").expect("in time");
                guard.release().await.expect("a release");
            }
        }
    });
}

#[test]
fn a_claim_without_a_limit_gives_up_after_the_clients_patience_and_says_so() {
    on_a_faulty_store(|scene| async move {
        let patience = Duration::from_millis(400);
        for cut in CUTS {
            let client = scene.weak(with_lease().retry_for(patience)).await;
            scene.faulty.cut(cut);
            // One that came first with a limit of its own does not take the others with it, nor stay because of them.
            let limited = client.mutex("x");
            let mut limited = tokio::spawn(async move { limited.lock_within(LONG).await });
            let failed = granted_or_not(waiter(&client.mutex("x"))).await;
            for error in [
                failed,
                client.inspect("x").await.expect_err("the store is away"),
                client.force_release("x", None).await.expect_err("the store is away"),
            ] {
                assert_eq!(error.kind(), Kind::Unavailable, "{cut:?}: {error}");
                assert!(error.to_string().contains("tried for"), "{cut:?}: {error}");
            }
            not_yet("a claim with a limit gave up", &mut limited).await;
            scene.faulty.heal();
            let guard = soon("a grant", limited).await.expect("a task").expect("a lock").expect("in time");
            guard.release().await.expect("a release");
        }
    });
}

async fn granted_or_not(claim: tokio::task::JoinHandle<Result<leasehold_client::Guard>>) -> Error {
    soon("the error", claim).await.expect("a task").expect_err("the store is away")
}

#[test]
fn a_client_is_opened_as_soon_as_the_store_is_there() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            scene.faulty.cut(cut);
            let (faulty, builder) = (scene.faulty.clone(), with_lease().retry_for(LONG));
            let mut opening = tokio::spawn(async move { builder.open(faulty).await });
            not_yet("a client was opened on nothing", &mut opening).await;
            scene.faulty.heal();
            let client = soon("a client", opening).await.expect("a task").expect("a client");
            lock(&client.mutex("x")).await.release().await.expect("a release");
        }
        for _ in 0..3 {
            scene.faulty.next(Op::Open, Fault::ErrorBefore);
        }
        scene.weak(with_lease()).await;
        assert_eq!(scene.faulty.planned(), 0);
    });
}

#[test]
fn a_client_is_not_opened_for_ever() {
    on_a_faulty_store(|scene| async move {
        scene.faulty.cut(Cut::Refused);
        let opened = soon("the error", with_lease().retry_for(LIMIT).open(scene.faulty.clone())).await;
        let error = opened.expect_err("the store is away");
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(error.to_string().contains("tried for"), "{error}");
        scene.faulty.heal();
    });
}

#[test]
fn a_release_is_waited_for_as_long_as_the_clients_patience_and_goes_on_after_it() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            let client = scene.weak(with_lease().default_lease(LONG).retry_for(LIMIT)).await;
            let guard = lock(&client.mutex("x")).await;
            scene.faulty.cut(cut);
            let since = Instant::now();
            let error = soon("an answer", guard.release()).await.expect_err("the store is away");
            assert_eq!(error.kind(), Kind::Unavailable, "{cut:?}: {error}");
            assert!(since.elapsed() < LIMIT * 10, "{cut:?}: {:?}", since.elapsed());
            scene.faulty.heal();
            eventually("the lock is given back", || async {
                let seen = scene.stage.look("x").await;
                if seen.holders.is_empty() { Ok(()) } else { Err(seen) }
            })
            .await;
            assert!(since.elapsed() < LONG, "{cut:?}: it ended by itself");
        }
    });
}

#[test]
fn a_try_answers_within_the_stores_time_out() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            let client = scene.weak(with_lease().retry_for(LONG)).await;
            scene.faulty.cut(cut);
            for (error, time) in [
                failure("a try", client.mutex("x").try_lock()).await,
                failure("zero", client.mutex("x").lock_within(Duration::ZERO)).await,
                failure("multi", multi(&client).try_lock()).await,
                failure("spin", client.mutex("x").order(Order::Spin(Backoff::default())).try_lock()).await,
            ] {
                assert_eq!(error.kind(), Kind::Unavailable, "{cut:?}: {error}");
                assert!(time < Duration::from_secs(15), "{cut:?}: {time:?}");
            }
            scene.faulty.heal();
        }
    });
}

#[test]
fn waiters_without_a_limit_are_let_go_one_by_one() {
    on_a_faulty_store(|scene| async move {
        let client = scene.weak(with_lease().retry_for(Duration::from_millis(800))).await;
        scene.faulty.cut(Cut::Refused);
        let first = waiter(&client.mutex("x"));
        sleep(Duration::from_millis(500)).await;
        // It has as much time as the first, though the store was away before it came.
        let second = waiter(&client.mutex("x"));
        granted_or_not(first).await;
        scene.faulty.heal();
        granted(second).await.release().await.expect("a release");
    });
}
