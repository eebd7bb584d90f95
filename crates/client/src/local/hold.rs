//! One lease as its guards see it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::store::{Grant, Term};
use leasehold_core::view::Lost;
use leasehold_core::{Clock, EntryId, Tick};
use tokio::sync::Notify;

use super::{drift, longest_nap};

/// A lease that the store granted, shared by the local guards that live on it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) id: EntryId,
    /// The moment after which somebody else may hold: local and pessimistic.
    valid_until: AtomicU64,
    /// 0 while it is good; else how it ended.
    ended: AtomicU8,
    /// A writer that became a reader.
    downgraded: AtomicBool,
    /// Somebody asked for the lock back.
    release_requested: AtomicBool,
    changed: Notify,
}

const GOOD: u8 = 0;
const RELEASED: u8 = 1;

impl Hold {
    pub(crate) fn new(id: EntryId, grant: Grant, asked: Tick) -> Self {
        Hold {
            id,
            valid_until: AtomicU64::new(valid_until(grant, asked).0),
            ended: AtomicU8::new(GOOD),
            downgraded: AtomicBool::new(false),
            release_requested: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    pub(crate) fn valid_until(&self) -> Tick {
        Tick(self.valid_until.load(Ordering::SeqCst))
    }

    /// Whether the lock is certainly held at this moment.
    pub(crate) fn is_good(&self, now: Tick) -> bool {
        self.ended.load(Ordering::SeqCst) == GOOD && now < self.valid_until()
    }

    /// The store renewed it. Never shortens: of two answers the one asked for later says more.
    pub(crate) fn extend(&self, grant: Grant, asked: Tick) {
        let until = valid_until(grant, asked).0;
        if self.valid_until.fetch_max(until, Ordering::SeqCst) < until {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn is_downgraded(&self) -> bool {
        self.downgraded.load(Ordering::SeqCst)
    }

    pub(crate) fn downgrade(&self) {
        self.downgraded.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_release_requested(&self) -> bool {
        self.release_requested.load(Ordering::SeqCst)
    }

    /// Somebody asked for the lock back.
    pub(crate) fn request_release(&self) {
        if !self.release_requested.swap(true, Ordering::SeqCst) {
            self.changed.notify_waiters();
        }
    }

    /// Resolves when somebody has asked for the lock back, and never otherwise.
    pub(crate) async fn release_requested(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.is_release_requested() {
                return;
            }
            changed.await;
        }
    }

    /// It was given back: it can't be lost any more. Only called under the mutex of its lane, as [`lose`](Hold::lose) is, so a
    /// look and a write are enough.
    pub(crate) fn released(&self) {
        if self.ended.load(Ordering::Relaxed) == GOOD {
            self.ended.store(RELEASED, Ordering::Release);
        }
    }

    /// It ended before it was given back. Returns whether this is news.
    pub(crate) fn lose(&self, why: Lost) -> bool {
        let news = self.ended.compare_exchange(GOOD, code(why), Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if news {
            self.changed.notify_waiters();
        }
        news
    }

    /// Why it was lost, if it was: also by the clock alone.
    pub(crate) fn lost_by(&self, now: Tick) -> Option<Lost> {
        match self.ended.load(Ordering::SeqCst) {
            GOOD if now >= self.valid_until() => Some(Lost::Expired),
            GOOD | RELEASED => None,
            code => Some(reason(code)),
        }
    }

    /// Resolves when the lease is lost, and never otherwise.
    pub(crate) async fn lost(&self, clock: &Clock) -> Lost {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            let now = clock.now();
            if let Some(why) = self.lost_by(now) {
                return why;
            }
            let until = self.valid_until();
            if until == Tick::NEVER || self.ended.load(Ordering::SeqCst) == RELEASED {
                changed.await;
                continue;
            }
            let nap = until.since(now).min(longest_nap(clock)).max(Duration::from_micros(100));
            let _ = tokio::time::timeout(nap, changed).await;
        }
    }
}

/// Counts from before the request was sent, less drift: over before anybody else can hold.
fn valid_until(grant: Grant, asked: Tick) -> Tick {
    match grant.term {
        Term::For(d) => asked + d.saturating_sub(drift(d)),
        Term::Until(end) => end,
        Term::Open => Tick::NEVER,
    }
}

fn code(why: Lost) -> u8 {
    match why {
        Lost::Expired => 2,
        Lost::Revoked => 3,
        Lost::SessionGone => 4,
        _ => 5,
    }
}

fn reason(code: u8) -> Lost {
    match code {
        2 => Lost::Expired,
        3 => Lost::Revoked,
        4 => Lost::SessionGone,
        _ => Lost::Wiped,
    }
}
