//! Releases of many tasks at a time, which travel together: what goes wrong with one of them must not go wrong with the others,
//! and what goes wrong with all must be made good for each.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_client::{Client, Guard};
use leasehold_core::{Kind, Result};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::zookeeper::jute::op;
use leasehold_testkit::wait::soon;

use super::scene::{Scene, lock};

const LOCKS: usize = 32;

/// Not the first ones: with so few requests under way they leave alone.
const TOUCHED: [usize; 3] = [10, 20, 31];

async fn hold_all(client: &Client) -> Vec<Guard> {
    let mutexes: Vec<_> = (0..LOCKS).map(|n| client.mutex(format!("{n}"))).collect();
    let held = soon("all locks", join_all(mutexes.iter().map(|mutex| mutex.lock()))).await;
    held.into_iter().map(|guard| guard.expect("a lock")).collect()
}

async fn release_all(guards: Vec<Guard>) -> Vec<Result<()>> {
    soon("all releases", join_all(guards.into_iter().map(Guard::release))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_many_releases_is_no_error_and_leaves_nothing() {
    let scene = Scene::with_proxy("20s");
    let (a, b) = (scene.behind("a").await, scene.client("b").await);
    let faults: [fn(&Proxy); 2] =
        [|proxy| proxy.lose_answer_to(op::MULTI), |proxy| proxy.cut_before(op::MULTI)];
    for fault in faults {
        let guards = hold_all(&a).await;
        fault(scene.proxy());
        for released in release_all(guards).await {
            released.expect("it was released");
        }
        assert_eq!(scene.proxy().faults_left(), 0, "many releases are one request");
        for n in 0..LOCKS {
            lock(&b, &n.to_string()).await.release().await.expect("a release");
        }
    }
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_somebody_deleted_is_told_to_its_owner_alone() {
    let scene = Scene::with_proxy("20s");
    let a = scene.behind("a").await;
    let guards = hold_all(&a).await;
    // The news of it comes late, so the client asks for what is gone.
    scene.proxy().delay(Duration::from_millis(300));
    let mut by_hand = scene.server.connect().expect("a connection");
    for n in TOUCHED {
        let node = scene.nodes(&n.to_string()).pop().expect("an entry");
        assert!(by_hand.delete(&format!("/{}/{n}/{node}", scene.root)).expect("an answer"));
    }
    for (n, released) in release_all(guards).await.into_iter().enumerate() {
        match released {
            Ok(()) => assert!(!TOUCHED.contains(&n), "{n} was deleted"),
            Err(error) => {
                assert!(TOUCHED.contains(&n), "{n} was there: {error}");
                assert_eq!(error.kind(), Kind::Lost, "{error}");
            }
        }
        assert_eq!(scene.nodes(&n.to_string()), Vec::<String>::new(), "it was released");
    }
    assert!(scene.proxy().requests_of(op::MULTI) >= 1, "many releases are one request");
    scene.is_clean().await;
}
