//! A claim is dropped after every number of polls while requests are slow or fail: nothing stays in the queue.

use std::time::Duration;

use futures_util::poll;
use leasehold_client::{Budget, Client, Guard};
use leasehold_core::{Order, Result};
use leasehold_testkit::Faulty;
use leasehold_testkit::faulty::{Fault, Odds, Op, random};
use leasehold_testkit::wait::soon;
use tokio::time::sleep;

use super::{FAULTS, lock, on_a_faulty_store, with_lease};

type Claim = std::pin::Pin<Box<dyn Future<Output = Result<Guard>> + Send>>;

fn claim(client: &Client, kind: u64) -> Claim {
    let (mutex, rw, semaphore) = (client.mutex("x"), client.rwlock("x"), client.semaphore("x", 2));
    Box::pin(async move {
        match kind % 6 {
            0 => mutex.lock().await,
            1 => mutex.order(Order::Barge).lock().await,
            2 => mutex.lease(Duration::from_secs(3)).lock().await,
            3 => rw.read().await,
            4 => mutex.order(Order::spin()).lock().await,
            _ => semaphore.acquire(1).await,
        }
    })
}

/// Polls a claim so many times, with time for the store in between, and drops it with whatever it got.
async fn poll_and_drop(mut claim: Claim, polls: u64, between: Duration) {
    for _ in 0..polls {
        if poll!(&mut claim).is_ready() {
            return;
        }
        sleep(between).await;
    }
}

#[test]
fn a_claim_dropped_while_its_join_is_under_way_leaves_nothing_behind() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones().await {
            for fault in FAULTS {
                for busy in [false, true] {
                    for kind in 0..6 {
                        let holder = if busy { Some(lock(&strong.mutex("x")).await) } else { None };
                        scene.faulty.next(Op::Join, fault);
                        for polls in 0..3 {
                            poll_and_drop(claim(&client, kind), polls, Duration::from_micros(300)).await;
                        }
                        scene.stage.waiters("x", 0).await;
                        if let Some(holder) = holder {
                            holder.release().await.expect("a release");
                        }
                        scene.stage.free("x").await;
                    }
                }
            }
        }
    });
}

#[test]
fn a_claim_dropped_before_a_slow_join_arrives_is_taken_back() {
    on_a_faulty_store(|scene| async move {
        for client in scene.weak_ones().await {
            scene.faulty.next(Op::Join, Fault::Delay(Duration::from_millis(80)));
            let mut waiting = claim(&client, 0);
            assert!(poll!(&mut waiting).is_pending());
            drop(waiting);
            // The next one gets it, whether it waits for the slow join or comes after it.
            let guard = soon("the next claim", client.mutex("x").lock()).await.expect("a lock");
            sleep(Duration::from_millis(120)).await;
            assert_eq!(scene.stage.look("x").await.holders.len(), 1);
            guard.release().await.expect("a release");
            scene.stage.free("x").await;
        }
    });
}

#[test]
fn a_late_join_whose_answer_is_lost_leaves_no_orphan() {
    on_a_faulty_store(|scene| async move {
        // A lease so long that nothing but the client can take the orphan away in time.
        for client in [
            scene.weak(Client::builder()).await,
            scene.weak(Client::builder().local_queue(Budget::off())).await,
        ] {
            scene.faulty.next(Op::Join, Fault::LateAndLost(Duration::from_millis(50)));
            let mut waiting = claim(&client, 0);
            assert!(poll!(&mut waiting).is_pending());
            drop(waiting);
            sleep(Duration::from_millis(100)).await;
            scene.stage.free("x").await;
        }
    });
}

#[test]
fn claims_dropped_at_any_poll_under_random_faults_leave_nothing_behind() {
    on_a_faulty_store(|scene| async move {
        let odds = Odds {
            error_before: 80,
            error_after: 80,
            delay: 400,
            lost_note: 200,
            longest: Duration::from_millis(3),
        };
        for seed in 0..40 {
            let store = Faulty::seeded(scene.stage.store(), seed, odds);
            let client =
                with_lease().label(format!("seed {seed}")).open(store.clone()).await.expect("a client");
            let mut dice = seed;
            let mut claims = tokio::task::JoinSet::new();
            for _ in 0..12 {
                let (kind, polls) = (random(&mut dice), random(&mut dice) % 8);
                let between = Duration::from_micros(random(&mut dice) % 900);
                claims.spawn(poll_and_drop(claim(&client, kind), polls, between));
            }
            while let Some(done) = soon("dropped claims", claims.join_next()).await {
                done.expect("a task");
            }
            store.calm();
            lock(&client.mutex("x")).await.release().await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            scene.stage.free("x").await;
        }
    });
}
