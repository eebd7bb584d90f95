//! A try always answers, also one that would wait for its own client.

mod common;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use common::{Counting, until};
use leasehold_client::{Budget, Client, Guard, Kind, Order, Part, Result};
use leasehold_memory::Memory;

const LONG: Duration = Duration::from_secs(3600);

/// A client on a store that counts, and another client on the same store.
async fn scene(budget: Budget) -> (Arc<Counting>, Client, Client) {
    let memory = Memory::new();
    let store = Counting::over(memory.clone());
    let patience = Duration::from_millis(300);
    // No lease ends here, and no renewal is due, to help a try.
    let client = Client::builder().local_queue(budget).retry_for(patience).default_lease(LONG);
    (store.clone(), client.open(store).await.unwrap(), Client::open(memory).await.unwrap())
}

async fn answer<F: Future>(what: &str, tried: F) -> F::Output {
    let Ok(answer) = tokio::time::timeout(Duration::from_secs(60), tried).await else {
        panic!("no answer: {what}")
    };
    answer
}

/// Every way to try to read beside a reader of the same client.
async fn all_are_busy(client: &Client, when: &str) {
    let lock = client.rwlock("n");
    let busy = |guard: Option<Guard>, what: &str| assert!(guard.is_none(), "{what}, {when}");
    busy(answer(when, lock.try_read()).await.unwrap(), "try_read");
    busy(answer(when, lock.read_within(Duration::ZERO)).await.unwrap(), "read_within(0)");
    let spin = lock.order(Order::spin());
    busy(answer(when, spin.try_read()).await.unwrap(), "spinning try_read");
    busy(answer(when, spin.read_within(Duration::ZERO)).await.unwrap(), "spinning read_within(0)");
    let multi = client.multi([Part::read("n")]);
    assert!(answer(when, multi.try_lock()).await.unwrap().is_none(), "multi, {when}");
    assert!(answer(when, multi.lock_within(Duration::ZERO)).await.unwrap().is_none(), "multi, {when}");
}

#[tokio::test]
async fn a_try_beside_a_reader_that_was_asked_for_the_lock_is_busy() {
    let (_, client, other) = scene(Budget { handovers: 1000, time: LONG }).await;
    let reader = client.rwlock("n").read().await.unwrap();
    other.request_release("n", None).await.unwrap();
    all_are_busy(&client, "after a request").await;
    reader.release().await.unwrap();
    assert!(client.rwlock("n").try_read().await.unwrap().is_some());
}

#[tokio::test]
async fn a_try_beside_a_reader_whose_budget_is_over_is_busy_while_a_writer_waits() {
    let (_, client, other) = scene(Budget { handovers: 1000, time: Duration::from_nanos(1) }).await;
    let reader = client.rwlock("n").read().await.unwrap();
    let writer = tokio::spawn({
        let lock = other.rwlock("n");
        async move { lock.write().await.unwrap() }
    });
    until("it waits", async || client.inspect("n").await.unwrap().waiters.len() == 1).await;
    all_are_busy(&client, "while a writer waits").await;
    reader.release().await.unwrap();
    writer.await.unwrap().release().await.unwrap();
}

/// The lock is asked for while a try waits for the store's word.
#[tokio::test]
async fn a_try_that_waits_for_the_store_is_answered_by_a_request() {
    let (store, client, other) = scene(Budget { handovers: 1000, time: Duration::from_nanos(1) }).await;
    let reader = client.rwlock("n").read().await.unwrap();
    store.gate.close();
    let tried = tokio::spawn({
        let lock = client.rwlock("n");
        async move { lock.try_read().await.unwrap() }
    });
    until("the store is asked", async || store.counts.renewals() == 1).await;
    other.request_release("n", None).await.unwrap();
    assert!(answer("after the request", tried).await.unwrap().is_none());
    store.gate.open();
    reader.release().await.unwrap();
}

/// A try by a reader of the same client is let in when the store has said that it may.
#[tokio::test]
async fn a_try_beside_a_reader_whose_budget_is_over_gets_in_if_nobody_else_waits() {
    let (_, client, _) = scene(Budget { handovers: 1000, time: Duration::from_nanos(1) }).await;
    let lock = client.rwlock("n");
    let _reader = lock.read().await.unwrap();
    for _ in 0..3 {
        assert!(answer("nobody waits", lock.try_read()).await.unwrap().is_some());
    }
}

/// The second finds the first one waiting for the store's word. Both are readers, and nobody else is there.
#[tokio::test]
async fn two_tries_at_once_beside_a_reader_whose_budget_is_over_both_get_in() {
    let (store, client, _) = scene(Budget { handovers: 1000, time: Duration::from_nanos(1) }).await;
    let lock = client.rwlock("n");
    let spin = lock.clone().order(Order::spin());
    let (first, second) = (client.multi([Part::read("n")]), client.multi([Part::read("n")]));
    let _reader = lock.read().await.unwrap();
    // The store answers when both have asked.
    let both = async |mut tries: Pin<Box<dyn Future<Output = [bool; 2]> + '_>>, what: &str| {
        store.gate.close();
        let polled = poll_fn(|cx| Poll::Ready(tries.as_mut().poll(cx))).await;
        assert!(polled.is_pending(), "{what} was answered without the store");
        store.gate.open();
        assert_eq!(answer(what, tries).await, [true, true], "{what}");
    };
    let got = |tried: Result<Option<Guard>>| tried.unwrap().is_some();
    let tries = async {
        let (a, b) = tokio::join!(lock.try_read(), lock.try_read());
        [got(a), got(b)]
    };
    both(Box::pin(tries), "try_read").await;
    let tries = async {
        let (a, b) = tokio::join!(lock.read_within(Duration::ZERO), lock.try_read());
        [got(a), got(b)]
    };
    both(Box::pin(tries), "read_within(0)").await;
    let tries = async {
        let (a, b) = tokio::join!(spin.try_read(), spin.try_read());
        [got(a), got(b)]
    };
    both(Box::pin(tries), "spinning try_read").await;
    let tries = async {
        let (a, b) = tokio::join!(first.try_lock(), second.try_lock());
        [a.unwrap().is_some(), b.unwrap().is_some()]
    };
    both(Box::pin(tries), "multi").await;
}

#[tokio::test]
async fn a_try_that_the_store_does_not_answer_is_an_error() {
    let (store, client, _) = scene(Budget { handovers: 1000, time: Duration::from_nanos(1) }).await;
    let reader = client.rwlock("n").read().await.unwrap();
    store.gate.close();
    let tried = answer("a silent store", client.rwlock("n").try_read()).await;
    assert_eq!(tried.unwrap_err().kind(), Kind::Unavailable);
    store.gate.open();
    drop(reader);
}

#[tokio::test]
async fn a_try_waits_for_an_answer_as_long_as_its_client_says() {
    let store = Counting::over(Memory::new());
    let client = async |time| Client::builder().try_for(time).open(store.clone()).await.unwrap();
    let (hasty, patient) = (client(Duration::from_millis(50)).await, client(LONG).await);
    store.gate.close();
    let mutex = patient.mutex("n");
    let patient = tokio::spawn(async move { mutex.try_lock().await });
    until("the store is asked", async || store.counts.joins() == 1).await;
    let error = answer("a hasty try", hasty.mutex("m").try_lock()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(!patient.is_finished(), "it has an hour");
    store.gate.open();
    let guard = answer("a patient try", patient).await.unwrap().unwrap().expect("a free lock");
    guard.release().await.unwrap();
}
