//! A task that waits for a lock.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Engine;
use crate::local::LaneKey;
use crate::local::waiter::{Outcome, Waiter};

/// A task that waits. Dropping it takes it out of the queue, and gives back what it was handed meanwhile.
pub(super) struct WaitingTask(Option<Parts>);

struct Parts {
    engine: Arc<Engine>,
    key: LaneKey,
    waiter: Arc<Waiter>,
}

/// How the wait ended, with what a guard needs.
pub(super) struct Waited {
    pub(super) engine: Arc<Engine>,
    pub(super) key: LaneKey,
    pub(super) outcome: Outcome,
}

impl WaitingTask {
    pub(super) fn new(engine: Arc<Engine>, key: LaneKey, waiter: Arc<Waiter>) -> Self {
        WaitingTask(Some(Parts { engine, key, waiter }))
    }
}

impl Future for WaitingTask {
    type Output = Waited;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Waited> {
        let Some(parts) = &self.0 else { return Poll::Pending };
        let Poll::Ready(outcome) = parts.waiter.poll(cx) else { return Poll::Pending };
        match self.0.take() {
            Some(Parts { engine, key, .. }) => Poll::Ready(Waited { engine, key, outcome }),
            None => Poll::Pending,
        }
    }
}

impl Drop for WaitingTask {
    fn drop(&mut self) {
        let Some(Parts { engine, key, waiter }) = self.0.take() else { return };
        let visit = engine.table.cancel(&key, &waiter);
        if let Some(handed) = engine.settle(visit) {
            engine.release_in_background(key, &handed.hold, engine.now());
        }
    }
}
