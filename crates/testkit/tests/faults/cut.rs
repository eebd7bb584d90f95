//! The connection is cut for a while, or for good (scenarios 1 and 6).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::poll;
use leasehold_client::{Client, Guard, Lost};
use leasehold_core::Kind;
use leasehold_memory::Memory;
use leasehold_testkit::faulty::{Cut, Fault, Op};
use leasehold_testkit::wait::{eventually, not_yet, soon};
use leasehold_testkit::{Faulty, Stage};
use tokio::time::sleep;

use super::{LATE, LEASE, granted, lock, on_a_faulty_store, waiter, with_lease};

const CUTS: [Cut; 2] = [Cut::Refused, Cut::Silent];

#[test]
fn a_cut_longer_than_the_lease_loses_the_lock_before_anybody_else_holds_it() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for cut in CUTS {
            for client in scene.weak_ones().await {
                let guard = lock(&client.mutex("x")).await;
                let next = waiter(&strong.mutex("x"));
                scene.stage.waiters("x", 1).await;
                scene.faulty.cut(cut);
                let since = Instant::now();
                let next = granted(next).await;
                assert!(!guard.is_held(), "{cut:?}: two hold at once");
                assert!(since.elapsed() < LEASE * 3, "{cut:?}: it took {:?}", since.elapsed());
                assert_eq!(soon("the loss", guard.lost()).await, Lost::Expired);
                scene.faulty.heal();
                let late = guard.release().await.expect_err("it ended before");
                assert_eq!(late.kind(), Kind::Lost, "{late}");
                assert!(next.is_held());
                next.release().await.expect("a release");
                scene.stage.free("x").await;
            }
        }
    });
}

#[test]
fn a_cut_shorter_than_the_lease_loses_nothing() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            let client = scene.weak(with_lease().default_lease(LEASE * 3)).await;
            let guard = lock(&client.mutex("x")).await;
            scene.faulty.cut(cut);
            sleep(LEASE).await;
            scene.faulty.heal();
            sleep(LEASE * 3).await;
            assert!(guard.is_held(), "{cut:?}");
            guard.release().await.expect("a release");
        }
    });
}

#[test]
fn all_local_holders_and_waiters_of_a_cut_client_come_through() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            let client = scene.weak(with_lease()).await;
            let guard = lock(&client.mutex("x")).await;
            let waiting: Vec<_> = (0..3).map(|_| waiter(&client.mutex("x"))).collect();
            scene.faulty.cut(cut);
            assert_eq!(soon("the loss", guard.lost()).await, Lost::Expired);
            scene.faulty.heal();
            let mut passing = tokio::task::JoinSet::new();
            for waiter in waiting {
                passing.spawn(async move { granted(waiter).await.release().await });
            }
            while let Some(done) = soon("the local waiters", passing.join_next()).await {
                done.expect("a task").expect("a release");
            }
            drop(guard);
        }
    });
}

#[test]
fn a_waiter_survives_a_cut_that_is_shorter_than_its_patience() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for cut in CUTS {
            let client = scene.weak(with_lease().retry_for(Duration::from_secs(15))).await;
            let holder = lock(&strong.mutex("x")).await;
            let mut waiting = waiter(&client.mutex("x"));
            scene.stage.waiters("x", 1).await;
            scene.faulty.cut(cut);
            // Longer than its place in the queue lasts: it has to join again.
            sleep(LEASE + LEASE / 2).await;
            not_yet("the waiter gave up or got in", &mut waiting).await;
            scene.faulty.heal();
            scene.stage.waiters("x", 1).await;
            holder.release().await.expect("a release");
            granted(waiting).await.release().await.expect("a release");
        }
    });
}

#[test]
fn a_claim_made_while_the_store_is_away_gets_in_when_it_returns() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            let client = scene.weak(with_lease().retry_for(Duration::from_secs(15))).await;
            scene.faulty.cut(cut);
            let mut waiting = waiter(&client.mutex("x"));
            not_yet("a claim got through a cut", &mut waiting).await;
            scene.faulty.heal();
            granted(waiting).await.release().await.expect("a release");
        }
    });
}

