//! Leases that are longer or shorter than the session that keeps them.

use std::time::{Duration, Instant};

use leasehold_client::Client;
use leasehold_core::view::Lost;
use leasehold_testkit::wait::{eventually, soon};

use super::common;
use super::scene::{Scene, granted, lock, waiter};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_may_be_longer_than_a_session() {
    let scene = Scene::new("1s");
    let (a, b) = (scene.client("a").await, scene.client("b").await);
    let begun = Instant::now();
    let guard = soon("a lock", a.mutex("x").lease(Duration::from_secs(3)).lock()).await.expect("a lock");
    let waiting = waiter(&b.mutex("x"));
    assert_eq!(soon("the end", guard.lost()).await, Lost::Expired);
    assert!(begun.elapsed() >= Duration::from_millis(2900), "it ended after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(8), "it ended after {:?}", begun.elapsed());
    granted(waiting).await.release().await.expect("a release");
    drop(guard);
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_nobody_renews_ends_though_the_session_lives() {
    use leasehold_testkit::faulty::{Cut, Faulty};
    let scene = Scene::new("30s");
    let store = Faulty::new(common::open(&scene.url).expect("a store"));
    let builder = Client::builder().label("silent").default_lease(Duration::from_millis(700));
    let silent = builder.open(store.clone()).await.expect("a client");
    let guard = lock(&silent, "x").await;
    store.cut(Cut::Silent);
    let next = lock(&scene.client("b").await, "x").await;
    assert!(!guard.is_held());
    next.release().await.expect("a release");
    store.heal();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_passes_from_task_to_task_of_one_client_without_the_server() {
    let scene = Scene::with_proxy("10s");
    let client = scene.behind("a").await;
    let guard = lock(&client, "x").await;
    let waiting: Vec<_> = (0..20).map(|_| waiter(&client.mutex("x"))).collect();
    eventually("they wait", || async {
        if waiting.iter().all(|task| !task.is_finished()) { Ok(()) } else { Err(()) }
    })
    .await;
    let before = scene.proxy().requests();
    let mut token = guard.token();
    guard.release().await.expect("a release");
    for task in waiting {
        let guard = granted(task).await;
        assert!(guard.token() > token);
        token = guard.token();
        guard.release().await.expect("a release");
    }
    // The last release, a look whether others wait if it took long, signs of life.
    let requests = scene.proxy().requests() - before;
    assert!(requests < 15, "{requests} requests for 20 hand-overs");
}
