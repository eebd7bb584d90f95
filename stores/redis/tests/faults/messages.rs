//! Answers and pushes that never arrive: nothing counts twice, and nobody waits for ever.

use std::time::Duration;

use leasehold_client::{Budget, Client, Owner};
use leasehold_testkit::History;
use leasehold_testkit::wait::soon;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::common::play::{granted, lock, release, waiter};
use crate::scene::{Fault, on_a_scene};

#[test]
fn a_claim_whose_answer_was_lost_counts_once() {
    on_a_scene(|scene| async move {
        let weak = scene.weak(Client::builder()).await;
        let (rwlock, semaphore) = (weak.rwlock("x"), weak.semaphore("x", 3));
        let owner = Owner::new();
        let reentrant = weak.mutex("x").owner(owner).reentrant();
        for kind in 0..4 {
            scene.begin(Fault::LostAnswer);
            let guard = match kind {
                0 => lock(&reentrant).await,
                1 => soon("a read lock", rwlock.read()).await.expect("a read lock"),
                2 => soon("a write lock", rwlock.write()).await.expect("a write lock").into_guard(),
                _ => soon("permits", semaphore.acquire(2)).await.expect("permits"),
            };
            scene.felt(Fault::LostAnswer).await;
            let seen = scene.stage.look("x").await;
            assert_eq!((seen.holders.len(), guard.hold_count()), (1, 1), "{seen:#?}");
            if kind == 3 {
                let rest =
                    soon("the rest", semaphore.try_acquire(1)).await.expect("a try").expect("a permit");
                release(rest).await;
            }
            // One release frees it.
            release(guard).await;
            scene.stage.free("x").await;
        }
    });
}

#[test]
fn a_waiter_whose_push_was_lost_gets_in_by_asking() {
    on_a_scene(|scene| async move {
        let lease = Duration::from_millis(1500);
        let weak = scene.weak(Client::builder().default_lease(lease)).await.mutex("x");
        let strong = scene.strong().await.mutex("x");
        let (_, proxy) = scene.servers();
        for _ in 0..3 {
            let held = lock(&strong).await;
            let waiting = waiter(&weak);
            scene.stage.waiters("x", 1).await;
            let before = proxy.requests();
            scene.messages(false);
            release(held).await;
            scene.messages(true);
            release(granted(waiting).await).await;
            assert!(proxy.requests() > before + 1, "it asked, and then it released");
        }
    });
}

#[test]
fn five_hundred_waiters_all_get_in_though_messages_are_lost() {
    on_a_scene(|scene| async move {
        let history = History::default();
        let held = lock(&scene.strong().await.mutex("x")).await;
        let mut passing = JoinSet::new();
        for n in 0..5 {
            let builder = Client::builder().default_lease(Duration::from_secs(2));
            let client = scene.weak(builder.local_queue(Budget::off())).await;
            for m in 0..100 {
                let (mutex, history) = (client.mutex("x"), history.clone());
                passing.spawn(async move {
                    let guard = mutex.lock().await.expect("a lock");
                    let visit = history.enter(format!("{n}/{m}"), &guard);
                    drop(visit);
                    // A lease can end while nothing arrives: then the lock went to the next by that.
                    let _ = guard.release().await;
                });
            }
        }
        scene.stage.waiters("x", 500).await;
        release(held).await;
        let (_, proxy) = scene.servers();
        let mut faults = tokio::time::interval(Duration::from_millis(150));
        let mut count = 0;
        while !passing.is_empty() {
            tokio::select! {
                Some(done) = passing.join_next() => done.expect("a task"),
                _ = faults.tick() => {
                    count += 1;
                    match count {
                        1 | 3 => proxy.cut(),
                        2 | 4 => {
                            scene.messages(false);
                            sleep(Duration::from_millis(15)).await;
                            scene.messages(true);
                        }
                        5..100 => {}
                        _ => panic!("{} are still waiting", passing.len()),
                    }
                }
            }
        }
        assert_eq!(history.visits(), 500);
        history.check();
    });
}