#[test]
fn a_claim_fails_when_the_store_stays_away() {
    on_a_faulty_store(|scene| async move {
        let patience = Duration::from_millis(400);
        for cut in CUTS {
            let client = scene.weak(with_lease().retry_for(patience)).await;
            scene.faulty.cut(cut);
            let since = Instant::now();
            for failed in [
                soon("the error", client.mutex("x").lock()).await.err(),
                soon("the error", client.mutex("x").try_lock()).await.err(),
                soon("the error", client.semaphore("y", 2).acquire(1)).await.err(),
                soon("the error", client.inspect("x")).await.err(),
            ] {
                let failed = failed.expect("an error");
                assert_eq!(failed.kind(), Kind::Unavailable, "{cut:?}: {failed}");
            }
            assert!(since.elapsed() >= patience, "{cut:?}: it tried again for {:?}", since.elapsed());
            assert!(
                since.elapsed() < patience * 4 + Duration::from_secs(5),
                "{cut:?}: {:?}",
                since.elapsed()
            );
            scene.faulty.heal();
        }
    });
}

#[test]
fn a_timed_claim_ends_in_its_time_though_the_store_is_away() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            let client = scene.weak(with_lease()).await;
            scene.faulty.cut(cut);
            let since = Instant::now();
            let timed = soon("the end", client.mutex("x").lock_within(Duration::from_millis(200))).await;
            assert!(!matches!(timed, Ok(Some(_))), "{cut:?}: a lock was got from nowhere");
            assert!(since.elapsed() < Duration::from_secs(4), "{cut:?}: it took {:?}", since.elapsed());
            scene.faulty.heal();
        }
    });
}

#[test]
fn a_waiter_fails_when_the_store_goes_away_for_good() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for cut in CUTS {
            let client = scene.weak(with_lease().retry_for(Duration::from_millis(400))).await;
            let holder = lock(&strong.mutex("x")).await;
            let waiting = waiter(&client.mutex("x"));
            scene.stage.waiters("x", 1).await;
            scene.faulty.cut(cut);
            let failed = soon("the error", waiting).await.expect("a task").expect_err("the store is away");
            assert_eq!(failed.kind(), Kind::Unavailable, "{cut:?}: {failed}");
            // What it left at the store is gone within its place's time, cut or not.
            scene.stage.waiters("x", 0).await;
            scene.faulty.heal();
            holder.release().await.expect("a release");
        }
    });
}

#[test]
fn a_release_during_a_cut_is_done_when_it_is_over_or_left_to_expire() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            let client = scene.weak(with_lease().retry_for(Duration::from_millis(300))).await;
            let guard = lock(&client.mutex("x")).await;
            scene.faulty.cut(cut);
            drop(guard);
            let since = Instant::now();
            scene.stage.free("x").await;
            assert!(since.elapsed() < LEASE * 3, "{cut:?}: an orphan lived for {:?}", since.elapsed());
            scene.faulty.heal();
            lock(&client.mutex("x")).await.release().await.expect("a release");
        }
    });
}

#[test]
fn closing_a_client_that_is_cut_off_does_not_hang() {
    on_a_faulty_store(|scene| async move {
        for cut in CUTS {
            let client = scene.weak(with_lease().retry_for(Duration::from_millis(300))).await;
            let guard = lock(&client.mutex("x")).await;
            scene.faulty.cut(cut);
            let _ = soon("a close", client.close()).await;
            assert!(!guard.is_held(), "{cut:?}");
            scene.stage.free("x").await;
            scene.faulty.heal();
        }
    });
}

#[test]
fn a_store_that_forgot_everything_is_noticed() {
    let memory = Memory::new();
    let bed = leasehold_testkit::InProcess({
        let memory = memory.clone();
        move || Ok(memory.clone())
    });
    leasehold_testkit::stage::run(bed, "a_store_that_forgot_everything_is_noticed", |stage| async move {
        let client = stage.open(with_lease()).await;
        let guard = lock(&client.mutex("x")).await;
        let token = guard.token();
        let waiting = waiter(&stage.open(with_lease()).await.mutex("x"));
        stage.waiters("x", 1).await;
        memory.wipe();
        soon("the loss", guard.lost()).await;
        let next = granted(waiting).await;
        assert!(next.token() > token, "tokens rise past a store that forgot everything");
        next.release().await.expect("a release");
    });
}

