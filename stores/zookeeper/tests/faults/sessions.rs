//! Sessions that end before their time, or are cut off until they do.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_testkit::child::Role;
use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};
use leasehold_testkit::stage::Stage;
use leasehold_testkit::wait::{eventually, soon};

use super::common;
use super::scene::{Scene, granted, lock, open, waiter};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_ended_from_outside_is_told_and_replaced() {
    let scene = Scene::new("30s");
    let (a, b) = (scene.client("a").await, scene.client("b").await);
    let guard = lock(&a, "x").await;
    let session = scene.session_of("x");
    let waiting = waiter(&b.mutex("x"));
    scene.until("x", 2).await;
    let ended = Instant::now();
    scene.server.end_session(session);
    let next = granted(waiting).await;
    soon("the loss", guard.lost()).await;
    assert!(!guard.is_held());
    assert!(ended.elapsed() < Duration::from_secs(20), "not by the session's own end");
    assert!(next.token() > guard.token());
    assert!(guard.release().await.is_err(), "it was lost");
    assert_eq!(scene.nodes("x").len(), 1, "the late release harmed nobody");
    next.release().await.expect("a release");
    // The client has a new session by itself.
    lock(&a, "x").await.release().await.expect("a release");
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_session_was_ended_queues_again() {
    let scene = Scene::new("30s");
    let (a, b) = (scene.client("a").await, scene.client("b").await);
    let other = lock(&b, "y").await;
    let first = waiter(&a.mutex("y"));
    scene.until("y", 2).await;
    let held = lock(&a, "x").await;
    scene.server.end_session(scene.session_of("x"));
    soon("the loss", held.lost()).await;
    drop(held);
    // Its old place is gone with its session, and a new one is there.
    scene.until("y", 2).await;
    other.release().await.expect("a release");
    granted(first).await.release().await.expect("a release");
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_knows_it_before_others_hold() {
    let scene = Scene::with_proxy("2s");
    let (a, b) = (scene.behind("a").await, scene.client("b").await);
    let guard = lock(&a, "x").await;
    let waiting = waiter(&b.mutex("x"));
    scene.until("x", 2).await;
    scene.proxy().hang();
    let next = granted(waiting).await;
    assert!(!guard.is_held(), "two hold at once");
    soon("the loss", guard.lost()).await;
    next.release().await.expect("a release");
    scene.proxy().pass();
    lock(&a, "x").await.release().await.expect("a release");
    drop(guard);
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_silence_costs_nobody_a_lock() {
    let scene = Scene::with_proxy("10s");
    let (a, b) = (scene.behind("a").await, scene.client("b").await);
    let guard = lock(&a, "x").await;
    let waiting = waiter(&a.mutex("y"));
    let other = granted(waiting).await;
    for _ in 0..3 {
        scene.proxy().cut();
        eventually("it is connected again", || async {
            if scene.proxy().open_connections() > 0 { Ok(()) } else { Err(()) }
        })
        .await;
    }
    assert!(b.mutex("x").try_lock().await.expect("a try").is_none());
    assert!(guard.is_held() && other.is_held());
    guard.release().await.expect("a release of a lock that was held all the time");
    other.release().await.expect("a release");
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_server_ends_a_hold_by_the_clock_and_serves_again() {
    let server = ZooKeeper::start(ZooKeeperOptions::new());
    // It is certain for three quarters of this, so a second is left for a busy machine.
    let session = Duration::from_secs(4);
    let url = format!("{}?session={}s", server.url(), session.as_secs());
    let client = open(&url, "a").await.expect("a client");
    let guard = lock(&client, "x").await;
    server.pause();
    let paused = Instant::now();
    soon("the loss", guard.lost()).await;
    assert!(paused.elapsed() < session, "it took {:?}", paused.elapsed());
    assert!(!guard.is_held());
    let mutex = client.mutex("y");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    server.resume();
    granted(waiting).await.release().await.expect("a release");
    drop(guard);
    lock(&client, "x").await.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_finds_its_locks_again() {
    let server = ZooKeeper::start(ZooKeeperOptions::new());
    let url = format!("{}?session=20s", server.url());
    let (a, b) = (open(&url, "a").await.expect("a client"), open(&url, "b").await.expect("a client"));
    let guard = lock(&a, "x").await;
    let waiting = waiter(&b.mutex("x"));
    eventually("one waits", || async {
        let seen = a.inspect("x").await;
        if seen.is_ok_and(|seen| seen.waiters.len() == 1) { Ok(()) } else { Err(()) }
    })
    .await;
    server.kill();
    server.restart();
    assert!(guard.is_held());
    guard.release().await.expect("a release");
    granted(waiting).await.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_beyond_its_session_harms_nobody() {
    let stage = Arc::new(Stage::set(&common::Single).await);
    let mut child = stage.child(&Role::Lock("x".into())).expect("a process");
    let token = child.held().await;
    let client = stage.client("a").await;
    let waiting = waiter(&client.mutex("x"));
    stage.waiters("x", 1).await;
    signal("STOP", child.pid());
    let guard = granted(waiting).await;
    assert!(guard.token().get() > token);
    signal("CONT", child.pid());
    // It finds its session gone, and leaves the lock alone.
    let later = waiter(&stage.client("b").await.mutex("x"));
    stage.waiters("x", 1).await;
    assert!(guard.is_held());
    assert_eq!(stage.look("x").await.holders.len(), 1);
    guard.release().await.expect("a release");
    granted(later).await.release().await.expect("a release");
    child.kill().await;
    stage.nothing_is_left().await;
}

fn signal(name: &str, pid: u32) {
    let done = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().expect("kill");
    assert!(done.success());
}
