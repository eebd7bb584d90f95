//! Whether the client is open, and which claims are on their way to the store.
//!
//! A client that closes takes no more claims, and the session says its goodbye only when those that were sent before are
//! answered: a claim that the store granted after the goodbye would hold its lock for a whole lease. So would an entry that came into
//! being after it had been left, and whose second release the goodbye overtakes: releases in the background are waited for, too.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use leasehold_core::Result;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    in_flight: AtomicUsize,
    drained: Notify,
    ended: Notify,
    /// What came of the goodbye.
    goodbye: OnceLock<Result<()>>,
    said: Notify,
}

/// A claim or a release on its way, until it is answered.
pub(crate) struct InFlight(Arc<Gate>);

impl Gate {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Lets no more claims through. Tells whether it was open.
    pub(crate) fn close(&self) -> bool {
        let was_open = !self.closed.swap(true, Ordering::SeqCst);
        self.ended.notify_waiters();
        was_open
    }

    /// Waits until it is closed.
    pub(crate) async fn closed(&self) {
        let mut ended = std::pin::pin!(self.ended.notified());
        ended.as_mut().enable();
        if !self.is_closed() {
            ended.await;
        }
    }

    /// The session is closed, or could not be.
    pub(crate) fn said_goodbye(&self, outcome: Result<()>) {
        let _ = self.goodbye.set(outcome);
        self.said.notify_waiters();
    }

    /// Waits for the goodbye, and tells what came of it.
    pub(crate) async fn goodbye(&self) -> Result<()> {
        loop {
            let mut said = std::pin::pin!(self.said.notified());
            said.as_mut().enable();
            if let Some(outcome) = self.goodbye.get() {
                return outcome.clone();
            }
            said.await;
        }
    }

    /// A claim is about to be sent. `None` if the client is closed.
    pub(crate) fn begin_join(self: &Arc<Self>) -> Option<InFlight> {
        // Counted first and looked at then, where `close` and `drained` do it the other way round: one of both sees the other.
        let join = self.begin_leave();
        (!self.is_closed()).then_some(join)
    }

    /// A release is about to be sent.
    pub(crate) fn begin_leave(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlight(self.clone())
    }

    /// Waits until all claims and releases that were sent are answered.
    pub(crate) async fn drained(&self) {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            drained.as_mut().enable();
            if self.in_flight.load(Ordering::SeqCst) == 0 {
                return;
            }
            drained.await;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_closed() {
            self.0.drained.notify_waiters();
        }
    }
}