/// Who believes that he holds the lock, in all clients.
#[derive(Clone, Default)]
struct Believers(Arc<Mutex<Vec<Arc<Guard>>>>);

impl Believers {
    /// A new holder looks at all others: none may believe in its own hold any more.
    fn enter(&self, guard: Guard, who: &str) -> Arc<Guard> {
        let mut all = self.0.lock().unwrap();
        let others: Vec<String> =
            all.iter().filter(|other| other.is_held()).map(|other| format!("{other:?}")).collect();
        let guard = Arc::new(guard);
        // It must hold before and after the look, or the look says nothing.
        if guard.is_held() {
            assert!(others.is_empty(), "{who} entered with {guard:?} while others hold: {others:?}");
        }
        all.push(guard.clone());
        guard
    }

    fn leave(&self, guard: &Arc<Guard>) {
        self.0.lock().unwrap().retain(|other| !Arc::ptr_eq(other, guard));
    }
}

async fn visit_for_ever(client: Client, who: String, believers: Believers) {
    loop {
        let Ok(guard) = client.mutex("x").lock().await else { continue };
        let guard = believers.enter(guard, &who);
        let _ = guard.protect(sleep(Duration::from_millis(7))).await;
        believers.leave(&guard);
        if let Some(guard) = Arc::into_inner(guard) {
            let _ = guard.release().await;
        }
    }
}

#[test]
fn clients_that_are_cut_off_again_and_again_never_hold_together() {
    on_a_faulty_store(|scene| async move {
        let lease = Duration::from_millis(150);
        let believers = Believers::default();
        let mut tasks = tokio::task::JoinSet::new();
        let mut stores = Vec::new();
        for n in 0..3 {
            let store = Faulty::new(scene.stage.store());
            let builder = Client::builder().default_lease(lease).retry_for(Duration::from_millis(100));
            let client = builder.label(format!("client {n}")).open(store.clone()).await.expect("a client");
            for task in 0..2 {
                tasks.spawn(visit_for_ever(client.clone(), format!("{n}/{task}"), believers.clone()));
            }
            stores.push(store);
        }
        for round in 0..12 {
            let store: &Arc<Faulty> = &stores[round % 3];
            store.cut(CUTS[round % 2]);
            sleep(lease + lease / 2).await;
            store.heal();
            sleep(Duration::from_millis(20)).await;
        }
        stop(tasks, believers, &scene.stage).await;
    });
}

async fn stop(mut tasks: tokio::task::JoinSet<()>, believers: Believers, stage: &Stage) {
    if let Some(Err(failed)) = tasks.try_join_next() {
        std::panic::resume_unwind(failed.into_panic());
    }
    tasks.shutdown().await;
    believers.0.lock().unwrap().clear();
    eventually("the lock is free", || async {
        let seen = stage.look("x").await;
        if seen.holders.is_empty() { Ok(()) } else { Err(seen) }
    })
    .await;
}

/// Every one that closes waits for the same goodbye.
#[test]
fn a_second_close_waits_for_the_first() {
    on_a_faulty_store(|scene| async move {
        let client = scene.weak(with_lease().default_lease(Duration::from_secs(60))).await;
        let guard = lock(&client.mutex("x")).await;
        scene.faulty.next(Op::Close, Fault::Delay(LATE));
        let mut first = Box::pin(client.close());
        assert!(poll!(&mut first).is_pending());
        soon("the second goodbye", client.close()).await.expect("a goodbye");
        assert!(scene.stage.look("x").await.holders.is_empty(), "it did not wait for the first");
        soon("the first goodbye", first).await.expect("a goodbye");
        assert_eq!(scene.faulty.calls(Op::Close), 1);
        drop(guard);
    });
}
