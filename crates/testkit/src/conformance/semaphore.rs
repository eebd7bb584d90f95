//! Never more permits out than there are (scenario 15).

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Guard, Semaphore};
use leasehold_core::{Error, Kind};
use tokio::task::{JoinSet, yield_now};

use super::{Waiter, granted};
use crate::history::History;
use crate::stage::Stage;
use crate::wait::{not_yet, soon};

fn waiter(semaphore: &Semaphore, permits: u32) -> Waiter {
    let semaphore = semaphore.clone();
    tokio::spawn(async move { semaphore.acquire(permits).await })
}

async fn take(semaphore: &Semaphore, permits: u32) -> Guard {
    soon("free permits", semaphore.try_acquire(permits)).await.expect("a try").expect("free permits")
}

async fn release(guards: impl IntoIterator<Item = Guard>) {
    for guard in guards {
        guard.release().await.expect("a release");
    }
}

/// Scenario 15.
pub async fn there_are_never_more_permits_out_than_the_limit(stage: Arc<Stage>) {
    let history = History::default();
    let mut all = JoinSet::new();
    for n in 0..5 {
        let client = if n % 2 == 0 { stage.direct("direct").await } else { stage.client("local").await };
        for task in 0..3 {
            let (semaphore, history) = (client.semaphore("x", 5), history.clone());
            all.spawn(async move {
                for round in 0..12 {
                    let guard = semaphore.acquire(1 + (round + task + n) % 4).await?;
                    let visit = history.enter(format!("{n}/{task}"), &guard);
                    yield_now().await;
                    drop(visit);
                    guard.release().await?;
                }
                Ok::<_, Error>(())
            });
        }
    }
    while let Some(done) = soon("permits for all", all.join_next()).await {
        done.expect("a task").expect("permits");
    }
    history.check();
}

/// Tasks of one client hold permits side by side.
pub async fn permits_are_held_together_up_to_the_limit(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.semaphore("x", 3), stage.client("b").await.semaphore("x", 3));
    let guards = [take(&a, 1).await, take(&a, 1).await, take(&b, 1).await];
    assert!(soon("a try", a.try_acquire(1)).await.expect("a try").is_none());
    let timed =
        soon("a timed try", b.acquire_within(1, Duration::from_millis(30))).await.expect("a timed try");
    assert!(timed.is_none());
    release(guards).await;
    release([take(&b, 3).await]).await;
}

/// Scenario 15: somebody who waits for many gets them though others come for one.
pub async fn a_claim_for_many_is_not_starved_by_claims_for_one(stage: Arc<Stage>) {
    let (a, b) = (stage.direct("a").await.semaphore("x", 3), stage.direct("b").await.semaphore("x", 3));
    let (one, two) = (take(&a, 1).await, take(&a, 1).await);
    let many = waiter(&b, 3);
    stage.waiters("x", 1).await;
    // One permit is free, and still nobody passes.
    let mut late = waiter(&a, 1);
    stage.waiters("x", 2).await;
    assert!(soon("a try", a.try_acquire(1)).await.expect("a try").is_none());
    one.release().await.expect("a release");
    not_yet("a claim for one passed the claim for many", &mut late).await;
    two.release().await.expect("a release");
    let guard = granted(many).await;
    guard.release().await.expect("a release");
    granted(late).await.release().await.expect("a release");
}

/// Scenario 15.
pub async fn raising_the_limit_wakes_those_it_lets_in(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let mut semaphore = client.semaphore("x", 1);
    let first = take(&semaphore, 1).await;
    let (second, mut third) = (waiter(&semaphore, 1), {
        stage.waiters("x", 1).await;
        waiter(&semaphore, 1)
    });
    stage.waiters("x", 2).await;
    soon("a new limit", semaphore.set_limit(2)).await.expect("a new limit");
    assert_eq!(semaphore.limit(), 2);
    let second = granted(second).await;
    not_yet("more got in than the new limit", &mut third).await;
    release([first, second]).await;
    release([granted(third).await]).await;
}

/// Nobody loses a permit that he holds.
pub async fn lowering_the_limit_takes_nothing_away(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let mut semaphore = client.semaphore("x", 3);
    let (one, two, three) = (take(&semaphore, 1).await, take(&semaphore, 1).await, take(&semaphore, 1).await);
    soon("a new limit", semaphore.set_limit(1)).await.expect("a new limit");
    assert!(one.is_held() && two.is_held() && three.is_held());
    one.release().await.expect("a release");
    two.release().await.expect("a release");
    assert!(soon("a try", semaphore.try_acquire(1)).await.expect("a try").is_none());
    three.release().await.expect("a release");
    release([take(&semaphore, 1).await]).await;
}

/// Whoever waits for more than that could never be served.
pub async fn the_limit_does_not_go_below_what_somebody_waits_for(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let mut semaphore = client.semaphore("x", 3);
    let guard = take(&semaphore, 1).await;
    let waiting = waiter(&semaphore, 3);
    stage.waiters("x", 1).await;
    let refused = semaphore.set_limit(2).await.expect_err("somebody waits for 3");
    assert_eq!(refused.kind(), Kind::Refused, "{refused}");
    let invalid = semaphore.set_limit(0).await.expect_err("no limit");
    assert_eq!(invalid.kind(), Kind::Invalid, "{invalid}");
    guard.release().await.expect("a release");
    release([granted(waiting).await]).await;
}

/// Scenario 15: two programs that believe in different limits are told so.
pub async fn a_mismatched_limit_is_refused(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = take(&a.semaphore("x", 3), 1).await;
    let refused = b.semaphore("x", 4).acquire(1).await.expect_err("another limit is refused");
    assert_eq!(refused.kind(), Kind::Mismatch, "{refused}");
    assert!(refused.to_string().contains('3') && refused.to_string().contains('4'), "{refused}");
    guard.release().await.expect("a release");
    // When nobody holds or wants permits any more, the next to come sets the limit.
    release([take(&b.semaphore("x", 4), 4).await]).await;
}

/// Bad numbers are refused before anything is sent.
pub async fn zero_permits_and_more_than_the_limit_are_invalid(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    for (limit, permits) in [(3, 0), (3, 4), (0, 1), (0, 0)] {
        let refused = client.semaphore("x", limit).acquire(permits).await.expect_err("a bad number");
        assert_eq!(refused.kind(), Kind::Invalid, "{permits} of {limit}: {refused}");
        assert!(refused.advice_text().is_some(), "{refused} says what to do");
    }
}

/// Dropped guards give their permits back; cancelled claims never had any.
pub async fn dropped_guards_and_cancelled_claims_give_permits_back(stage: Arc<Stage>) {
    let semaphore = stage.client("a").await.semaphore("x", 2);
    let guard = take(&semaphore, 2).await;
    let waiting = waiter(&semaphore, 2);
    stage.waiters("x", 1).await;
    waiting.abort();
    stage.waiters("x", 0).await;
    drop(guard);
    let all = soon("the permits", semaphore.acquire(2)).await.expect("permits");
    all.release().await.expect("a release");
}

/// A mutex and a semaphore of one name exclude each other like any others.
pub async fn a_mutex_and_permits_of_one_name_exclude_each_other(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let permits = take(&client.semaphore("x", 2), 1).await;
    assert!(soon("a try", client.mutex("x").try_lock()).await.expect("a try").is_none());
    permits.release().await.expect("a release");
    let guard = soon("a lock", client.mutex("x").lock()).await.expect("a lock");
    assert!(soon("a try", client.semaphore("x", 2).try_acquire(1)).await.expect("a try").is_none());
    guard.release().await.expect("a release");
}
