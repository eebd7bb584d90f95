//! The keeper renews what is held; the clock alone decides when it is lost.

mod common;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use common::{Counting, until};
use leasehold_client::{Client, Clock, Kind, Lost};
use leasehold_memory::Memory;

const LEASE: Duration = Duration::from_secs(30);

async fn world() -> (Clock, Arc<Counting>, Client) {
    let clock = Clock::manual();
    let store = Counting::over(Memory::with_clock(clock.clone()));
    let client =
        Client::builder().clock(clock.clone()).default_lease(LEASE).open(store.clone()).await.unwrap();
    (clock, store, client)
}

#[tokio::test]
async fn a_kept_lease_is_renewed_at_a_third_of_its_length() {
    let (clock, store, client) = world().await;
    let guard = client.mutex("n").lock().await.unwrap();
    for round in 1..=10 {
        clock.advance(LEASE / 3);
        until("it is renewed", async || store.counts.renewals() >= round).await;
        assert!(guard.is_held());
        assert!(guard.remaining().unwrap() > LEASE * 9 / 10);
    }
    assert_eq!(store.counts.renewals(), 10, "no more renewals than needed");
}

#[tokio::test]
async fn a_guard_is_lost_by_the_clock_alone_before_anybody_else_can_hold() {
    let (clock, _, client) = world().await;
    let guard = client.mutex("n").lease(LEASE).lock().await.unwrap();
    let drift = LEASE / 100 + Duration::from_millis(2);
    clock.advance(LEASE - drift - Duration::from_millis(1));
    assert!(guard.is_held());
    assert_eq!(guard.remaining(), Some(Duration::from_millis(1)));
    // Not one word from the store: the machine slept, or the network is gone.
    clock.advance(Duration::from_millis(1));
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Some(Duration::ZERO));
    assert_eq!(guard.lost().await, Lost::Expired);
    assert_eq!(guard.release().await.unwrap_err().kind(), Kind::Lost);
}

#[tokio::test]
async fn validity_counts_from_before_the_request_was_sent_not_from_its_answer() {
    let (clock, store, client) = world().await;
    let drift = LEASE / 100 + Duration::from_millis(2);
    // A slow answer to the claim.
    store.gate.close();
    let claim = tokio::spawn({
        let client = client.clone();
        async move { client.mutex("n").lock().await.unwrap() }
    });
    until("it is asked for", async || store.counts.joins() == 1).await;
    clock.advance(LEASE / 10);
    store.gate.open();
    let guard = claim.await.unwrap();
    assert_eq!(guard.remaining(), Some(LEASE * 9 / 10 - drift));
    // A slow answer to a renewal.
    store.gate.close();
    clock.advance(LEASE / 3);
    until("it is renewed", async || store.counts.renewals() == 1).await;
    clock.advance(LEASE / 10);
    store.gate.open();
    until("the answer is here", async || guard.remaining() > Some(LEASE / 2 + LEASE / 4)).await;
    assert_eq!(guard.remaining(), Some(LEASE * 9 / 10 - drift));
}

#[tokio::test]
async fn a_machine_that_slept_past_its_lease_has_lost_its_locks() {
    let (clock, _, client) = world().await;
    let guard = client.mutex("n").lock().await.unwrap();
    clock.advance(Duration::from_secs(3600));
    assert!(!guard.is_held(), "the first look after waking up already knows");
    assert_eq!(guard.protect(std::future::pending::<()>()).await, Err(Lost::Expired));
    drop(guard);
    assert!(client.mutex("n").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_hundred_thousand_locks_are_renewed_in_a_few_batches() {
    let (clock, store, client) = world().await;
    let mut guards = Vec::new();
    for n in 0..100_000 {
        guards.push(client.mutex(format!("n{n}")).lock().await.unwrap());
    }
    clock.advance(LEASE / 3);
    until("all are renewed", async || store.counts.renewals() >= 100_000).await;
    assert!(store.counts.renewal_batches() <= 250, "{} batches", store.counts.renewal_batches());
    assert!(guards.iter().all(|g| g.is_held()));
}

#[tokio::test]
async fn a_store_that_was_wiped_is_noticed_at_the_next_renewal() {
    let clock = Clock::manual();
    let memory = Memory::with_clock(clock.clone());
    let client = Client::builder().clock(clock.clone()).open(memory.clone()).await.unwrap();
    let guard = client.mutex("n").lock().await.unwrap();
    let token = guard.token();
    memory.wipe();
    clock.advance(LEASE / 3);
    assert_eq!(guard.lost().await, Lost::Wiped);
    assert!(client.mutex("n").lock().await.unwrap().token() > token, "tokens rise all the same");
}

#[tokio::test]
async fn a_hot_lock_does_not_run_ahead_of_the_clock_that_its_tokens_start_from() {
    // If every grant used up its block, ten thousand of them would reserve ten seconds of the clock, and a store that lost its
    // data would give out lower tokens than before.
    let memory = Memory::new();
    let client = Client::open(memory.clone()).await.unwrap();
    let mut highest = client.mutex("n").lock().await.unwrap().token();
    for _ in 0..10_000 {
        let guard = client.mutex("n").lock().await.unwrap();
        assert!(guard.token() > highest);
        highest = guard.token();
    }
    memory.wipe();
    assert!(client.mutex("n").lock().await.unwrap().token() > highest);
}

#[tokio::test]
async fn a_closed_client_has_given_everything_back_and_refuses_more() {
    let (_, store, client) = world().await;
    let other = Client::open(store.clone()).await.unwrap();
    let guard = client.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.mutex("a").lock().await.map(|g| g.token()) }
    });
    until("the other waits", async || other.inspect("a").await.unwrap().waiters.len() == 1).await;
    client.close().await.unwrap();
    assert!(waiting.await.unwrap().unwrap() > guard.token());
    assert_eq!(guard.lost().await, Lost::SessionGone);
    assert_eq!(client.mutex("b").lock().await.unwrap_err().kind(), Kind::Refused);
    client.close().await.unwrap();
}

