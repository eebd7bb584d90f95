//! A task that waits for a lock.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_background::is_thread_ending;
use leasehold_core::store::Joined;
use leasehold_core::{EntryId, Result, Tick};

use super::{Engine, forked};
use crate::local::LaneKey;
use crate::local::lane::Overdue;
use crate::local::waiter::{Lent, Outcome, Waiter};

/// A task that waits. Dropping it takes it out of the queue, and gives back what it was handed meanwhile.
pub(super) struct WaitingTask(Option<Parts>);

struct Parts {
    engine: Arc<Engine>,
    key: LaneKey,
    waiter: Arc<Waiter>,
    /// Whether it polls a request.
    lent: bool,
}

/// How the wait ended, with what a guard needs.
pub(super) struct Waited {
    pub(super) engine: Arc<Engine>,
    pub(super) key: LaneKey,
    pub(super) outcome: Outcome,
}

impl WaitingTask {
    pub(super) fn new(engine: Arc<Engine>, key: LaneKey, waiter: Arc<Waiter>) -> Self {
        WaitingTask(Some(Parts { engine, key, waiter, lent: false }))
    }

    /// Waits for the answer to a request, too.
    pub(super) fn with(engine: Arc<Engine>, key: LaneKey, waiter: Arc<Waiter>, request: Lent) -> Self {
        waiter.lend(request);
        WaitingTask(Some(Parts { engine, key, waiter, lent: true }))
    }
}

impl WaitingTask {
    /// How things stand for it when its time is over.
    pub(super) fn overdue(&self) -> Overdue {
        let overdue = |parts: &Parts| parts.engine.table.overdue(&parts.key, &parts.waiter);
        self.0.as_ref().map_or(Overdue::Busy, overdue)
    }
}

impl Parts {
    /// This is a forked child, and the place in the queue is the parent's.
    fn forgotten(self) -> Waited {
        let Parts { engine, key, waiter, .. } = self;
        std::mem::forget(waiter);
        Waited { engine, key, outcome: Outcome::Failed(forked()) }
    }

    fn poll_request(&self, cx: &mut Context<'_>) -> Option<(Result<Joined>, EntryId, Tick)> {
        if !self.lent {
            return None;
        }
        if is_thread_ending() {
            // Nothing can be polled here: a task does it.
            if let Some(request) = self.waiter.take_request() {
                self.engine.go_on(self.key.clone(), request);
            }
            return None;
        }
        // Stores set timers and start tasks, and whoever polls us may run elsewhere.
        let _context = self.engine.background.enter();
        self.waiter.poll_request(cx)
    }
}

impl Future for WaitingTask {
    type Output = Waited;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Waited> {
        let Some(parts) = &self.0 else { return Poll::Pending };
        if parts.engine.is_forked() {
            return self.0.take().map_or(Poll::Pending, |parts| Poll::Ready(parts.forgotten()));
        }
        if let Some((answer, id, asked)) = parts.poll_request(cx) {
            parts.engine.joined(&parts.key, id, answer, asked);
        }
        let Poll::Ready(outcome) = parts.waiter.poll(cx) else { return Poll::Pending };
        match self.0.take() {
            Some(Parts { engine, key, waiter, .. }) => {
                // The wait may end before the store answers: by a note, or because the client is closed.
                if let Some(request) = waiter.take_request() {
                    engine.go_on(key.clone(), request);
                }
                Poll::Ready(Waited { engine, key, outcome })
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for WaitingTask {
    fn drop(&mut self) {
        let Some(parts) = self.0.take() else { return };
        if parts.engine.is_forked() {
            return std::mem::forget(parts);
        }
        let Parts { engine, key, waiter, .. } = parts;
        if let Some(request) = waiter.take_request() {
            engine.go_on(key.clone(), request);
        }
        let visit = engine.table.cancel(&key, &waiter);
        if let Some(handed) = engine.settle(visit) {
            engine.release_in_background(key, &handed.hold, engine.now());
        }
    }
}
