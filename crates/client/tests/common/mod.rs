//! A store that counts what is asked of it, and a way to wait for a condition.
#![allow(dead_code)] // Each test file uses a part of it.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use leasehold_core::store::{
    Ask, Inbox, Joined, Leave, Left, Pending, Presence, Renewal, Renewed, Session, Store,
};
use leasehold_core::view::{Events, Snapshot};
use leasehold_core::{EntryId, Name, Result, Token, Traits};
use leasehold_memory::Memory;
use tokio::sync::Notify;

/// What was asked of a store so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) joins: AtomicU64,
    /// Joins that were carried out to their end.
    pub(crate) joined: AtomicU64,
    pub(crate) leaves: AtomicU64,
    /// How often leaves were polled.
    pub(crate) leaves_polled: AtomicU64,
    /// Leaves that were carried out to their end.
    pub(crate) left: AtomicU64,
    pub(crate) renewal_batches: AtomicU64,
    pub(crate) renewals: AtomicU64,
    /// How many joins were not answered when the session was closed.
    pub(crate) unanswered_at_close: AtomicU64,
}

impl Counts {
    pub(crate) fn joins(&self) -> u64 {
        self.joins.load(Ordering::SeqCst)
    }

    pub(crate) fn joined(&self) -> u64 {
        self.joined.load(Ordering::SeqCst)
    }

    pub(crate) fn leaves(&self) -> u64 {
        self.leaves.load(Ordering::SeqCst)
    }

    pub(crate) fn leaves_polled(&self) -> u64 {
        self.leaves_polled.load(Ordering::SeqCst)
    }

    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::SeqCst)
    }

    pub(crate) fn renewal_batches(&self) -> u64 {
        self.renewal_batches.load(Ordering::SeqCst)
    }

    pub(crate) fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::SeqCst)
    }
}

/// Holds answers back: what was asked has its effect, and nobody hears of it until the gate opens.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    opened: Notify,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        self.opened.notify_waiters();
    }

    fn answer<T: Send + 'static>(self: &Arc<Self>, answer: Pending<T>) -> Pending<T> {
        if !self.closed.load(Ordering::SeqCst) {
            return answer;
        }
        let gate = self.clone();
        Box::pin(async move {
            loop {
                let opened = gate.opened.notified();
                if !gate.closed.load(Ordering::SeqCst) {
                    return answer.await;
                }
                opened.await;
            }
        })
    }
}

/// A memory store that counts.
pub(crate) struct Counting {
    inner: Arc<Memory>,
    traits: &'static Traits,
    pub(crate) counts: Arc<Counts>,
    pub(crate) gate: Arc<Gate>,
    /// The same for those who leave.
    pub(crate) exit: Arc<Gate>,
    pub(crate) at_the_grant: Arc<AtTheGrant>,
}

/// What happens at the store right after the next join had its effect, before the answer is read.
#[derive(Default)]
pub(crate) struct AtTheGrant(Mutex<Option<Event>>);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// The lock is taken away by force.
    Revoked,
    /// The session ends at the store.
    SessionGone,
    /// Its holders are asked for it.
    Requested,
}

impl AtTheGrant {
    pub(crate) fn next(&self, event: Event) {
        *self.0.lock().unwrap() = Some(event);
    }
}

impl Counting {
    pub(crate) fn over(inner: Arc<Memory>) -> Arc<Self> {
        Self::promising(inner, &leasehold_memory::TRAITS)
    }

    /// The same store, but it says something else about itself.
    pub(crate) fn promising(inner: Arc<Memory>, traits: &'static Traits) -> Arc<Self> {
        let (counts, gate, exit) = (Arc::default(), Arc::default(), Arc::default());
        Arc::new(Counting { inner, traits, counts, gate, exit, at_the_grant: Arc::default() })
    }
}

