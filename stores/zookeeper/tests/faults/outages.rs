//! Outages that pass before the session is over: nobody loses a lock by them.

use std::time::Duration;

use leasehold_client::{Client, Guard};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::wait::eventually;
use tokio::time::sleep;

use super::common;
use super::scene::{Scene, lock};

const SESSION: Duration = Duration::from_secs(10);

/// Holders that were granted one after the other, so that their renewals are due at different times.
async fn holders(scene: &Scene, phase: Duration) -> Vec<(Client, Guard)> {
    let mut holders = Vec::new();
    for n in 0..6 {
        let client = scene.behind(&format!("{n}")).await;
        let guard = lock(&client, &format!("x{n}")).await;
        holders.push((client, guard));
        sleep(phase / 6).await;
    }
    holders
}

/// What everybody holds after an outage, and for how long it is renewed again.
async fn all_are_held(scene: &Scene, holders: Vec<(Client, Guard)>) {
    for (_, guard) in &holders {
        assert!(guard.is_held(), "{} was lost by an outage of half a session", guard.name());
    }
    for (_, guard) in holders {
        eventually("it is renewed", || async {
            let left = guard.remaining().expect("an end");
            if left > SESSION / 2 { Ok(()) } else { Err((guard.name().to_owned(), left)) }
        })
        .await;
        guard.release().await.expect("a release of a lock that was held all the time");
    }
    scene.is_clean().await;
}

async fn an_outage(begin: fn(&Proxy)) {
    let scene = Scene::with_proxy("10s");
    let holders = holders(&scene, SESSION / 3).await;
    begin(scene.proxy());
    sleep(SESSION / 2).await;
    scene.proxy().pass();
    // Whether they are held is asked when all would know of a loss: before, what is certain may still last.
    sleep(SESSION / 4).await;
    all_are_held(&scene, holders).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_connections_for_half_a_session_costs_no_lock() {
    an_outage(Proxy::refuse).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_silent_for_half_a_session_costs_no_lock() {
    an_outage(Proxy::hang).await;
}

/// A lease says how long its owner may be silent, and not how long the server may: what the session is certain of counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_shorter_than_an_outage_is_renewed_while_the_session_is_certain() {
    let scene = Scene::with_proxy("10s");
    let store = common::open(&scene.behind_url()).expect("a store");
    let client = Client::builder().default_lease(Duration::from_secs(3)).open(store).await.expect("a client");
    let guard = lock(&client, "x").await;
    scene.proxy().refuse();
    sleep(SESSION / 2).await;
    scene.proxy().pass();
    eventually("it is connected again", || async {
        if scene.proxy().open_connections() > 0 { Ok(()) } else { Err(guard.remaining()) }
    })
    .await;
    assert!(guard.is_held(), "it was lost by an outage of half a session");
    guard.release().await.expect("a release of a lock that was held all the time");
    scene.is_clean().await;
}
