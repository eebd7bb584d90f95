//! Leases that are longer or shorter than the session that keeps them.

use std::time::{Duration, Instant};

use leasehold_client::Client;
use leasehold_core::view::Lost;
use leasehold_testkit::wait::soon;

use super::common;
use super::scene::{Scene, granted, lock, waiter};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_may_be_longer_than_a_session() {
    let scene = Scene::new("2s");
    let (a, b) = (scene.client("a").await, scene.client("b").await);
    let begun = Instant::now();
    let guard = soon("a lock", a.mutex("x").lease(Duration::from_secs(4)).lock()).await.expect("a lock");
    let waiting = waiter(&b.mutex("x"));
    assert_eq!(soon("the end", guard.lost()).await, Lost::Expired);
    assert!(begun.elapsed() >= Duration::from_millis(3900), "it ended after {:?}", begun.elapsed());
    granted(waiting).await.release().await.expect("a release");
    drop(guard);
    scene.is_clean().await;
}

/// What the session is certain of, counted from a request of long ago, may look as long as the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_longer_than_a_session_starts_when_the_lock_is_got() {
    let scene = Scene::new("4s");
    let (a, b) = (scene.client("a").await, scene.client("b").await);
    let lease = Duration::from_millis(4500);
    let guard = lock(&a, "x").await;
    let waiting = waiter(&b.mutex("x").lease(lease));
    scene.until("x", 2).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let released = Instant::now();
    guard.release().await.expect("a release");
    let guard = granted(waiting).await;
    let left = guard.lease_left().expect("a fixed lease has an end");
    assert!(left <= lease && left + released.elapsed() > lease - Duration::from_millis(100), "{left:?}");
    assert!(guard.remaining().is_some_and(|sure| sure <= Duration::from_secs(3)), "{:?}", guard.remaining());
    assert_eq!(soon("the end", guard.lost()).await, Lost::Expired);
    let lasted = released.elapsed();
    assert!(lasted > lease - Duration::from_millis(100) && lasted < lease * 2, "it lasted for {lasted:?}");
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
    let endless = leasehold_client::Budget { handovers: 1_000_000, time: Duration::from_secs(60) };
    let builder = Client::builder().label("a").local_queue(endless);
    let store = common::open(&scene.behind_url()).expect("a store");
    let client = builder.open(store).await.expect("a client");
    let guard = lock(&client, "x").await;
    let first = guard.token();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mutex = client.mutex("x");
        let mut claim = Box::pin(async move {
            let guard = mutex.lock().await.expect("a lock");
            let token = guard.token();
            guard.release().await.expect("a release");
            token
        });
        // It stands in its client's queue from its first poll on.
        assert!(futures_util::poll!(&mut claim).is_pending());
        waiting.spawn(claim);
    }
    let before = scene.proxy().requests();
    guard.release().await.expect("a release");
    let mut tokens = soon("the hand-overs", waiting.join_all()).await;
    tokens.sort();
    tokens.dedup();
    assert!(tokens.len() == 20 && tokens[0] > first, "{tokens:?}");
    // The last release, and a watch and a few signs of life if it took long.
    let requests = scene.proxy().requests() - before;
    assert!(requests < 15, "{requests} requests for 20 hand-overs");
}

/// A block of tokens that is used up is not stretched into those of whoever comes next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_stay_below_the_next_clients_after_thousands_of_hand_overs() {
    let scene = Scene::new("10s");
    let endless = leasehold_client::Budget { handovers: 1_000_000, time: Duration::from_secs(60) };
    let builder = Client::builder().label("a").local_queue(endless);
    let a = builder.open(common::open(&scene.url).expect("a store")).await.expect("a client");
    let b = scene.client("b").await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let mutex = a.mutex("x");
        tasks.spawn(async move {
            let mut highest = leasehold_core::Token(0);
            for _ in 0..250 {
                let guard = mutex.lock().await.expect("a lock");
                highest = guard.token();
                tokio::task::yield_now().await;
                guard.release().await.expect("a release");
            }
            highest
        });
    }
    let highest = tasks.join_all().await.into_iter().max().expect("tokens");
    let guard = lock(&b, "x").await;
    assert!(guard.token() > highest, "{} is not above {highest}", guard.token());
    guard.release().await.expect("a release");
}