impl Store for Counting {
    fn traits(&self) -> &'static Traits {
        self.traits
    }

    fn url(&self) -> String {
        self.inner.url()
    }

    fn open(self: Arc<Self>, me: Presence, inbox: Arc<dyn Inbox>) -> Pending<Arc<dyn Session>> {
        Box::pin(async move {
            let inner = self.inner.clone().open(me, inbox.clone()).await?;
            let (counts, gate, exit) = (self.counts.clone(), self.gate.clone(), self.exit.clone());
            let at_the_grant = self.at_the_grant.clone();
            Ok(Arc::new(CountingSession { inner, inbox, counts, gate, exit, at_the_grant })
                as Arc<dyn Session>)
        })
    }
}

struct CountingSession {
    inner: Arc<dyn Session>,
    inbox: Arc<dyn Inbox>,
    at_the_grant: Arc<AtTheGrant>,
    counts: Arc<Counts>,
    gate: Arc<Gate>,
    exit: Arc<Gate>,
}

impl Session for CountingSession {
    fn join(self: Arc<Self>, ask: Ask) -> Pending<Joined> {
        self.counts.joins.fetch_add(1, Ordering::SeqCst);
        let (name, id) = (ask.name.clone(), ask.id);
        // The store has done it by now: it answers on the spot.
        let joined = self.inner.clone().join(ask);
        match self.at_the_grant.0.lock().unwrap().take() {
            None => {}
            Some(Event::Revoked) => drop(self.inner.clone().revoke(name, None)),
            Some(Event::Requested) => drop(self.inner.clone().request_release(name, None)),
            Some(Event::SessionGone) => {
                drop(self.inner.clone().leave(Leave::new(name, id)));
                self.inbox.session_gone();
            }
        }
        let (answer, counts) = (self.gate.answer(joined), self.counts.clone());
        Box::pin(async move {
            let answer = answer.await;
            counts.joined.fetch_add(1, Ordering::SeqCst);
            answer
        })
    }

    fn renew(self: Arc<Self>, batch: Vec<Renewal>) -> Pending<Vec<Result<Renewed>>> {
        self.counts.renewal_batches.fetch_add(1, Ordering::SeqCst);
        self.counts.renewals.fetch_add(batch.len() as u64, Ordering::SeqCst);
        self.gate.answer(self.inner.clone().renew(batch))
    }

    fn leave(self: Arc<Self>, leave: Leave) -> Pending<Left> {
        self.counts.leaves.fetch_add(1, Ordering::SeqCst);
        let (mut answer, counts) = (self.exit.answer(self.inner.clone().leave(leave)), self.counts.clone());
        Box::pin(poll_fn(move |cx| {
            counts.leaves_polled.fetch_add(1, Ordering::SeqCst);
            let answer = ready!(answer.as_mut().poll(cx));
            counts.left.fetch_add(1, Ordering::SeqCst);
            Poll::Ready(answer)
        }))
    }

    fn downgrade(self: Arc<Self>, name: Name, id: EntryId) -> Pending<Left> {
        self.inner.clone().downgrade(name, id)
    }

    fn set_limit(self: Arc<Self>, name: Name, limit: u32) -> Pending<()> {
        self.inner.clone().set_limit(name, limit)
    }

    fn revoke(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        self.inner.clone().revoke(name, expected)
    }

    fn request_release(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        self.inner.clone().request_release(name, expected)
    }

    fn inspect(self: Arc<Self>, name: Name) -> Pending<Snapshot> {
        self.inner.clone().inspect(name)
    }

    fn list(self: Arc<Self>, prefix: String, after: Option<Name>, most: usize) -> Pending<Vec<Snapshot>> {
        self.inner.clone().list(prefix, after, most)
    }

    fn watch(self: Arc<Self>, prefix: String) -> Pending<Events> {
        self.inner.clone().watch(prefix)
    }

    fn close(self: Arc<Self>) -> Pending<()> {
        let (joins, leaves) =
            (self.counts.joins() - self.counts.joined(), self.counts.leaves() - self.counts.left());
        let unanswered = joins + leaves;
        self.counts.unanswered_at_close.store(unanswered, Ordering::SeqCst);
        self.inner.clone().close()
    }
}

/// Waits until it is so; a minute is longer than any of it takes on the slowest machine.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !so().await {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came to pass that {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
