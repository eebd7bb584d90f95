//! How entries leave the store: repeated after lost answers, never twice at once, and never for nothing.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::{Leave, Left, Pending};
use leasehold_core::{EntryId, Error, Kind, Name, Result, Retry, Tick};

use super::Engine;
use super::asking::Asked;
use crate::local::RETRY;

impl Engine {
    fn leave(&self, leave: &Leave) -> Asked<Left> {
        if let Some(answer) = self.session.leave_now(leave) {
            return Asked::Answered(answer);
        }
        let _context = self.runtime.enter();
        Asked::new(self.session.clone().leave(leave.clone()))
    }

    /// A `leave` is over. What was disowned meanwhile is left once more: it may have been made after the first.
    fn left(self: &Arc<Self>, name: &Name, id: EntryId) {
        if self.table.left(name, id) {
            self.leave_in_background(Leave::new(name.clone(), id), self.now() + self.table.rules.lease);
        }
    }

    /// An entry that nobody here knows is taken out, unless that is being done: two at once would make the first believe that
    /// somebody took the lock away.
    pub(super) fn disown(self: &Arc<Self>, name: Name, id: EntryId) {
        if self.table.disown(&name, id) {
            self.leave_in_background(Leave::new(name, id), self.now() + self.table.rules.lease);
        }
    }

    /// A lease has ended for us. Soon it has for the store, which then has to notice.
    pub(super) fn bury(self: &Arc<Self>, name: Name, id: EntryId, after: Duration) {
        let engine = self.clone();
        self.runtime.spawn(async move {
            tokio::time::sleep(after).await;
            engine.leave_in_background(Leave::new(name, id), engine.now() + engine.table.rules.lease);
        });
    }

    /// Takes an entry out of the store. Goes on in a task of its own if this future is dropped, or if the first try fails.
    /// The name comes back.
    pub(super) async fn leave_and_wait(self: &Arc<Self>, leave: Leave, until: Tick) -> Result<(Name, Left)> {
        let first = match self.leave(&leave) {
            Asked::Answered(Ok(left)) => {
                self.left(&leave.name, leave.id);
                return Ok((leave.name, left));
            }
            Asked::Answered(error) => Asked::Answered(error),
            Asked::Pending(pending) => {
                let mut first = FirstTry { engine: self, parts: Some((pending, leave.clone(), until)) };
                match first.answer().await {
                    Ok(left) => {
                        self.left(&leave.name, leave.id);
                        return Ok((leave.name, left));
                    }
                    error => Asked::Answered(error),
                }
            }
        };
        let name = leave.name.clone();
        let task = self.runtime.spawn(self.clone().leave_until(first, leave, until));
        let left =
            task.await.unwrap_or_else(|_| Err(Error::new(Kind::Unavailable, "the runtime was shut down")));
        left.map_err(|e| self.explain(e, &name)).map(|left| (name, left))
    }

    pub(super) fn leave_in_background(self: &Arc<Self>, leave: Leave, until: Tick) {
        match self.leave(&leave) {
            Asked::Answered(Ok(_)) => self.left(&leave.name, leave.id),
            first => drop(self.runtime.spawn(self.clone().leave_until(first, leave, until))),
        }
    }

    /// Repeats a release until the lease would have ended anyway.
    async fn leave_until(self: Arc<Self>, first: Asked<Left>, leave: Leave, until: Tick) -> Result<Left> {
        let patience = self.patience_with_a_release();
        let mut answer = match first {
            Asked::Answered(answer) => answer,
            Asked::Pending(mut pending) => self.answer_here(patience, &mut pending).await,
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
                    let mut pending = self.session.clone().leave(leave.clone());
                    answer = self.answer_here(patience, &mut pending).await;
                }
            }
        };
        self.left(&leave.name, leave.id);
        left
    }

    /// How long one try at a release is waited for.
    fn patience_with_a_release(&self) -> Duration {
        (self.table.rules.lease / 3).min(self.table.rules.retry_for)
    }

    /// Waits for an answer where it is, without a task for it. What takes too long goes on in one.
    async fn answer_here(&self, time: Duration, request: &mut Pending<Left>) -> Result<Left> {
        match tokio::time::timeout(time, &mut *request).await {
            Ok(answer) => answer,
            Err(_) => {
                let never = Box::pin(std::future::pending());
                self.runtime.spawn(std::mem::replace(request, never));
                Err(Error::new(Kind::Unavailable, format!("the store did not answer within {time:?}")))
            }
        }
    }
}

/// The first try at a release that somebody waits for. It needs no task of its own, unless the one who waits goes away.
struct FirstTry<'a> {
    engine: &'a Arc<Engine>,
    parts: Option<(Pending<Left>, Leave, Tick)>,
}

impl FirstTry<'_> {
    async fn answer(&mut self) -> Result<Left> {
        let answer = match &mut self.parts {
            Some((pending, ..)) => {
                self.engine.answer_here(self.engine.patience_with_a_release(), pending).await
            }
            None => Ok(Left::Done),
        };
        self.parts = None;
        answer
    }
}

impl Drop for FirstTry<'_> {
    fn drop(&mut self) {
        if let Some((pending, leave, until)) = self.parts.take() {
            self.engine.runtime.spawn(self.engine.clone().leave_until(Asked::Pending(pending), leave, until));
        }
    }
}
