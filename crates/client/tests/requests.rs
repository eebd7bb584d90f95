//! Somebody asks for the lock back at an awkward moment: what the local queue makes of it.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Counting, until};
use leasehold_client::{Budget, Client, Guard, Owner};
use leasehold_memory::Memory;

const LONG: Duration = Duration::from_secs(3600);

/// A client on a store that counts, and somebody else on the same store.
async fn scene(handovers: u32) -> (Arc<Counting>, Client, Client) {
    let memory = Memory::new();
    let store = Counting::over(memory.clone());
    let budget = Budget { handovers, time: LONG };
    let client = Client::builder().local_queue(budget).open(store.clone()).await.unwrap();
    (store, client, Client::open(memory).await.unwrap())
}

fn locking(client: &Client) -> tokio::task::JoinHandle<Guard> {
    let mutex = client.mutex("n");
    tokio::spawn(async move { mutex.lock().await.unwrap() })
}

async fn ask(other: &Client) {
    assert_eq!(other.request_release("n", None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_request_that_overtakes_the_answer_to_the_claim_is_not_missed() {
    let (store, client, other) = scene(1000).await;
    store.gate.close();
    let claim = locking(&client);
    until("it is asked for", async || store.counts.joins() == 1).await;
    ask(&other).await;
    store.gate.open();
    let guard = claim.await.unwrap();
    assert!(guard.is_release_requested());
    guard.release_requested().await;
    guard.release().await.unwrap();
    let next = client.mutex("n").lock().await.unwrap();
    assert!(!next.is_release_requested(), "another entry");
}

#[tokio::test]
async fn a_hold_that_nobody_uses_leaves_at_once() {
    let (store, client, other) = scene(1).await;
    let first = client.mutex("n").lock().await.unwrap();
    let (second, third) = (locking(&client), locking(&client));
    until("both wait", async || client.inspect("n").await.unwrap().holders.len() == 1).await;
    tokio::task::yield_now().await;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    // The budget is over: the store is asked whether others wait, and the answer takes its time.
    store.gate.close();
    second.release().await.unwrap();
    until("the store is asked", async || store.counts.renewals() == 1).await;
    assert_eq!(store.counts.leaves(), 0);
    ask(&other).await;
    assert_eq!((store.counts.leaves(), store.counts.joins()), (1, 2), "it leaves, and queues again");
    store.gate.open();
    let third = third.await.unwrap();
    assert!(!third.is_release_requested());
    third.release().await.unwrap();
}

#[tokio::test]
async fn readers_that_come_after_a_request_wait_for_the_next_entry() {
    let (store, client, other) = scene(1000).await;
    let lock = client.rwlock("n");
    let early = [lock.read().await.unwrap(), lock.read().await.unwrap()];
    ask(&other).await;
    assert!(early.iter().all(Guard::is_release_requested));
    let late = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await.unwrap() }
    });
    tokio::task::yield_now().await;
    assert_eq!(store.counts.joins(), 1, "it does not share what is to be given back");
    for guard in early {
        assert!(!late.is_finished());
        guard.release().await.unwrap();
    }
    let late = late.await.unwrap();
    assert!(!late.is_release_requested());
    assert_eq!(store.counts.joins(), 2);
    late.release().await.unwrap();
}

#[tokio::test]
async fn local_readers_do_not_join_a_writer_that_was_asked_and_became_a_reader() {
    let (store, client, other) = scene(1000).await;
    let lock = client.rwlock("n");
    let writer = lock.write().await.unwrap();
    let late = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await.unwrap() }
    });
    tokio::task::yield_now().await;
    ask(&other).await;
    let reader = writer.downgrade().await.unwrap();
    assert!(reader.is_release_requested() && !late.is_finished());
    reader.release().await.unwrap();
    assert!(!late.await.unwrap().is_release_requested());
    assert_eq!(store.counts.joins(), 2);
}

#[tokio::test]
async fn an_owner_that_was_asked_can_still_enter_again() {
    let (_, client, other) = scene(1000).await;
    let lock = client.mutex("n").owner(Owner::new()).reentrant();
    let outer = lock.lock().await.unwrap();
    ask(&other).await;
    let inner = lock.lock().await.unwrap();
    assert!(inner.is_release_requested() && inner.token() == outer.token());
    inner.release().await.unwrap();
    outer.release().await.unwrap();
}

/// The lease is so long that no renewal comes to help.
#[tokio::test]
async fn whoever_waits_for_a_request_is_woken_by_it() {
    let memory = Memory::new();
    let client = Client::builder().default_lease(LONG).open(memory.clone()).await.unwrap();
    let guard = client.mutex("n").lock().await.unwrap();
    let waiting = tokio::spawn(async move {
        guard.release_requested().await;
        guard
    });
    tokio::task::yield_now().await;
    ask(&Client::open(memory).await.unwrap()).await;
    until("it is woken", async || waiting.is_finished()).await;
    waiting.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_request_is_no_loss() {
    let (_, client, other) = scene(1000).await;
    let guard = client.mutex("n").lock().await.unwrap();
    ask(&other).await;
    guard.release_requested().await;
    assert_eq!(guard.protect(async { 7 }).await, Ok(7));
    other.force_release("n", None).await.unwrap();
    guard.lost().await;
    assert!(guard.is_release_requested(), "who was asked stays asked");
}
