//! How entries leave the store: repeated after lost answers, never twice at once, and never for nothing.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::{Leave, Left};
use leasehold_core::{EntryId, Error, Kind, Name, Result, Retry, Tick};

use super::Engine;
use super::asking::Asked;
use crate::local::RETRY;
use crate::sync::lock;

impl Engine {
    fn leave(&self, leave: &Leave) -> Asked<Left> {
        if let Some(answer) = self.session.leave_now(leave) {
            return Asked::Answered(answer);
        }
        lock(&self.leaving).entry(leave.id).or_insert(false);
        let _context = self.runtime.enter();
        let asked = Asked::new(self.session.clone().leave(leave.clone()));
        if let Asked::Answered(Ok(_)) = asked {
            lock(&self.leaving).remove(&leave.id);
        }
        asked
    }

    /// A `leave` is over. What was disowned meanwhile is left once more: it may have been made after the first.
    fn left(self: &Arc<Self>, leave: Leave) {
        let again = lock(&self.leaving).remove(&leave.id);
        if again == Some(true) {
            self.leave_in_background(Leave::new(leave.name, leave.id), self.now() + self.table.rules.lease);
        }
    }

    /// An entry that nobody here knows is taken out, unless that is being done: two at once would make the first believe that
    /// somebody took the lock away.
    pub(super) fn disown(self: &Arc<Self>, name: Name, id: EntryId) {
        if let Some(again) = lock(&self.leaving).get_mut(&id) {
            *again = true;
            return;
        }
        self.leave_in_background(Leave::new(name, id), self.now() + self.table.rules.lease);
    }

    /// A lease has ended for us. Soon it has for the store, which then has to notice.
    pub(super) fn bury(self: &Arc<Self>, name: Name, id: EntryId, after: Duration) {
        let engine = self.clone();
        self.runtime.spawn(async move {
            tokio::time::sleep(after).await;
            engine.leave_in_background(Leave::new(name, id), engine.now() + engine.table.rules.lease);
        });
    }

    /// Takes an entry out of the store. Goes on in a task of its own if it takes time, so that dropping this future does
    /// not stop it. The name comes back.
    pub(super) async fn leave_and_wait(self: &Arc<Self>, leave: Leave, until: Tick) -> Result<(Name, Left)> {
        let first = match self.leave(&leave) {
            Asked::Answered(Ok(left)) => return Ok((leave.name, left)),
            first => first,
        };
        let name = leave.name.clone();
        let task = self.runtime.spawn(self.clone().leave_until(first, leave, until));
        let left =
            task.await.unwrap_or_else(|_| Err(Error::new(Kind::Unavailable, "the runtime was shut down")));
        left.map_err(|e| self.explain(e, &name)).map(|left| (name, left))
    }

    pub(super) fn leave_in_background(self: &Arc<Self>, leave: Leave, until: Tick) {
        match self.leave(&leave) {
            Asked::Answered(Ok(_)) => {}
            first => drop(self.runtime.spawn(self.clone().leave_until(first, leave, until))),
        }
    }

    /// Repeats a release until the lease would have ended anyway.
    async fn leave_until(self: Arc<Self>, first: Asked<Left>, leave: Leave, until: Tick) -> Result<Left> {
        let patience = (self.table.rules.lease / 3).min(self.table.rules.retry_for);
        let mut answer = match first {
            Asked::Answered(answer) => answer,
            Asked::Pending(pending) => self.answer_within(patience, pending).await,
        };
        let mut tries = 0;
        let left = loop {
            match answer {
                // After a lost answer "not there" means that the first try did it.
                Ok(left) => break Ok(if tries > 0 { Left::Done } else { left }),
                Err(error) if error.retry_advice() == Retry::Never || self.now() >= until => {
                    break Err(error);
                }
                Err(error) => {
                    tracing::debug!(target: "leasehold", name = %leave.name, %error, tries, "release is tried again");
                    tokio::time::sleep(RETRY.pause(tries, leave.id.0 as u32)).await;
                    tries += 1;
                    answer = self.answer_within(patience, self.session.clone().leave(leave.clone())).await;
                }
            }
        };
        self.left(leave);
        left
    }
}
