//! One lease as its guards see it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Poll;

use leasehold_core::store::{Grant, Term};
use leasehold_core::view::Lost;
use leasehold_core::{Clock, EntryId, Lease, Tick};
use tokio::sync::Notify;

use super::drift;

/// A lease that the store granted, shared by the local guards that live on it.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) id: EntryId,
    /// The moment after which somebody else may hold: local and pessimistic. With [`OVER`] in it once it was seen to be over: a loss that
    /// somebody knows of is final, whatever the store answers later.
    valid_until: AtomicU64,
    /// The end of a fixed lease, which no renewal moves; [`Tick::NEVER`] if the lease is kept.
    ends: Tick,
    /// 0 while it is good; else how it ended.
    ended: AtomicU8,
    /// A writer that became a reader, or may have: the store was asked for it, and its answer is not known.
    downgraded: AtomicBool,
    /// Somebody asked for the lock back.
    release_requested: AtomicBool,
    changed: Notify,
}

const GOOD: u8 = 0;
const RELEASED: u8 = 1;

/// A moment that was seen to be over. No clock gets so far, and [`Tick::NEVER`], which has all bits, is never over.
const OVER: u64 = 1 << 63;

fn is_over(until: u64) -> bool {
    until & OVER != 0 && until != Tick::NEVER.0
}

impl Hold {
    pub(crate) fn new(id: EntryId, lease: &Lease, grant: Grant, asked: Tick) -> Self {
        let until = valid_until(grant, asked);
        Hold {
            id,
            valid_until: AtomicU64::new(until.0),
            ends: match (lease, grant.term) {
                (Lease::Kept(_), _) => Tick::NEVER,
                (Lease::Fixed(_), Term::Session { ends, .. }) => ends,
                (Lease::Fixed(_), _) => until,
            },
            ended: AtomicU8::new(GOOD),
            downgraded: AtomicBool::new(false),
            release_requested: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    pub(crate) fn valid_until(&self) -> Tick {
        let until = self.valid_until.load(Ordering::SeqCst);
        Tick(if is_over(until) { until & !OVER } else { until })
    }

    /// The end of a fixed lease; [`Tick::NEVER`] if the lease is kept.
    pub(crate) fn ends(&self) -> Tick {
        self.ends
    }

    /// Whether the lock is certainly held at this moment.
    pub(crate) fn is_good(&self, now: Tick) -> bool {
        self.ended.load(Ordering::SeqCst) == GOOD && !self.is_over(now)
    }

    /// Whether its time is over. Whoever is told so can rely on it: it stays so.
    fn is_over(&self, now: Tick) -> bool {
        let ends = |until: u64| (until & OVER == 0 && until <= now.0).then_some(until | OVER);
        match self.valid_until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, ends) {
            Ok(_) => true,
            Err(until) => is_over(until),
        }
    }

    /// The store renewed it. Never shortens: of two answers the one asked for later says more. Nothing is renewed of which somebody knows
    /// that it is over.
    pub(crate) fn extend(&self, grant: Grant, asked: Tick) {
        let until = valid_until(grant, asked).0;
        let later = |old: u64| (!is_over(old) && old < until).then_some(until);
        if self.valid_until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later).is_ok() {
            self.changed.notify_waiters();
        }
    }

    /// Whether a writer became a reader, or may have become one.
    pub(crate) fn is_downgraded(&self) -> bool {
        self.downgraded.load(Ordering::SeqCst)
    }

    /// The store is about to be asked to make a reader of the writer, or it is certain that nothing came of it.
    pub(crate) fn set_downgraded(&self, downgraded: bool) {
        self.downgraded.store(downgraded, Ordering::SeqCst);
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

    /// Why it was lost, if it was: also by the clock alone. What was once seen to be over has expired, whatever happened to it later.
    pub(crate) fn lost_by(&self, now: Tick) -> Option<Lost> {
        match self.ended.load(Ordering::SeqCst) {
            GOOD if self.is_over(now) => Some(Lost::Expired),
            GOOD | RELEASED => None,
            _ if is_over(self.valid_until.load(Ordering::SeqCst)) => Some(Lost::Expired),
            code => Some(reason(code)),
        }
    }

    /// Resolves when the lease is lost, and never otherwise. Looks at the clock whenever it is polled, and not later than
    /// `sleep_until` says.
    pub(crate) async fn lost<S: Future>(&self, clock: &Clock, sleep_until: impl Fn(Tick) -> S) -> Lost {
        let mut changes = pin!(self.watch_for_loss(clock, sleep_until));
        poll_fn(|cx| match self.lost_by(clock.now()) {
            Some(why) => Poll::Ready(why),
            None => changes.as_mut().poll(cx),
        })
        .await
    }

    async fn watch_for_loss<S: Future>(&self, clock: &Clock, sleep_until: impl Fn(Tick) -> S) -> Lost {
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
            tokio::select! {
                _ = sleep_until(until) => {}
                () = changed => {}
            }
        }
    }
}

/// Counts from before the request was sent, less drift: over before anybody else can hold.
fn valid_until(grant: Grant, asked: Tick) -> Tick {
    match grant.term {
        Term::For(d) => asked + d.saturating_sub(drift(d)),
        Term::Until(end) => end,
        Term::Open => Tick::NEVER,
        Term::Session { until, .. } => until,
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use leasehold_core::{Token, TokenBlock};

    use super::*;

    fn grant(term: Term) -> Grant {
        let tokens = TokenBlock { first: Token(1), len: 1 };
        Grant { tokens, term, started: true, contended: false, release_requested: false }
    }

    #[test]
    fn a_loss_that_somebody_knows_of_is_final() {
        let (start, second) = (Tick(1_000), grant(Term::For(Duration::from_secs(1))));
        let kept = Lease::Kept(Duration::from_secs(1));
        let hold = Hold::new(EntryId(1), &kept, second, start);
        let end = hold.valid_until();
        // Nobody has looked: an answer that comes late is welcome.
        hold.extend(second, end);
        assert!(hold.is_good(end));
        let end = hold.valid_until();
        assert_eq!(hold.lost_by(end), Some(Lost::Expired));
        hold.extend(second, end);
        assert!(!hold.is_good(start), "it was told that it is lost");
        assert_eq!((hold.lost_by(start), hold.valid_until()), (Some(Lost::Expired), end));
    }

    #[test]
    fn what_has_no_end_is_never_over() {
        let kept = Lease::Kept(Duration::from_secs(1));
        let hold = Hold::new(EntryId(1), &kept, grant(Term::Open), Tick(0));
        assert!(hold.is_good(Tick(u64::MAX - 1)) && hold.is_good(Tick::NEVER));
        assert_eq!(hold.valid_until(), Tick::NEVER);
    }
}
