//! Everything goes wrong at random, and the lock is still a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_client::{Budget, Client};
use leasehold_core::{Error, Order};
use leasehold_testkit::faulty::Odds;
use leasehold_testkit::wait::soon;
use leasehold_testkit::{Faulty, History};
use tokio::task::{JoinSet, yield_now};

use super::on_a_faulty_store;

const ODDS: Odds =
    Odds { error_before: 60, error_after: 60, delay: 200, lost_note: 100, longest: Duration::from_millis(2) };

#[test]
fn a_counter_stays_exact_under_random_faults() {
    on_a_faulty_store(|scene| async move {
        for seed in 0..6 {
            let (number, history) = (Arc::new(AtomicU32::new(0)), History::default());
            let mut all = JoinSet::new();
            for n in 0..3u64 {
                let store = Faulty::seeded(scene.stage.store(), seed * 10 + n, ODDS);
                let budget = if n == 0 { Budget::off() } else { Budget::default() };
                // Short enough that a lost note is soon found, long enough that no hold is lost here.
                let builder =
                    Client::builder().default_lease(Duration::from_millis(1500)).local_queue(budget);
                let client = builder.label(format!("client {n}")).open(store).await.expect("a client");
                for task in 0..3 {
                    let order = if task == 2 { Order::Barge } else { Order::Queue };
                    let mutex = client.mutex("x").order(order);
                    let (number, history) = (number.clone(), history.clone());
                    all.spawn(async move {
                        for _ in 0..5 {
                            let guard = mutex.lock().await?;
                            let visit = history.enter(format!("{n}/{task}"), &guard);
                            let before = number.load(Ordering::SeqCst);
                            yield_now().await;
                            number.store(before + 1, Ordering::SeqCst);
                            drop(visit);
                            guard.release().await?;
                        }
                        Ok::<_, Error>(())
                    });
                }
            }
            while let Some(done) = soon("the counting", all.join_next()).await {
                done.expect("a task").unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            }
            history.check();
            assert_eq!(number.load(Ordering::SeqCst), 3 * 3 * 5, "seed {seed}");
            scene.stage.free("x").await;
        }
    });
}
