//! Many locks, all or none (scenario 13).

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_client::Part;
use leasehold_core::{Error, Kind};
use tokio::task::{JoinSet, yield_now};

use super::{granted, take};
use crate::faulty::random;
use crate::history::History;
use crate::stage::Stage;
use crate::wait::soon;

fn mutexes(names: &[&str]) -> Vec<Part> {
    names.iter().map(|name| Part::mutex(*name)).collect()
}

/// Scenario 13.
pub async fn one_busy_part_rolls_the_others_back(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let busy = take(&a, "y").await;
    let tried = soon("a try", b.multi(mutexes(&["x", "y", "z"])).try_lock()).await.expect("a try");
    assert!(tried.is_none());
    stage.free("x").await;
    stage.free("z").await;
    assert!(busy.is_held());
    busy.release().await.expect("a release");
    let all = soon("a try", b.multi(mutexes(&["x", "y", "z"])).try_lock())
        .await
        .expect("a try")
        .expect("all are free");
    assert_eq!(all.tokens().len(), 3);
    assert!(all.is_held());
    all.release().await.expect("a release");
}

/// Scenario 13: one budget of time for all of them.
pub async fn a_timed_multi_lock_keeps_one_budget_and_rolls_back(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let busy = [take(&a, "w").await, take(&a, "z").await];
    let (wait, start) = (Duration::from_millis(120), Instant::now());
    let timed = b.multi(mutexes(&["w", "x", "y", "z"])).lock_within(wait).await.expect("a timed try");
    assert!(timed.is_none());
    assert!(
        start.elapsed() >= wait && start.elapsed() < wait + Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
    for name in ["x", "y"] {
        stage.free(name).await;
    }
    for (name, guard) in ["w", "z"].into_iter().zip(busy) {
        stage.waiters(name, 0).await;
        guard.release().await.expect("a release");
    }
}

/// A cancelled multi-lock rolls back what it had got.
pub async fn a_cancelled_multi_lock_rolls_back(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let busy = take(&a, "z").await;
    let multi = b.multi(mutexes(&["x", "y", "z"]));
    let waiting = tokio::spawn(async move { multi.lock().await });
    stage.waiters("z", 1).await;
    waiting.abort();
    stage.waiters("z", 0).await;
    stage.free("x").await;
    stage.free("y").await;
    busy.release().await.expect("a release");
}

/// Scenario 13.
pub async fn ten_clients_with_overlapping_sets_never_deadlock(stage: Arc<Stage>) {
    let history = History::default();
    let mut all = JoinSet::new();
    for n in 0..10u64 {
        let client = if n % 2 == 0 { stage.client("local").await } else { stage.direct("direct").await };
        let history = history.clone();
        all.spawn(async move {
            let mut seed = n;
            for _ in 0..8 {
                let mut names = ["a", "b", "c", "d", "e"].to_vec();
                for at in (1..names.len()).rev() {
                    names.swap(at, random(&mut seed) as usize % (at + 1));
                }
                names.truncate(2 + random(&mut seed) as usize % 3);
                let guard = client.multi(mutexes(&names)).lock().await?;
                let visits: Vec<_> = guard.guards().iter().map(|part| history.enter(n, part)).collect();
                yield_now().await;
                drop(visits);
                guard.release().await?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(done) = soon("ten clients", all.join_next()).await {
        done.expect("a task").expect("a multi-lock");
    }
    history.check();
}

/// Any mix of kinds under one guard.
pub async fn a_mix_of_kinds_is_taken_together(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let parts = [Part::mutex("m"), Part::read("r"), Part::write("w"), Part::permits("p", 2, 3)];
    let guard = soon("a mix", a.multi(parts).lock()).await.expect("a multi-lock");
    assert_eq!(guard.tokens().len(), 4);
    assert!(soon("a try", b.mutex("m").try_lock()).await.expect("a try").is_none());
    assert!(soon("a try", b.rwlock("w").try_read()).await.expect("a try").is_none());
    assert!(soon("a try", b.semaphore("p", 3).try_acquire(2)).await.expect("a try").is_none());
    let beside = soon("a try", b.rwlock("r").try_read()).await.expect("a try").expect("a read beside a read");
    beside.release().await.expect("a release");
    guard.release().await.expect("a release");
}

/// Scenario 13: one part that was lost is told, and the others are still given back.
pub async fn one_lost_part_is_told_and_the_others_are_given_back(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guard =
        soon("a multi-lock", client.multi(mutexes(&["x", "y", "z"])).lock()).await.expect("a multi-lock");
    stage.observer().force_release("y", None).await.expect("a force release");
    soon("the loss", guard.lost()).await;
    assert!(!guard.is_held());
    let late = guard.release().await.expect_err("a part was taken away");
    assert_eq!(late.kind(), Kind::Lost, "{late}");
    stage.free("x").await;
    stage.free("z").await;
}

/// Bad input is refused before anything is taken.
pub async fn a_bad_part_is_invalid_and_takes_nothing(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    for bad in [Part::mutex(""), Part::permits("p", 0, 3), Part::permits("p", 4, 3)] {
        let refused = client.multi([Part::mutex("x"), bad]).lock().await.expect_err("a bad part");
        assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
    }
    assert_eq!(stage.all().await, []);
}

/// The same name twice is one lock or an error, and never a deadlock with itself.
pub async fn the_same_name_twice_does_not_deadlock(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    match soon("the same name twice", client.multi(mutexes(&["x", "x"])).lock()).await {
        Ok(guard) => guard.release().await.expect("a release"),
        Err(refused) => assert!(matches!(refused.kind(), Kind::Invalid | Kind::Refused), "{refused}"),
    }
    stage.free("x").await;
}

/// A waiting multi-lock gets in when the last part is freed.
pub async fn a_waiting_multi_lock_gets_in(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (one, two) = (take(&a, "x").await, take(&a, "y").await);
    let multi = b.multi(mutexes(&["y", "x"]));
    let waiting = tokio::spawn(async move { multi.lock().await });
    one.release().await.expect("a release");
    stage.waiters("y", 1).await;
    two.release().await.expect("a release");
    let guard = granted(waiting).await;
    assert!(guard.remaining().is_none_or(|left| left > Duration::ZERO));
    guard.release().await.expect("a release");
}

/// While one part is waited for, the others are free for the rest of the world.
pub async fn a_waiting_multi_lock_keeps_nothing_from_others(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    for busy in ["x", "y", "z"] {
        let one = take(&a, busy).await;
        let multi = b.multi(mutexes(&["x", "y", "z"]));
        let waiting = tokio::spawn(async move { multi.lock().await });
        stage.waiters(busy, 1).await;
        for other in ["x", "y", "z"].into_iter().filter(|other| *other != busy) {
            stage.free(other).await;
            let taken = soon("a try", a.mutex(other).try_lock()).await.expect("a try").expect("it is free");
            taken.release().await.expect("a release");
        }
        one.release().await.expect("a release");
        let all = granted(waiting).await;
        assert_eq!(all.tokens().len(), 3);
        all.release().await.expect("a release");
    }
}

/// Locks that are each taken again and again, and a set of them that is had all the same.
pub async fn a_multi_lock_gets_in_where_each_part_is_in_demand(stage: Arc<Stage>) {
    let mut crowd = JoinSet::new();
    for name in ["x", "y", "z"] {
        for _ in 0..2 {
            let client = stage.client("crowd").await;
            crowd.spawn(async move {
                loop {
                    let guard = client.mutex(name).lock().await.expect("a lock");
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    guard.release().await.expect("a release");
                }
            });
        }
    }
    let client = stage.client("set").await;
    for _ in 0..3 {
        let all =
            soon("all of them", client.multi(mutexes(&["z", "y", "x"])).lock()).await.expect("a multi-lock");
        assert!(all.is_held());
        all.release().await.expect("a release");
    }
    crowd.shutdown().await;
    for name in ["x", "y", "z"] {
        stage.free(name).await;
    }
}
