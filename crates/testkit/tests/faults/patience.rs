//! How long a verb waits for a store that is away, and what it says then.

use std::time::{Duration, Instant};

use leasehold_client::{Backoff, Client, Guard, Multi, Order, Part};
use leasehold_core::{Error, Kind, Result};
use leasehold_testkit::faulty::{Cut, Fault, Op};
use leasehold_testkit::wait::{eventually, not_yet, soon};
use tokio::time::sleep;

use super::{LEASE, Scene, granted, lock, on_a_faulty_store, waiter, with_lease};

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

fn multi(client: &Client) -> Multi {
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

/// Later than an answer that is on its way at the limit is waited for.
const SLOW: Duration = Duration::from_millis(150);

/// Locks that another one holds, one for each of [`claims_for_held_locks`].
const HELD: [&str; 5] = ["held/1", "held/2", "held/3", "held/4", "held/5"];

async fn held_by_another(scene: &Scene) -> Vec<Guard> {
    let strong = scene.strong().await;
    let mut guards = Vec::new();
    for name in HELD {
        guards.push(lock(&strong.mutex(name)).await);
    }
    guards
}

/// A claim of every sort, all at the same time: whether each got the lock, and how long that took. A set has its first
/// part when it asks for the one that is held.
async fn claims_for_held_locks(
    client: &Client,
    limit: Duration,
) -> [(&'static str, Result<bool>, Duration); 5] {
    let spin = Order::Spin(Backoff::default());
    let set = |free, held| client.multi([Part::mutex(free), Part::mutex(held)]);
    let (queue, barge) = (client.mutex(HELD[0]), client.mutex(HELD[1]).order(Order::Barge));
    let spinning = client.mutex(HELD[2]).order(spin);
    let (queueing_set, spinning_set) = (set("free/1", HELD[3]), set("free/2", HELD[4]).order(spin));
    let outcomes = tokio::join!(
        outcome("queue", queue.lock_within(limit)),
        outcome("barge", barge.lock_within(limit)),
        outcome("spin", spinning.lock_within(limit)),
        outcome("multi", queueing_set.lock_within(limit)),
        outcome("spinning multi", spinning_set.lock_within(limit)),
    );
    outcomes.into()
}

async fn outcome<T>(
    what: &'static str,
    claim: impl Future<Output = Result<Option<T>>>,
) -> (&'static str, Result<bool>, Duration) {
    let since = Instant::now();
    let outcome = soon(what, claim).await;
    (what, outcome.map(|guard| guard.is_some()), since.elapsed())
}

/// The store answers everything that it is asked, only late: the claims learn that another one has the lock.
#[test]
fn a_lock_that_another_holds_is_busy_at_the_limit_though_answers_are_slow() {
    on_a_faulty_store(|scene| async move {
        let held = held_by_another(&scene).await;
        for client in scene.weak_ones().await {
            for limit in [400, 550, 700].map(Duration::from_millis) {
                (0..200).for_each(|_| scene.faulty.next(Op::Join, Fault::LateAnswer(SLOW)));
                for (what, outcome, _) in claims_for_held_locks(&client, limit).await {
                    assert!(matches!(outcome, Ok(false)), "{what}, {limit:?}: {outcome:?}");
                }
                scene.faulty.forget();
            }
        }
        for guard in held {
            guard.release().await.expect("a release");
        }
    });
}

#[test]
fn a_limit_may_be_as_long_as_can_be_said() {
    on_a_faulty_store(|scene| async move {
        let forever = Duration::MAX;
        let builder = with_lease().retry_for(forever).try_for(forever).open_for(forever);
        for client in scene.weak_ones_with(builder).await {
            let (mutex, spin) = (|name| client.mutex(name), Order::Spin(Backoff::default()));
            for guard in [
                soon("queue", mutex("queue").lock_within(forever)).await,
                soon("barge", mutex("barge").order(Order::Barge).lock_within(forever)).await,
                soon("spin", mutex("spin").order(spin).lock_within(forever)).await,
                soon("spinning try", mutex("try").order(spin).try_lock()).await,
                soon("lease", mutex("lease").lease(LONG).lock_within(forever)).await,
                soon("read", client.rwlock("read").read_within(forever)).await,
                soon("permits", client.semaphore("permits", 2).acquire_within(1, forever)).await,
                soon("stripe", client.striped("stripe", 4).lock_within("k", forever)).await,
            ] {
                let guard = guard.expect("an answer").expect("a free lock");
                soon("a release", guard.release_within(forever)).await.expect("a release");
            }
            for order in [Order::Queue, Order::Barge, spin] {
                let set = soon("multi", multi(&client).order(order).lock_within(forever)).await;
                let set = set.expect("an answer").expect("free locks");
                soon("a release", set.release_within(forever)).await.expect("a release");
            }
        }
    });
}

/// The one rule about limits, measured: 100 ms and one time-out more. A claim that took the patience of its client
/// (which is longer than the test), or a time-out for each of its requests, would be found out.
const TRY_FOR: Duration = Duration::from_millis(500);

/// What a machine may need that has other things to do.
const SLOW_MACHINE: Duration = Duration::from_secs(1);

fn within_the_rule(what: &str, cut: Cut, limit: Duration, time: Duration) {
    let most = limit + TRY_FOR + Duration::from_millis(100) + SLOW_MACHINE;
    assert!(time >= limit && time <= most, "{what}, {cut:?}: {time:?} for a limit of {limit:?}");
}

#[test]
fn a_limit_is_kept_to_within_100_ms_and_one_time_out() {
    on_a_faulty_store(|scene| async move {
        let builder = with_lease().retry_for(LONG).try_for(TRY_FOR);
        for client in scene.weak_ones_with(builder).await {
            for cut in CUTS {
                scene.faulty.cut(cut);
                let (mutex, spin) = (|name| client.mutex(name), Order::Spin(Backoff::default()));
                let set = |first, second| client.multi([Part::mutex(first), Part::mutex(second)]);
                let (queue, barge, leased) =
                    (mutex("a"), mutex("b").order(Order::Barge), mutex("c").lease(LONG));
                let (spinning, tries) = (mutex("d").order(spin), mutex("e"));
                let (read, permits) = (client.rwlock("f"), client.semaphore("g", 2));
                let (queueing_set, spinning_set) = (set("h", "i"), set("j", "k").order(spin));
                let tried_set = set("l", "m");
                let limited = tokio::join!(
                    failure("queue", queue.lock_within(LIMIT)),
                    failure("barge", barge.lock_within(LIMIT)),
                    failure("lease", leased.lock_within(LIMIT)),
                    failure("spin", spinning.lock_within(LIMIT)),
                    failure("read", read.read_within(LIMIT)),
                    failure("permits", permits.acquire_within(1, LIMIT)),
                    failure("multi", queueing_set.lock_within(LIMIT)),
                    failure("spinning multi", spinning_set.lock_within(LIMIT)),
                );
                for (error, time) in <[_; 8]>::from(limited) {
                    within_the_rule(&error.to_string(), cut, LIMIT, time);
                }
                let tried = tokio::join!(
                    failure("a try", tries.try_lock()),
                    failure("a try of a set", tried_set.try_lock())
                );
                for (error, time) in <[_; 2]>::from(tried) {
                    within_the_rule(&error.to_string(), cut, Duration::ZERO, time);
                }
                scene.faulty.heal();
            }
        }
    });
}

/// The outage begins while the claims wait for one that holds the lock.
#[test]
fn a_limit_is_kept_though_the_store_falls_silent_meanwhile() {
    on_a_faulty_store(|scene| async move {
        let limit = LIMIT * 3;
        let held = held_by_another(&scene).await;
        for client in scene.weak_ones_with(with_lease().retry_for(LONG).try_for(TRY_FOR)).await {
            for cut in CUTS {
                let before = scene.faulty.calls(Op::Join);
                let falls_silent = async {
                    eventually("all have asked", || async {
                        let asked = scene.faulty.calls(Op::Join) - before;
                        if asked >= HELD.len() * 2 { Ok(()) } else { Err(asked) }
                    })
                    .await;
                    scene.faulty.cut(cut);
                };
                let (outcomes, ()) = tokio::join!(claims_for_held_locks(&client, limit), falls_silent);
                for (what, outcome, time) in outcomes {
                    assert!(!matches!(outcome, Ok(true)), "{what}, {cut:?}: a lock was got from nowhere");
                    within_the_rule(what, cut, limit, time);
                }
                scene.faulty.heal();
            }
        }
        for guard in held {
            guard.release().await.expect("a release");
        }
    });
}

/// "Another one has it" is the last that the store said, until the claim has asked again in vain: it does so every
/// third of a lease.
#[test]
fn a_claim_that_waits_is_told_busy_until_it_notices_that_the_store_is_away() {
    on_a_faulty_store(|scene| async move {
        let held = lock(&scene.strong().await.mutex("x")).await;
        for (lease, limit, notices) in
            [(LONG, Duration::from_secs(1), false), (LEASE, Duration::from_secs(3), true)]
        {
            for client in scene.weak_ones_with(Client::builder().default_lease(lease)).await {
                let mutex = client.mutex("x");
                let claim = tokio::spawn(async move { mutex.lock_within(limit).await });
                scene.stage.waiters("x", 1).await;
                scene.faulty.cut(Cut::Silent);
                match soon("an answer", claim).await.expect("a task") {
                    Ok(None) => assert!(!notices, "it asked, and got no answer"),
                    Err(error) => {
                        assert!(notices && error.kind() == Kind::Unavailable, "{lease:?}: {error}");
                    }
                    Ok(Some(_)) => panic!("another one has it"),
                }
                scene.faulty.heal();
                scene.stage.waiters("x", 0).await;
            }
        }
        held.release().await.expect("a release");
    });
}

/// A server that refuses, and then hangs: the reason is what it said.
#[test]
fn what_the_store_said_is_not_forgotten_when_it_falls_silent() {
    on_a_faulty_store(|scene| async move {
        let client = scene.weak(with_lease().retry_for(LONG)).await;
        let patience = Duration::from_secs(2);
        let hasty = client.with_retry_for(patience);
        let (mutex, spin) = (client.mutex("x"), Order::Spin(Backoff::default()));
        let (spinning, set) = (mutex.clone().order(spin), multi(&client));
        scene.faulty.cut(Cut::Refused);
        let falls_silent = async {
            eventually("all have asked", || async {
                let (claims, looks) = (scene.faulty.calls(Op::Join), scene.faulty.calls(Op::Inspect));
                if claims >= 6 && looks >= 2 { Ok(()) } else { Err((claims, looks)) }
            })
            .await;
            scene.faulty.cut(Cut::Silent);
        };
        let (look, (queue, _), (spin, _), (multi, _), ()) = tokio::join!(
            soon("a look", hasty.inspect("x")),
            failure("queue", mutex.lock_within(patience)),
            failure("spin", spinning.lock_within(patience)),
            failure("multi", set.lock_within(patience)),
            falls_silent,
        );
        for error in [look.expect_err("the store is away"), queue, spin, multi] {
            let said = error.to_string();
            assert!(said.contains("the connection is cut") && said.contains("tried for"), "{said}");
        }
        scene.faulty.heal();
    });
}

/// Every verb that asks the store and is no claim.
#[test]
fn every_verb_ends_when_the_patience_of_its_handle_is_over() {
    on_a_faulty_store(|scene| async move {
        let patience = Duration::from_millis(400);
        for cut in CUTS {
            let client = scene.weak(with_lease().default_lease(LONG).retry_for(LONG)).await;
            let other = scene.weak(with_lease().retry_for(LONG)).await;
            let set = soon("a set", multi(&client).lock()).await.expect("free locks");
            let guard = lock(&client.mutex("g")).await;
            let hasty = client.with_retry_for(patience);
            let (leader, mut permits) = (hasty.leader("x"), hasty.semaphore("y", 2));
            scene.faulty.cut(cut);
            let mut listing = hasty.list("");
            let outcomes = tokio::join!(
                asked(hasty.inspect("x")),
                asked(async { listing.next().await.expect("an answer") }),
                asked(hasty.watch("")),
                asked(hasty.request_release("x", None)),
                asked(hasty.force_release("x", None)),
                asked(permits.set_limit(3)),
                asked(leader.current()),
                asked(leader.observe()),
                asked(set.release_within(patience)),
                asked(guard.release_within(patience)),
            );
            let close = asked(other.with_retry_for(patience).close()).await;
            let (inspect, list, watch, request, force, limit, current, observe, set, guard) = outcomes;
            for (what, (error, time)) in [
                ("inspect", inspect),
                ("list", list),
                ("watch", watch),
                ("request_release", request),
                ("force_release", force),
                ("set_limit", limit),
                ("current", current),
                ("observe", observe),
                ("MultiGuard::release_within", set),
                ("Guard::release_within", guard),
                ("close", close),
            ] {
                assert_eq!(error.kind(), Kind::Unavailable, "{what}, {cut:?}: {error}");
                assert!(error.to_string().contains("tried for"), "{what}, {cut:?}: {error}");
                // A goodbye is said once.
                let least = if what == "close" { Duration::ZERO } else { patience };
                assert!(
                    time >= least && time < patience + SLOW_MACHINE,
                    "{what}, {cut:?}: {time:?}: {error}"
                );
            }
            scene.faulty.heal();
        }
    });
}

/// Why the store could not be asked, and how long that took.
async fn asked<T>(question: impl Future<Output = Result<T>>) -> (Error, Duration) {
    let since = Instant::now();
    match soon("an answer", question).await {
        Err(error) => (error, since.elapsed()),
        Ok(_) => panic!("the store is away"),
    }
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

async fn granted_or_not(claim: tokio::task::JoinHandle<Result<Guard>>) -> Error {
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

/// So many tries that no release lasts them out.
const TRIES: usize = 200;

/// Each try takes longer than one is left to whoever waits for it, and then fails.
#[test]
fn a_release_that_is_not_confirmed_says_what_was_in_its_way() {
    on_a_faulty_store(|scene| async move {
        let patience = Duration::from_secs(1);
        for client in scene.weak_ones_with(with_lease().default_lease(LONG).retry_for(patience)).await {
            let (one, other) = (lock(&client.mutex("x")).await, lock(&client.mutex("y")).await);
            let lead = soon("to lead", client.leader("z").campaign()).await.expect("to lead");
            let late = Fault::LateAndLost(Duration::from_millis(200));
            (0..TRIES).for_each(|_| scene.faulty.next(Op::Leave, late));
            let outcomes = tokio::join!(
                asked(one.release()),
                asked(other.release_within(patience)),
                asked(lead.resign()),
            );
            for (error, time) in <[_; 3]>::from(outcomes) {
                let said = error.to_string();
                assert_eq!(error.kind(), Kind::Unavailable, "{said}");
                assert!(said.contains("the answer was lost") && said.contains("tried for"), "{said}");
                assert!(time >= patience && time < patience + SLOW_MACHINE, "{time:?}: {said}");
            }
            scene.faulty.forget();
            for name in ["x", "y", "z"] {
                scene.stage.free(name).await;
            }
        }
    });
}

/// A goodbye is said once. Why it is not answered is known from what was asked before it.
#[test]
fn a_close_in_an_outage_says_what_the_store_said_before() {
    on_a_faulty_store(|scene| async move {
        let client = scene.weak(with_lease().default_lease(LONG)).await;
        let hasty = client.with_retry_for(Duration::from_millis(800));
        scene.faulty.cut(Cut::Refused);
        asked(hasty.inspect("x")).await;
        scene.faulty.cut(Cut::Silent);
        let said = asked(hasty.close()).await.0.to_string();
        assert!(said.contains("the connection is cut") && said.contains("tried for"), "{said}");
        scene.faulty.heal();
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
