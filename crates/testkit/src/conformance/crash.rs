//! Processes that are killed while they hold or wait, on stores that reach other processes.
//!
//! A store says in its `Traits` how a death is noticed; "in time" here means at once, or within a lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::traits::Death;

use super::{granted, take, waiter};
use crate::child::{LEASE, Role};
use crate::stage::Stage;
use crate::wait::soon;

/// How long a death may go unnoticed, with room for a loaded machine.
pub(super) fn in_time(stage: &Stage) -> Duration {
    let room = Duration::from_secs(3);
    match stage.traits().death {
        Death::AtOnce => room,
        Death::LeaseEnd => LEASE + room,
    }
}

/// Scenario 6.
pub async fn a_killed_holder_frees_its_lock_in_time(stage: Arc<Stage>) {
    let Some(mut child) = stage.child(&Role::Lock("x".into())) else { return };
    let token = child.held().await;
    let client = stage.client("a").await;
    let waiting = waiter(&client.mutex("x"));
    stage.waiters("x", 1).await;
    child.kill().await;
    let dead = Instant::now();
    let guard = granted(waiting).await;
    assert!(dead.elapsed() < in_time(&stage), "it took {:?} to notice a death", dead.elapsed());
    assert!(guard.token().get() > token, "tokens rise past a death");
    guard.release().await.expect("a release");
}

/// Scenario 6, when nobody waited at the time.
pub async fn a_lock_whose_holder_was_killed_can_be_taken(stage: Arc<Stage>) {
    let Some(mut child) = stage.child(&Role::Lock("x".into())) else { return };
    child.held().await;
    child.kill().await;
    let guard =
        soon("a dead holder's lock", stage.client("a").await.mutex("x").lock()).await.expect("a lock");
    guard.release().await.expect("a release");
}

/// Scenario 10: a waiter that was killed is skipped.
pub async fn a_killed_waiter_is_skipped(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guard = take(&client, "x").await;
    let Some(first) = stage.child(&Role::Lock("x".into())) else {
        return guard.release().await.expect("a release");
    };
    stage.waiters("x", 1).await;
    let mut second = stage.child(&Role::Lock("x".into())).expect("another process");
    stage.waiters("x", 2).await;
    first.kill().await;
    let dead = Instant::now();
    guard.release().await.expect("a release");
    second.held().await;
    assert!(dead.elapsed() < in_time(&stage), "it took {:?} to notice a death", dead.elapsed());
    second.release().await;
    second.end().await;
}

/// Scenario 14: a crashed reader doesn't block writers for ever, and other readers are left alone.
pub async fn a_killed_reader_does_not_block_a_writer(stage: Arc<Stage>) {
    let Some(mut child) = stage.child(&Role::Read("x".into())) else { return };
    child.held().await;
    let (a, b) = (stage.client("a").await.rwlock("x"), stage.client("b").await.rwlock("x"));
    let beside = soon("a read lock", a.read()).await.expect("a read lock");
    let writing = tokio::spawn(async move { b.write().await });
    stage.waiters("x", 1).await;
    child.kill().await;
    stage.holders("x", 1).await;
    assert!(beside.is_held(), "one reader's death is not another's");
    beside.release().await.expect("a release");
    granted(writing).await.into_guard().release().await.expect("a release");
}

/// Scenario 15.
pub async fn a_killed_holders_permits_return(stage: Arc<Stage>) {
    let Some(mut child) = stage.child(&Role::Permits("x".into(), 2, 3)) else { return };
    child.held().await;
    let semaphore = stage.client("a").await.semaphore("x", 3);
    let beside = soon("a free permit", semaphore.acquire(1)).await.expect("a permit");
    assert!(soon("a try", semaphore.try_acquire(1)).await.expect("a try").is_none());
    child.kill().await;
    let two = soon("the dead holder's permits", semaphore.acquire(2)).await.expect("permits");
    beside.release().await.expect("a release");
    two.release().await.expect("a release");
}

/// Two processes hand a lock to and fro.
pub async fn a_lock_passes_between_processes(stage: Arc<Stage>) {
    let Some(mut child) = stage.child(&Role::Lock("x".into())) else { return };
    let token = child.held().await;
    let client = stage.client("a").await;
    let waiting = waiter(&client.mutex("x"));
    stage.waiters("x", 1).await;
    child.release().await;
    let guard = granted(waiting).await;
    assert!(guard.token().get() > token);
    let mut next = stage.child(&Role::Lock("x".into())).expect("another process");
    stage.waiters("x", 1).await;
    guard.release().await.expect("a release");
    assert!(next.held().await > token);
    next.release().await;
    next.end().await;
    child.end().await;
}

/// Scenario 7, over processes.
pub async fn a_counter_stays_exact_over_processes(stage: Arc<Stage>) {
    count(stage, 4, 40, 0).await;
}

/// Scenario 7 and 6 together: some are killed at random moments, and no count is lost.
pub async fn a_counter_stays_exact_while_processes_are_killed(stage: Arc<Stage>) {
    count(stage, 4, 30, 2).await;
}

async fn count(stage: Arc<Stage>, processes: u32, times: u32, kills: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("number"), "0").expect("a number");
    std::fs::write(folder.path().join("log"), "").expect("a log");
    let role = Role::Count { name: "counter".into(), folder: folder.path().into(), times };
    let mut victims = Vec::new();
    for _ in 0..kills {
        let Some(child) = stage.child(&role) else { return };
        victims.push(child);
    }
    let mut children = Vec::new();
    for _ in 0..processes {
        let Some(child) = stage.child(&role) else { return };
        children.push(child);
    }
    let mut killed = Vec::new();
    for (n, mut victim) in victims.into_iter().enumerate() {
        // In the middle of their work, wherever that is.
        for _ in 0..=5 * n + 3 {
            victim.hear().await;
        }
        killed.push(victim.pid());
        victim.kill().await;
    }
    for mut child in children {
        while child.hear().await.expect("a child that lives") != "done" {}
        child.end().await;
    }
    check_the_log(folder.path(), &killed, processes * times);
}

/// Each line is one more than the line before; a killed process may have noted a number and not written it.
fn check_the_log(folder: &std::path::Path, killed: &[u32], least: u32) {
    let log = std::fs::read_to_string(folder.join("log")).expect("the log");
    let mut last = (0, 0);
    for line in log.lines() {
        let (pid, number) = line.split_once(' ').expect("a line of the log");
        let (pid, number): (u32, u32) = (pid.parse().expect("a pid"), number.parse().expect("a number"));
        let repeats = number == last.1 && killed.contains(&last.0);
        assert!(number == last.1 + 1 || repeats, "after {last:?} came {line:?}:\n{log}");
        last = (pid, number);
    }
    let number: u32 =
        std::fs::read_to_string(folder.join("number")).expect("the number").parse().expect("a number");
    assert!(
        number == last.1 || killed.contains(&last.0),
        "the log ends with {last:?}, and the number is {number}"
    );
    assert!(number >= least, "{number} were counted, at least {least} had to be");
    if killed.is_empty() {
        assert_eq!(number, least);
    }
}
