//! Answers that are lost: what was asked may have happened, and must not happen twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_client::Client;
use leasehold_core::store::{Ask, Inbox, Leave, Note, Otherwise, Presence};
use leasehold_core::{EntryId, Label, Lease, Name, Order, SessionId, Want};
use leasehold_testkit::history::History;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::zookeeper::jute::op;
use leasehold_testkit::wait::{eventually, soon};
use tokio::task::JoinSet;

use super::common;
use super::scene::{Scene, lock};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_create_leaves_one_entry() {
    let scene = Scene::with_proxy("20s");
    let client = scene.behind("a").await;
    lock(&client, "x").await.release().await.expect("a release");
    scene.proxy().lose_answer_to(op::CREATE2);
    let guard = lock(&client, "x").await;
    assert_eq!(scene.proxy().faults_left(), 0);
    assert_eq!(scene.nodes("x").len(), 1, "{:?}", scene.nodes("x"));
    assert!(guard.is_held());
    guard.release().await.expect("a release");
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_before_create_leaves_one_entry() {
    let scene = Scene::with_proxy("20s");
    let client = scene.behind("a").await;
    scene.proxy().cut_before(op::CREATE2);
    let guard = lock(&client, "x").await;
    assert_eq!(scene.proxy().faults_left(), 0);
    assert_eq!(scene.nodes("x").len(), 1, "{:?}", scene.nodes("x"));
    guard.release().await.expect("a release");
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_delete_is_no_error_and_the_successor_gets_in() {
    let scene = Scene::with_proxy("20s");
    let (a, b) = (scene.behind("a").await, scene.client("b").await);
    let guard = lock(&a, "x").await;
    scene.proxy().lose_answer_to(op::DELETE);
    guard.release().await.expect("it was released");
    assert_eq!(scene.proxy().faults_left(), 0);
    lock(&b, "x").await.release().await.expect("a release");
    let guard = lock(&a, "x").await;
    scene.proxy().cut_before(op::DELETE);
    guard.release().await.expect("it was released");
    lock(&b, "x").await.release().await.expect("a release");
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_and_barging_claims_leave_nothing_after_lost_answers() {
    let scene = Scene::with_proxy("20s");
    let (a, b) = (scene.behind("a").await, scene.client("b").await);
    for order in [Order::Queue, Order::Barge, Order::spin()] {
        scene.proxy().lose_answer_to(op::CREATE2);
        let tried =
            soon("a try", a.mutex("x").order(order).try_lock()).await.expect("a try").expect("it is free");
        assert_eq!(scene.nodes("x").len(), 1, "{order:?}: {:?}", scene.nodes("x"));
        tried.release().await.expect("a release");
        scene.proxy().lose_answer_to(op::CREATE2);
        let guard = soon("a lock", a.mutex("x").order(order).lock()).await.expect("a lock");
        assert_eq!(scene.nodes("x").len(), 1, "{order:?}: {:?}", scene.nodes("x"));
        guard.release().await.expect("a release");
        scene.proxy().pass();
    }
    // One that barges and must wait: the answer to its note is lost.
    let guard = lock(&b, "x").await;
    scene.proxy().lose_answer_to(op::CREATE2);
    let mutex = a.mutex("x").order(Order::Barge);
    let barging = tokio::spawn(async move { mutex.lock().await });
    eventually("its note is there", || async {
        let seen = b.inspect("x").await.expect("a look");
        if seen.waiters.len() == 1 && scene.proxy().faults_left() == 0 { Ok(()) } else { Err(seen) }
    })
    .await;
    guard.release().await.expect("a release");
    let guard = soon("a grant", barging).await.expect("a task").expect("a lock");
    guard.release().await.expect("a release");
    scene.is_clean().await;
}

/// A request that waited in the client while there was no connection is carried out long after its claim was given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_given_up_while_the_server_was_silent_leaves_nothing() {
    let scene = Scene::with_proxy("30s");
    let url = scene.behind_url();
    let builder =
        Client::builder().label("a").default_lease(Duration::from_secs(1)).retry_for(Duration::from_secs(2));
    let client = builder
        .open(super::common::open(&format!("{url}&timeout=700ms")).expect("a store"))
        .await
        .expect("a client");
    lock(&client, "x").await.release().await.expect("a release");
    for fault in [Proxy::hang, Proxy::swallow_answers] {
        fault(scene.proxy());
        let tried = soon("the end of patience", client.mutex("x").lock()).await;
        tried.expect_err("nobody answers");
        // The client has given up taking it out, too: its lease would have ended.
        tokio::time::sleep(Duration::from_secs(2)).await;
        scene.proxy().pass();
        let other = scene.client("b").await;
        lock(&other, "x").await.release().await.expect("a release");
        scene.until("x", 0).await;
    }
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_stays_exact_while_connections_are_cut() {
    let scene = Scene::with_proxy("20s");
    let (number, history) = (Arc::new(AtomicU32::new(0)), History::default());
    let mut tasks = JoinSet::new();
    for n in 0..4u32 {
        let client: Client =
            if n == 0 { scene.client("direct").await } else { scene.behind(&format!("{n}")).await };
        let (number, history) = (number.clone(), history.clone());
        tasks.spawn(async move {
            for round in 0..40u32 {
                let mutex = client.mutex("x");
                let mutex = if (n + round) % 3 == 0 { mutex.order(Order::Barge) } else { mutex };
                let guard = mutex.lock().await.expect("a lock");
                let visit = history.enter(n, &guard);
                let before = number.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                number.store(before + 1, Ordering::SeqCst);
                drop(visit);
                guard.release().await.expect("a release");
            }
        });
    }
    let cutting = async {
        loop {
            tokio::time::sleep(Duration::from_millis(60)).await;
            scene.proxy().cut();
        }
    };
    let counting = async {
        while let Some(done) = tasks.join_next().await {
            done.expect("a task");
        }
    };
    let all = async {
        tokio::select! {
            () = cutting => {}
            () = counting => {}
        }
    };
    tokio::time::timeout(Duration::from_secs(80), all).await.expect("it goes on");
    history.check();
    assert_eq!(number.load(Ordering::SeqCst), 160);
    scene.is_clean().await;
}

/// The node of a request that nobody polls any more is not known by its path, and its future keeps the ZooKeeper session open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_not_polled_leaves_nothing_when_its_session_is_closed() {
    let scene = Scene::new("20s");
    let client = scene.client("a").await;
    lock(&client, "x").await.release().await.expect("a release");
    let me = Presence { id: SessionId::random().expect("an id"), label: Label::new("bare") };
    let store = common::open(&scene.url).expect("a store");
    let session = soon("a session", store.open(me, Arc::new(Deaf))).await.expect("a session");
    let name = Name::new("x").expect("a name");
    let (want, otherwise, lease) = (Want::Exclusive, Otherwise::Queue, Lease::Kept(A_MINUTE));
    // It takes a trip to the server, which on a busy machine can be over before the first poll is.
    let standing = loop {
        let id = EntryId::random().expect("an id");
        let ask = Ask { name: name.clone(), id, want, lease, place: A_MINUTE, otherwise };
        let mut asked = session.clone().join(ask);
        if (&mut asked).now_or_never().is_none() {
            break asked;
        }
        let leave = Leave { name: name.clone(), id, used: None };
        soon("a release", session.clone().leave(leave)).await.expect("a release");
    };
    scene.until("x", 1).await;
    soon("the goodbye", session.close()).await.expect("a goodbye");
    assert_eq!(scene.nodes("x"), Vec::<String>::new());
    drop(standing);
    client.close().await.expect("a goodbye");
    scene.is_clean().await;
}

const A_MINUTE: Duration = Duration::from_secs(60);

struct Deaf;

impl Inbox for Deaf {
    fn note(&self, _: Note) {}
    fn session_gone(&self) {}
}
