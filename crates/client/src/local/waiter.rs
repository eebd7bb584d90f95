//! One task that waits for a lock.

use std::task::{Context, Poll, Waker};

use leasehold_core::{Error, Token, Want};

use super::hold::Hold;
use crate::sync::{Arc, Mutex, lock};

/// A task that waits. It lives in its lane's queue and in the task's future.
pub(crate) struct Waiter {
    pub(crate) want: Want,
    /// Whether it only wants to know if the lock can be had at once.
    pub(crate) tries: bool,
    slot: Mutex<Slot>,
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
    pub(crate) fn new(want: Want, tries: bool) -> Arc<Self> {
        Arc::new(Waiter { want, tries, slot: Mutex::new(Slot::Waiting(None)) })
    }

    /// Ends the wait. The waker is returned, to be called when no mutex is held any more.
    pub(crate) fn finish(&self, outcome: Outcome) -> Option<Waker> {
        match std::mem::replace(&mut *lock(&self.slot), Slot::Done(outcome)) {
            Slot::Waiting(waker) => waker,
            Slot::Done(_) | Slot::Taken => None,
        }
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

/// Wakers to call once the mutexes are let go. Nearly always there is at most one.
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
        first.wake();
        self.more.into_iter().for_each(Waker::wake);
    }
}
