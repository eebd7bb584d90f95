//! Watches: none is left, and too many break nothing.

use std::time::Duration;

use leasehold_client::{Budget, Client};
use leasehold_testkit::wait::{eventually, soon};
use tokio::task::JoinSet;

use super::common;
use super::scene::{Scene, granted, lock, waiter};

async fn watches(scene: &Scene, count: usize) {
    let root = format!("/{}/", scene.root);
    eventually(&format!("{count} nodes are watched"), || async {
        let watched: Vec<String> =
            scene.server.watches().into_keys().filter(|path| path.starts_with(&root)).collect();
        if watched.len() == count { Ok(()) } else { Err(watched) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_waiters_leave_no_node_and_no_watch() {
    let scene = Scene::new("10s");
    let builder = Client::builder().label("a").local_queue(Budget::off());
    let client = builder.open(common::open(&scene.url).expect("a store")).await.expect("a client");
    let guard = lock(&client, "x").await;
    let tasks: Vec<_> = (0..10).map(|_| waiter(&client.mutex("x"))).collect();
    scene.until("x", 11).await;
    // Each waits for the one before it, and each watches itself.
    watches(&scene, 11).await;
    tasks.iter().for_each(|task| task.abort());
    scene.until("x", 1).await;
    watches(&scene, 1).await;
    guard.release().await.expect("a release");
    watches(&scene, 0).await;
    scene.is_clean().await;
}

/// The client crate can't reconnect a session that watches more than 128 KiB of paths.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_waiters_than_can_be_watched_survive_a_reconnect() {
    let scene = Scene::with_proxy("20s");
    let (holder, client) = (scene.client("holder").await, scene.behind("a").await);
    // As long as names get: three bytes in the path for each of theirs.
    let names: Vec<String> = (0..60).map(|n| format!("{n}{}", "/".repeat(1000))).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(lock(&holder, name).await);
    }
    let mut waiting = JoinSet::new();
    for name in &names {
        let mutex = client.mutex(name);
        waiting.spawn(async move { mutex.lock().await?.release().await });
    }
    eventually("all wait", || async {
        let mut list = holder.list("");
        let mut count = 0;
        while let Some(seen) = list.next().await {
            count += seen.expect("a list").waiters.len();
        }
        if count == names.len() { Ok(()) } else { Err(count) }
    })
    .await;
    scene.proxy().cut();
    // Only a client that is connected again can look.
    soon("a look", client.inspect(&names[0])).await.expect("a look");
    for guard in guards {
        guard.release().await.expect("a release");
    }
    let all = async {
        while let Some(done) = waiting.join_next().await {
            done.expect("a task").expect("a lock");
        }
    };
    tokio::time::timeout(Duration::from_secs(15), all)
        .await
        .expect("all get in, in the session they began with");
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_on_events_survives_a_cut_connection() {
    use leasehold_core::view::Happened;
    let scene = Scene::with_proxy("20s");
    let (observer, a) = (scene.behind("observer").await, scene.client("a").await);
    let mut events = observer.watch("").await.expect("a watch");
    scene.proxy().cut();
    let interrupted = leasehold_testkit::wait::soon("the news of it", events.next()).await.expect("a stream");
    assert!(interrupted.is_err(), "{interrupted:?}");
    let guard = lock(&a, "x").await;
    loop {
        let event = leasehold_testkit::wait::soon("an event", events.next()).await.expect("a stream");
        if event.is_ok_and(|event| event.what == Happened::Acquired && event.label.as_str() == "a") {
            break;
        }
    }
    guard.release().await.expect("a release");
    let waiting = waiter(&a.mutex("x"));
    granted(waiting).await.release().await.expect("a release");
}

/// Those that wait for permits wait for each other: each says when it got in, so that the next looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_release_of_many_permits_lets_in_all_that_fit() {
    let scene = Scene::new("10s");
    let client = scene.client("a").await;
    let semaphore = client.semaphore("x", 3);
    let all = semaphore.acquire(3).await.expect("permits");
    let mut waiting = Vec::new();
    for n in 0..3 {
        let semaphore = semaphore.clone();
        waiting.push(tokio::spawn(async move { semaphore.acquire(1).await }));
        scene.until("x", n + 2).await;
    }
    all.release().await.expect("a release");
    let mut guards = Vec::new();
    for task in waiting {
        guards.push(granted(task).await);
    }
    assert!(guards.iter().all(|guard| guard.is_held()), "all three hold at once");
    for guard in guards {
        guard.release().await.expect("a release");
    }
    scene.is_clean().await;
}
