//! One leads, and everybody can see who.

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Leader, Leadership, Observe};
use leasehold_core::Kind;
use leasehold_core::view::Lost;

use super::{Waiter, granted};
use crate::stage::Stage;
use crate::wait::{eventually, soon};

fn candidate(leader: &Leader) -> Waiter<Leadership> {
    let leader = leader.clone();
    tokio::spawn(async move { leader.campaign().await })
}

async fn who_leads(leader: &Leader) -> Option<String> {
    let current = soon("a look", leader.current()).await.expect("a look");
    current.map(|entry| entry.label.as_str().to_owned())
}

/// The next candidate follows when the leader resigns, in the order of candidacy.
pub async fn one_leads_at_a_time_and_the_next_follows(stage: Arc<Stage>) {
    let (a, b, c) = (
        stage.client("a").await.leader("x"),
        stage.client("b").await.leader("x"),
        stage.client("c").await.leader("x"),
    );
    assert_eq!(who_leads(&a).await, None);
    let first = soon("a free office", a.campaign()).await.expect("a leader");
    assert_eq!(who_leads(&b).await.as_deref(), Some("a"));
    assert!(soon("a try", b.try_campaign()).await.expect("a try").is_none());
    let timed = soon("a timed try", b.campaign_within(Duration::from_millis(30))).await.expect("a timed try");
    assert!(timed.is_none());
    // Its place is given back after it has returned, and would be counted for that of the next.
    stage.waiters("x", 0).await;
    let second = candidate(&b);
    stage.waiters("x", 1).await;
    let third = candidate(&c);
    stage.waiters("x", 2).await;
    let token = first.token();
    first.resign().await.expect("a resignation");
    let second = granted(second).await;
    assert!(second.token() > token);
    assert_eq!(who_leads(&c).await.as_deref(), Some("b"));
    second.resign().await.expect("a resignation");
    granted(third).await.resign().await.expect("a resignation");
    eventually("nobody leads", || async {
        match who_leads(&a).await {
            None => Ok(()),
            Some(who) => Err(who),
        }
    })
    .await;
}

/// A leader that is voted out is told.
pub async fn a_leader_that_lost_its_office_is_told(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.leader("x"), stage.client("b").await.leader("x"));
    let first = soon("a free office", a.campaign()).await.expect("a leader");
    let second = candidate(&b);
    stage.waiters("x", 1).await;
    stage.observer().force_release("x", Some(first.token())).await.expect("a force release");
    assert_eq!(soon("the loss", first.lost()).await, Lost::Revoked);
    assert!(!first.is_held());
    granted(second).await.resign().await.expect("a resignation");
    assert!(first.resign().await.is_err());
}

async fn sees(observe: &mut Observe, expected: Option<&str>) {
    loop {
        let seen =
            soon("a change of leader", observe.next()).await.expect("a stream without end").expect("a look");
        if seen.as_ref().map(|entry| entry.label.as_str()) == expected {
            return;
        }
    }
}

/// An observer sees who leads now and every change that lasts.
pub async fn an_observer_sees_who_leads(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.leader("x"), stage.client("b").await.leader("x"));
    let mut early = soon("an observer", b.observe()).await.expect("an observer");
    let first = soon("a free office", a.campaign()).await.expect("a leader");
    sees(&mut early, Some("a")).await;
    let mut late = soon("an observer", b.observe()).await.expect("an observer");
    sees(&mut late, Some("a")).await;
    first.resign().await.expect("a resignation");
    let second = soon("a free office", b.campaign()).await.expect("a leader");
    for observer in [&mut early, &mut late] {
        sees(observer, Some("b")).await;
    }
    second.resign().await.expect("a resignation");
    for observer in [&mut early, &mut late] {
        sees(observer, None).await;
    }
}

/// A candidate that withdraws is no longer in the queue.
pub async fn a_candidate_can_withdraw(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.leader("x"), stage.client("b").await.leader("x"));
    let first = soon("a free office", a.campaign()).await.expect("a leader");
    let second = candidate(&b);
    stage.waiters("x", 1).await;
    second.abort();
    stage.waiters("x", 0).await;
    assert!(first.is_held());
    first.resign().await.expect("a resignation");
    stage.free("x").await;
}

/// Whoever waits or watches with a client is told when that is closed: streams end, claims fail.
pub async fn all_that_waits_ends_with_its_client(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let first = soon("a free office", a.leader("x").campaign()).await.expect("a leader");
    let mut observe = soon("an observer", b.leader("x").observe()).await.expect("an observer");
    sees(&mut observe, Some("a")).await;
    let mut watch = soon("a watcher", b.watch("")).await.expect("a watcher");
    let mut list = b.list("");
    let election = b.leader("x");
    let second = tokio::spawn(async move { election.campaign().await });
    stage.waiters("x", 1).await;
    soon("the end of the client", b.close()).await.expect("an end");
    let refused = soon("the candidate's answer", second).await.expect("no panic").expect_err("no office");
    assert_eq!(refused.kind(), Kind::Refused, "{refused}");
    while let Some(seen) = soon("the end of the observer", observe.next()).await {
        seen.expect("what was seen before the end");
    }
    while let Some(seen) = soon("the end of the watcher", watch.next()).await {
        seen.expect("what happened before the end");
    }
    let refused =
        soon("the list", list.next()).await.expect("an answer").expect_err("a client that is closed");
    assert_eq!(refused.kind(), Kind::Refused, "{refused}");
    assert!(soon("the end of the list", list.next()).await.is_none());
    assert!(b.leader("x").observe().await.is_err() && b.watch("").await.is_err());
    assert!(first.is_held());
    first.resign().await.expect("a resignation");
    stage.free("x").await;
}
