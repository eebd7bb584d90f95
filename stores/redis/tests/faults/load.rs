//! A server that dies again and again under load, and keeps its data: nothing is lost and nothing is double.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_client::{Budget, Client, Lost};
use leasehold_testkit::History;
use leasehold_testkit::wait::{eventually, soon};
use tokio::task::JoinSet;

use crate::common::play::{lock, release};
use crate::scene::{Fault, on_a_scene};

#[test]
fn a_counter_stays_exact_while_the_server_is_killed_again_and_again() {
    on_a_scene(|scene| async move {
        let (history, count) = (History::default(), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for n in 0..4 {
            let budget = if n % 2 == 0 { Budget::default() } else { Budget::off() };
            let client = scene.weak(Client::builder().local_queue(budget)).await;
            for task in 0..2 {
                let (mutex, history, count) = (client.mutex("x"), history.clone(), count.clone());
                tasks.spawn(async move {
                    for _ in 0..60 {
                        let guard = mutex.lock().await.expect("a lock");
                        let visit = history.enter(format!("{n}/{task}"), &guard);
                        // Not atomic: only the lock keeps it exact.
                        let seen = count.load(Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        count.store(seen + 1, Ordering::Relaxed);
                        drop(visit);
                        guard.release().await.expect("a release");
                    }
                });
            }
        }
        for round in 1..=4 {
            eventually("it goes on", || async {
                let now = count.load(Ordering::Relaxed);
                if now >= round * 80 { Ok(()) } else { Err(now) }
            })
            .await;
            scene.begin(Fault::Killed);
            scene.end(Fault::Killed);
        }
        while let Some(finished) = soon("the counting", tasks.join_next()).await {
            finished.expect("a task");
        }
        assert_eq!(count.load(Ordering::Relaxed), 480);
        history.check();
    });
}

#[test]
fn a_lock_that_was_got_during_a_restart_is_renewed() {
    on_a_scene(|scene| async move {
        let lease = Duration::from_millis(900);
        let mutex = scene.weak(Client::builder().default_lease(lease)).await.mutex("x");
        release(lock(&mutex).await).await;
        scene.begin(Fault::Killed);
        let claim = tokio::spawn(async move { mutex.lock().await });
        scene.felt(Fault::Killed).await;
        scene.end(Fault::Killed);
        let guard = soon("a lock", claim).await.expect("a task").expect("a lock");
        let lost = tokio::time::timeout(lease * 3, guard.lost()).await;
        assert!(lost.is_err(), "it was lost: {}", lost.unwrap_or(Lost::Expired));
        release(guard).await;
    });
}
