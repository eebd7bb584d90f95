//! How entries leave the store: repeated after lost answers, never twice at once, and never for nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_core::store::{Leave, Left, Pending};
use leasehold_core::{EntryId, Error, Kind, Name, Result, Retry};

use super::Engine;
use super::asking::Asked;
use crate::local::RETRY;
use crate::local::leaving::Going;
use crate::local::release::{Heard, Neglected, Release};

impl Engine {
    fn leave(&self, leave: &Leave) -> Asked<Left> {
        if let Some(answer) = self.session.leave_now(leave) {
            return Asked::Answered(answer);
        }
        let _context = self.runtime.enter();
        Asked::new(self.session.clone().leave(leave.clone()))
    }

    /// A `leave` is over. What was disowned meanwhile is left once more: it may have been made after the first.
    fn left(self: &Arc<Self>, going: &Going) {
        let Going { leave: Leave { name, id, .. }, listed, .. } = going;
        if *listed && self.table.left(name, *id) {
            self.leave_in_background(self.going(name.clone(), *id, false));
        }
    }

    /// An entry that is not known to have held.
    fn going(&self, name: Name, id: EntryId, listed: bool) -> Going {
        Going { leave: Leave::new(name, id), until: self.now() + self.table.rules.lease, listed }
    }

    /// An entry that nobody here knows is taken out, unless that is being done: two at once would make the first believe that
    /// somebody took the lock away.
    pub(super) fn disown(self: &Arc<Self>, name: Name, id: EntryId) {
        if self.table.disown(&name, id) {
            self.leave_in_background(self.going(name, id, true));
        }
    }

    /// A lease has ended for us. Soon it has for the store, which then has to notice.
    pub(super) fn bury(self: &Arc<Self>, name: Name, id: EntryId, after: Duration) {
        let engine = self.clone();
        self.runtime.spawn(async move {
            tokio::time::sleep(after).await;
            engine.leave_in_background(engine.going(name, id, false));
        });
    }

    /// Takes an entry out of the store. Goes on in a task of its own if this future is dropped or not polled, or if the first try fails.
    /// The name comes back.
    pub(super) async fn leave_and_wait(self: &Arc<Self>, going: Going) -> Result<(Name, Left)> {
        let answer = match self.leave(&going.leave) {
            Asked::Answered(answer) => Heard::Here(answer),
            Asked::Pending(request) => FirstTry::new(self, going.clone(), request).await,
        };
        let name = going.leave.name.clone();
        let left = match answer {
            Heard::Here(Ok(left)) => {
                self.left(&going);
                Ok(left)
            }
            Heard::Here(failed) => {
                let task = self.runtime.spawn(self.clone().leave_until(Asked::Answered(failed), going));
                let gone = |_| Err(Error::new(Kind::Unavailable, "the runtime was shut down"));
                task.await.unwrap_or_else(gone)
            }
            Heard::Elsewhere(left) => left,
        };
        left.map_err(|e| self.explain(e, &name)).map(|left| (name, left))
    }

    /// Nobody has polled it for long.
    pub(super) fn go_on_leaving(self: &Arc<Self>, Neglected { release, request }: Neglected) {
        let engine = self.clone();
        self.runtime.spawn(async move {
            let going = release.going.clone();
            release.answer(engine.leave_until(Asked::Pending(request), going).await);
        });
    }

    pub(super) fn leave_in_background(self: &Arc<Self>, going: Going) {
        match self.leave(&going.leave) {
            Asked::Answered(Ok(_)) => self.left(&going),
            first => drop(self.runtime.spawn(self.clone().leave_until(first, going))),
        }
    }

    /// Repeats a release until the lease would have ended anyway.
    async fn leave_until(self: Arc<Self>, first: Asked<Left>, going: Going) -> Result<Left> {
        let patience = self.patience_with_a_release();
        let mut answer = match first {
            Asked::Answered(answer) => answer,
            Asked::Pending(mut pending) => self.answer_here(patience, &mut pending).await,
        };
        let (leave, mut tries) = (&going.leave, 0);
        let left = loop {
            match answer {
                // After a lost answer "not there" means that the first try did it.
                Ok(left) => break Ok(if tries > 0 { Left::Done } else { left }),
                Err(error) if error.retry_advice() == Retry::Never || self.now() >= going.until => {
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
        self.left(&going);
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

/// The first try at a release that somebody waits for. It needs no task of its own, unless the one who waits goes away or does not look.
struct FirstTry<'a> {
    engine: &'a Arc<Engine>,
    release: Arc<Release>,
}

impl<'a> FirstTry<'a> {
    fn new(engine: &'a Arc<Engine>, going: Going, request: Pending<Left>) -> Self {
        let release = Release::new(going, request);
        if engine.table.lend(release.clone()) {
            engine.keeper.notify_one();
        }
        FirstTry { engine, release }
    }
}

impl Future for FirstTry<'_> {
    type Output = Heard;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Heard> {
        // Stores set timers and start tasks, and whoever polls us may run elsewhere.
        let _context = self.engine.runtime.enter();
        self.release.poll(cx)
    }
}

impl Drop for FirstTry<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.release.take() {
            let going = self.release.going.clone();
            self.engine.runtime.spawn(self.engine.clone().leave_until(Asked::Pending(request), going));
        }
    }
}
