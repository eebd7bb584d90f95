//! One client's presence: each call is one event on one queue, done before the first poll returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::queue::Effects;
use leasehold_core::store::{
    Ask, Inbox, Joined, Leave, Left, Pending, Presence, Renewal, Renewed, Session, ready,
};
use leasehold_core::view::{Events, Snapshot};
use leasehold_core::{EntryId, Error, Kind, Name, Result, Token};

use crate::Memory;
use crate::state::{At, POLICY};

pub(crate) struct MemorySession {
    store: Arc<Memory>,
    me: Presence,
    /// Set before the entries are removed, read under the mutex of the queue: no entry is made after that.
    closed: AtomicBool,
}

impl MemorySession {
    pub(crate) fn open(store: Arc<Memory>, me: Presence, inbox: Arc<dyn Inbox>) -> Arc<dyn Session> {
        store.state.wake.register(me.id, inbox);
        Arc::new(MemorySession { store, me, closed: AtomicBool::new(false) })
    }

    fn on<T>(&self, name: &Name, event: impl FnOnce(At<'_>, &mut Effects) -> T) -> T {
        self.store.state.apply(name, event)
    }

    fn join_at_once(&self, ask: &Ask) -> Result<Joined> {
        self.on(&ask.name, |at, out| {
            if self.closed.load(Ordering::Acquire) {
                return Err(Error::new(Kind::Refused, "the session is closed"));
            }
            at.queue.join(self.me.id, &self.me.label, ask, POLICY, at.now, out)
        })
    }

    fn leave_at_once(&self, leave: &Leave) -> Left {
        if self.store.state.leave_alone(leave) {
            return Left::Done;
        }
        self.on(&leave.name, |at, out| at.queue.leave(leave.id, leave.used, POLICY, at.now, out))
    }

    fn end(&self) {
        self.closed.store(true, Ordering::Release);
        self.store.state.wake.unregister(self.me.id);
        self.store.state.everywhere(|at, out| at.queue.session_gone(self.me.id, POLICY, at.now, out));
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.end();
    }
}

impl Session for MemorySession {
    fn join(self: Arc<Self>, ask: Ask) -> Pending<Joined> {
        ready(self.join_at_once(&ask))
    }

    fn join_now(&self, ask: &Ask) -> Option<Result<Joined>> {
        Some(self.join_at_once(ask))
    }

    fn leave_now(&self, leave: &Leave) -> Option<Result<Left>> {
        Some(Ok(self.leave_at_once(leave)))
    }

    fn renew(self: Arc<Self>, batch: Vec<Renewal>) -> Pending<Vec<Result<Renewed>>> {
        let renew = |ask: &Renewal| self.on(&ask.name, |at, out| at.queue.renew(ask, POLICY, at.now, out));
        ready(Ok(batch.iter().map(|ask| Ok(renew(ask))).collect()))
    }

    fn leave(self: Arc<Self>, leave: Leave) -> Pending<Left> {
        ready(Ok(self.leave_at_once(&leave)))
    }

    fn downgrade(self: Arc<Self>, name: Name, id: EntryId) -> Pending<Left> {
        ready(Ok(self.on(&name, |at, out| at.queue.downgrade(id, POLICY, at.now, out))))
    }

    fn set_limit(self: Arc<Self>, name: Name, limit: u32) -> Pending<()> {
        ready(self.on(&name, |at, out| at.queue.set_limit(limit, POLICY, at.now, out)))
    }

    fn revoke(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        ready(Ok(self.on(&name, |at, out| {
            let holders = at.queue.revoke(expected, POLICY, at.now, out);
            Snapshot { holders, ..at.queue.snapshot(&name, at.now) }
        })))
    }

    fn request_release(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        ready(Ok(self.on(&name, |at, out| {
            let holders = at.queue.request_release(expected, POLICY, at.now, out);
            Snapshot { holders, ..at.queue.snapshot(&name, at.now) }
        })))
    }

    fn inspect(self: Arc<Self>, name: Name) -> Pending<Snapshot> {
        ready(Ok(self.on(&name, |at, out| {
            at.queue.expire(POLICY, at.now, out);
            at.queue.snapshot(&name, at.now)
        })))
    }

    fn list(self: Arc<Self>, prefix: String, after: Option<Name>, most: usize) -> Pending<Vec<Snapshot>> {
        self.store.state.everywhere(|at, out| at.queue.expire(POLICY, at.now, out));
        ready(Ok(self.store.state.page(&prefix, after.as_ref(), most)))
    }

    fn watch(self: Arc<Self>, prefix: String) -> Pending<Events> {
        ready(Ok(self.store.state.wake.watchers.watch(prefix)))
    }

    fn close(self: Arc<Self>) -> Pending<()> {
        self.end();
        ready(Ok(()))
    }
}
