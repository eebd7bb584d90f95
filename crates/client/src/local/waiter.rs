//! One task that waits for a lock.

use std::fmt;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_background::contain_panic;
use leasehold_core::store::{Ask, Joined, Pending};
use leasehold_core::{EntryId, Error, Result, Tick, Token, Want};

use super::hold::Hold;
use crate::engine::InFlight;
use crate::sync::{Arc, Mutex, lock};

/// A task that waits. It lives in its lane's queue and in the task's future.
pub(crate) struct Waiter {
    pub(crate) want: Want,
    /// Whether it only wants to know if the lock can be had at once.
    pub(crate) tries: bool,
    /// When it came.
    since: Tick,
    /// How long it bears a store in trouble. `None`: it has a limit of its own, and stays until then.
    retry_for: Option<Duration>,
    slot: Mutex<Slot>,
    /// The request to the store that its task polls while it waits.
    request: Mutex<Option<Lent>>,
}

/// A request to the store that is not answered yet. It belongs to the client: a task that waits lends it its polls, and one that goes
/// away, or does not poll, gives it back.
pub(crate) struct Lent {
    pub(crate) answer: Pending<Joined>,
    pub(crate) id: EntryId,
    /// When it was sent.
    pub(crate) asked: Tick,
    /// The goodbye of the session waits for it.
    pub(crate) in_flight: Option<InFlight>,
    /// What was asked, if a connection of the caller's runtime carries it. That runtime may stand still.
    pub(crate) here: Option<Ask>,
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("id", &self.id).field("asked", &self.asked).finish_non_exhaustive()
    }
}

enum Slot {
    Waiting(Option<Waker>),
    Done(Outcome),
    Taken,
}

/// How a wait ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    Handed(Handed),
    Busy,
    Failed(Error),
}

/// A lock as it is handed to a task.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) hold: Arc<Hold>,
    pub(crate) token: Token,
}

impl Waiter {
    pub(crate) fn new(want: Want, tries: bool, since: Tick, retry_for: Option<Duration>) -> Arc<Self> {
        let (slot, request) = (Mutex::new(Slot::Waiting(None)), Mutex::new(None));
        Arc::new(Waiter { want, tries, since, retry_for, slot, request })
    }

    /// When it gives up if the store is in trouble since then and stays so.
    pub(crate) fn gives_up_at(&self, trouble: Tick) -> Tick {
        self.retry_for.map_or(Tick::NEVER, |time| self.in_trouble_since(trouble) + time)
    }

    /// Since when the trouble is its own.
    pub(crate) fn in_trouble_since(&self, trouble: Tick) -> Tick {
        trouble.max(self.since)
    }

    /// The task polls this request from now on.
    pub(crate) fn lend(&self, request: Lent) {
        *lock(&self.request) = Some(request);
    }

    /// Looks whether the store has answered. The task is about to look whether it may go on, so nobody has to wake it for that.
    pub(crate) fn poll_request(&self, cx: &mut Context<'_>) -> Option<(Result<Joined>, EntryId, Tick)> {
        let mut lent = lock(&self.request);
        let request = lent.as_mut()?;
        let Poll::Ready(answer) = request.answer.as_mut().poll(cx) else { return None };
        let (id, asked) = (request.id, request.asked);
        let done = lent.take();
        drop(lent);
        drop(done);
        if let Slot::Waiting(waker) = &mut *lock(&self.slot) {
            *waker = None;
        }
        Some((answer, id, asked))
    }

    /// Takes the request, if it is not answered. `None` also if it is being polled at this moment: then it is in good hands.
    pub(crate) fn take_request(&self) -> Option<Lent> {
        match self.request.try_lock() {
            Ok(mut request) => request.take(),
            Err(std::sync::TryLockError::Poisoned(request)) => request.into_inner().take(),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Ends the wait. The waker is returned, to be called when no mutex is held any more.
    pub(crate) fn finish(&self, outcome: Outcome) -> Option<Waker> {
        match std::mem::replace(&mut *lock(&self.slot), Slot::Done(outcome)) {
            Slot::Waiting(waker) => waker,
            Slot::Done(_) | Slot::Taken => None,
        }
    }

    /// Whether the wait has ended, and its task has not seen it yet.
    pub(crate) fn is_done(&self) -> bool {
        matches!(*lock(&self.slot), Slot::Done(_))
    }

    /// Takes the outcome, if there is one.
    pub(crate) fn take(&self) -> Option<Outcome> {
        let mut slot = lock(&self.slot);
        match std::mem::replace(&mut *slot, Slot::Taken) {
            Slot::Done(outcome) => Some(outcome),
            other => {
                *slot = other;
                None
            }
        }
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut slot = lock(&self.slot);
        match std::mem::replace(&mut *slot, Slot::Taken) {
            Slot::Done(outcome) => Poll::Ready(outcome),
            Slot::Waiting(Some(waker)) if waker.will_wake(cx.waker()) => {
                *slot = Slot::Waiting(Some(waker));
                Poll::Pending
            }
            Slot::Waiting(_) => {
                *slot = Slot::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
            Slot::Taken => Poll::Pending,
        }
    }
}

/// Wakers to call once the mutexes are let go. Nearly always there is at most one. They are code of the user's runtime:
/// one that panics keeps no other task from being woken.
#[derive(Default)]
pub(crate) struct Wakers {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakers {
    pub(crate) fn add(&mut self, waker: Option<Waker>) {
        let Some(waker) = waker else { return };
        match &self.first {
            None => self.first = Some(waker),
            Some(_) => self.more.push(waker),
        }
    }

    pub(crate) fn wake(self) {
        let Some(first) = self.first else { return };
        contain_panic(|| first.wake());
        self.more.into_iter().for_each(|waker| contain_panic(|| waker.wake()));
    }
}