/// Polls once, and says whether it is done.
async fn polled_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    poll_fn(|cx| match Pin::new(&mut *future).poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// As in a buffered stream, whose futures stand still while the body of its loop runs.
#[tokio::test]
async fn the_answer_to_a_claim_that_is_not_polled_is_taken_without_it() {
    let (clock, store, client) = world().await;
    store.gate.close();
    let mutex = client.mutex("n");
    let mut standing = Box::pin(mutex.lock());
    assert!(polled_once(&mut standing).await.is_none(), "nobody answers");
    store.gate.open();
    clock.advance(Duration::from_millis(100));
    until("the client knows that it holds", async || {
        let mut trying = Box::pin(mutex.try_lock());
        matches!(polled_once(&mut trying).await, Some(Ok(None)))
    })
    .await;
    assert_eq!(store.counts.joins(), 1, "it was asked for once");
    standing.await.unwrap().release().await.unwrap();
    assert_eq!(store.counts.leaves(), 1);
}

#[tokio::test]
async fn the_request_of_a_claim_that_is_dropped_goes_on_to_its_end_and_leaves_nothing() {
    let (_, store, client) = world().await;
    store.gate.close();
    let mutex = client.mutex("n");
    let mut given_up = Box::pin(mutex.lock());
    assert!(polled_once(&mut given_up).await.is_none(), "nobody answers");
    drop(given_up);
    store.gate.open();
    until("the store was heard out", async || store.counts.joined() == 1).await;
    until("nobody holds", async || client.inspect("n").await.unwrap().holders.is_empty()).await;
    mutex.lock().await.unwrap().release().await.unwrap();
}

/// As in a buffered stream: what the store keeps for a release must not wait for the body of the loop.
#[tokio::test]
async fn a_release_that_is_not_polled_is_heard_out_without_it() {
    let (clock, store, client) = world().await;
    let guard = client.mutex("n").lock().await.unwrap();
    store.exit.close();
    let mut standing = Box::pin(guard.release());
    assert!(polled_once(&mut standing).await.is_none(), "nobody answers");
    store.exit.open();
    clock.advance(Duration::from_millis(100));
    until("the store was heard out", async || store.counts.left() == 1).await;
    standing.await.unwrap();
    assert_eq!(store.counts.leaves(), 1, "it was asked for once");
}

/// It is waited for all the time, and the store takes long.
#[tokio::test]
async fn whoever_waits_for_a_release_that_takes_long_is_told_of_it() {
    let (clock, store, client) = world().await;
    let guard = client.mutex("n").lock().await.unwrap();
    store.exit.close();
    let waiting = tokio::spawn(guard.release());
    // On the spot, and then by whoever waits.
    until("it is asked for and waited for", async || store.counts.leaves_polled() == 2).await;
    clock.advance(Duration::from_millis(100));
    until("it goes on in a task", async || store.counts.leaves_polled() == 3).await;
    store.exit.open();
    until("it is told", async || waiting.is_finished()).await;
    waiting.await.unwrap().unwrap();
    assert_eq!(store.counts.left(), 1);
}

#[tokio::test]
async fn a_release_that_is_dropped_goes_on_to_its_end() {
    let (_, store, client) = world().await;
    let guard = client.mutex("n").lock().await.unwrap();
    store.exit.close();
    let mut given_up = Box::pin(guard.release());
    assert!(polled_once(&mut given_up).await.is_none(), "nobody answers");
    drop(given_up);
    store.exit.open();
    until("the store was heard out", async || store.counts.left() == 1).await;
    assert_eq!(store.counts.leaves(), 1, "it was asked for once");
    client.mutex("n").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_ended_during_a_suspend_is_lost_at_the_next_poll() {
    let (clock, _, client) = world().await;
    let guard = client.mutex("n").lock().await.unwrap();
    let mut work = std::pin::pin!(guard.protect(std::future::pending::<()>()));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(work.as_mut().poll(&mut context).is_pending());
    // What a suspend does: the clock of leases goes on, and no timer fires.
    clock.advance(LEASE * 2);
    assert_eq!(work.as_mut().poll(&mut context), std::task::Poll::Ready(Err(Lost::Expired)));
}

#[tokio::test]
async fn the_goodbye_waits_for_claims_in_flight() {
    let (_, store, client) = world().await;
    store.gate.close();
    let claim = tokio::spawn({
        let lock = client.mutex("n");
        async move { lock.lock().await.map(drop) }
    });
    until("it is asked for", async || store.counts.joins() == 1).await;
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    until("the client is closed", async || client.mutex("m").try_lock().await.is_err()).await;
    store.gate.open();
    closing.await.unwrap().unwrap();
    assert_eq!(store.counts.unanswered_at_close.load(Ordering::SeqCst), 0);
    assert_eq!(claim.await.unwrap().unwrap_err().kind(), Kind::Refused);
    let other = Client::open(store.clone()).await.unwrap();
    assert!(other.inspect("n").await.unwrap().holders.is_empty());
}

/// An entry may come into being after it was left. The release that takes it back then must not be overtaken by the goodbye.
#[tokio::test]
async fn the_goodbye_waits_for_releases_in_flight() {
    let (_, store, client) = world().await;
    let guard = client.mutex("n").lock().await.unwrap();
    store.exit.close();
    drop(guard);
    until("it is given back", async || store.counts.leaves() == 1).await;
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    until("the client is closed", async || client.mutex("m").try_lock().await.is_err()).await;
    store.exit.open();
    closing.await.unwrap().unwrap();
    assert_eq!(store.counts.unanswered_at_close.load(Ordering::SeqCst), 0);
}

/// As in a `select!` whose other branch closes the client: the future lives, and nothing polls it any more.
#[tokio::test]
async fn the_goodbye_does_not_wait_for_a_claim_that_is_not_polled() {
    let (_, store, client) = world().await;
    store.gate.close();
    let mutex = client.mutex("n");
    let mut standing = Box::pin(mutex.lock());
    assert!(polled_once(&mut standing).await.is_none(), "nobody answers");
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    until("the client is closed", async || client.mutex("m").try_lock().await.is_err()).await;
    store.gate.open();
    closing.await.unwrap().unwrap();
    assert_eq!(store.counts.unanswered_at_close.load(Ordering::SeqCst), 0);
    assert_eq!(standing.await.unwrap_err().kind(), Kind::Refused);
    let other = Client::open(store.clone()).await.unwrap();
    assert!(other.inspect("n").await.unwrap().holders.is_empty());
}

/// A notification may be quicker than the answer. What the store keeps for the request must not stay with a future that
/// stands still.
#[tokio::test]
async fn the_request_of_a_claim_that_is_not_polled_goes_on_when_a_notification_ends_its_wait() {
    for revoked in [false, true] {
        let (_, store, client) = world().await;
        let other = Client::open(store.clone()).await.unwrap();
        let guard = if revoked { None } else { Some(other.mutex("n").lock().await.unwrap()) };
        let before = store.counts.joins();
        store.gate.close();
        let mutex = client.mutex("n");
        let mut standing = Box::pin(mutex.lock());
        assert!(polled_once(&mut standing).await.is_none(), "nobody answers");
        match guard {
            Some(guard) => guard.release().await.unwrap(),
            // The claim asks for another entry.
            None => drop(other.force_release("n", None).await.unwrap()),
        }
        store.gate.open();
        until("the store was heard out", async || {
            store.counts.joined() == store.counts.joins()
                && store.counts.joins() == before + 1 + u64::from(revoked)
        })
        .await;
        standing.await.unwrap().release().await.unwrap();
    }
}
