//! Tasks of one client share one entry at the store, and pass the lock on without asking it.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Counting, until};
use leasehold_client::{Budget, Client};
use leasehold_memory::Memory;

const LONG: Duration = Duration::from_secs(3600);

async fn client(store: &Arc<Counting>, budget: Budget) -> Client {
    Client::builder().local_queue(budget).open(store.clone()).await.unwrap()
}

#[tokio::test]
async fn local_hand_overs_ask_the_store_nothing_and_their_tokens_rise() {
    let store = Counting::over(Memory::new());
    let client = client(&store, Budget { handovers: 1000, time: LONG }).await;
    let first = client.mutex("n").lock().await.unwrap();
    let highest = Arc::new(AtomicU64::new(first.token().get()));
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let (client, highest) = (client.clone(), highest.clone());
            tokio::spawn(async move {
                let guard = client.mutex("n").lock().await.unwrap();
                let token = guard.token().get();
                assert!(highest.fetch_max(token, Ordering::SeqCst) < token, "token {token} did not rise");
                tokio::task::yield_now().await;
            })
        })
        .collect();
    tokio::task::yield_now().await;
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((store.counts.joins(), store.counts.leaves(), store.counts.renewals()), (1, 1, 0));
}

#[tokio::test]
async fn readers_of_one_client_share_one_entry() {
    let store = Counting::over(Memory::new());
    let client = client(&store, Budget { handovers: 1000, time: LONG }).await;
    let lock = client.rwlock("n");
    let readers = [lock.read().await.unwrap(), lock.read().await.unwrap(), lock.read().await.unwrap()];
    assert_eq!(store.counts.joins(), 1);
    assert_eq!(client.inspect("n").await.unwrap().holders.len(), 1);
    drop(readers);
    assert_eq!(store.counts.leaves(), 1);
    assert!(lock.try_write().await.unwrap().is_some());
}

#[tokio::test]
async fn when_the_budget_is_over_a_client_that_waits_gets_in() {
    let store = Counting::over(Memory::new());
    let busy = client(&store, Budget { handovers: 5, time: LONG }).await;
    let other = client(&store, Budget::default()).await;
    let passed = Arc::new(AtomicU64::new(0));
    let first = busy.mutex("n").lock().await.unwrap();
    let crowd: Vec<_> = (0..100)
        .map(|_| {
            let (busy, passed) = (busy.clone(), passed.clone());
            tokio::spawn(async move {
                let _guard = busy.mutex("n").lock().await.unwrap();
                passed.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            })
        })
        .collect();
    let seen = passed.clone();
    let waiting = tokio::spawn(async move {
        let _guard = other.mutex("n").lock().await.unwrap();
        seen.load(Ordering::SeqCst)
    });
    until("all wait", async || busy.inspect("n").await.unwrap().waiters.len() == 1).await;
    first.release().await.unwrap();
    let before_it = waiting.await.unwrap();
    assert!(before_it <= 6, "{before_it} of the busy client's tasks went before it");
    for task in crowd {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn when_the_budget_is_over_and_nobody_waits_it_starts_anew() {
    let store = Counting::over(Memory::new());
    let client = client(&store, Budget { handovers: 10, time: LONG }).await;
    let first = client.mutex("n").lock().await.unwrap();
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { drop(client.mutex("n").lock().await.unwrap()) })
        })
        .collect();
    tokio::task::yield_now().await;
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let (joins, renewals) = (store.counts.joins(), store.counts.renewals());
    assert_eq!(joins, 1, "the lock never went back in between");
    assert!(
        (8..=12).contains(&renewals),
        "{renewals} questions whether others wait, for 100 hand-overs of 10 a budget"
    );
}

#[tokio::test]
async fn with_the_local_queue_off_every_claim_is_an_entry_of_its_own() {
    let store = Counting::over(Memory::new());
    let client = client(&store, Budget::off()).await;
    let first = client.mutex("n").lock().await.unwrap();
    let second = tokio::spawn({
        let client = client.clone();
        async move { drop(client.mutex("n").lock().await.unwrap()) }
    });
    until("the second waits at the store", async || client.inspect("n").await.unwrap().waiters.len() == 1)
        .await;
    drop(first);
    second.await.unwrap();
    assert_eq!((store.counts.joins(), store.counts.leaves()), (2, 2));
}

#[tokio::test]
async fn a_reader_behind_a_cancelled_writer_gets_in() {
    // The entry at the store was asked for by the writer; when it is granted, only a reader is left to use it.
    let store = Counting::over(Memory::new());
    let (holder, both) = (client(&store, Budget::off()).await, client(&store, Budget::default()).await);
    let held = holder.mutex("n").lock().await.unwrap();
    let lock = both.rwlock("n");
    let mut writer = Box::pin(lock.write());
    assert!(futures_poll(&mut writer).await.is_none());
    let reader = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await.unwrap().token() }
    });
    until("the writer's entry waits", async || both.inspect("n").await.unwrap().waiters.len() == 1).await;
    tokio::task::yield_now().await;
    drop(writer);
    drop(held);
    tokio::time::timeout(Duration::from_secs(30), reader).await.expect("the reader gets in").unwrap();
}

#[tokio::test]
async fn a_cancelled_waiter_leaves_the_stores_queue_at_once() {
    let store = Counting::over(Memory::new());
    let (holder, waiter) = (client(&store, Budget::default()).await, client(&store, Budget::default()).await);
    let _held = holder.mutex("n").lock().await.unwrap();
    let lock = waiter.mutex("n");
    let (mut first, mut second) = (Box::pin(lock.lock()), Box::pin(lock.lock()));
    assert!(futures_poll(&mut first).await.is_none() && futures_poll(&mut second).await.is_none());
    drop(first);
    assert_eq!(holder.inspect("n").await.unwrap().waiters.len(), 1, "the entry stands for the other one");
    drop(second);
    assert_eq!(holder.inspect("n").await.unwrap().waiters.len(), 0);
    assert!(lock.lock_within(Duration::from_millis(5)).await.unwrap().is_none());
    assert_eq!(holder.inspect("n").await.unwrap().waiters.len(), 0);
}

async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn a_try_in_the_client_that_holds_is_busy_without_asking_the_store() {
    let store = Counting::over(Memory::new());
    let client = client(&store, Budget::default()).await;
    let _held = client.mutex("n").lock().await.unwrap();
    assert!(client.mutex("n").try_lock().await.unwrap().is_none());
    assert_eq!(store.counts.joins(), 1);
}
