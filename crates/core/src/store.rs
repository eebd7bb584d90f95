//! The trait that a store implements, and what goes through it.
//!
//! A store keeps queues and tells sessions what concerns them. It knows nothing of guards, local queues, renewal
//! schedules or cancellation: that is the client's part, the same for all stores.
//!
//! # The contract
//!
//! - **Idempotent by entry id.** [`join`](Session::join), [`renew`](Session::renew) and [`leave`](Session::leave) can be
//!   repeated with the same id after a lost answer.
//! - **Ready at once where it can be.** A future that finishes on its first poll (memory, file) costs the client no task
//!   and no wake-up. It must not block the thread for longer than a few system calls.
//! - **Never dropped half-way.** The client polls every future to its end, in a task of its own if need be.
//! - **Notes come after the effect**, and never while the store holds a lock of its own: the receiver may call back.
//! - **A lost note does no harm**: the client asks again ([`renew`](Session::renew)) at the latest when
//!   [`Waiting::poll_in`] is over or a third of the place's length has passed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::doctor::Finding;
use crate::view::{Events, Lost, Snapshot};
use crate::{EntryId, Label, Lease, Name, Result, SessionId, Tick, Token, TokenBlock, Traits, Want};

/// What a store's methods return: a future that the client can hand to a task.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'static>>;

/// A finished [`Pending`].
pub fn ready<T: Send + 'static>(answer: Result<T>) -> Pending<T> {
    Box::pin(std::future::ready(answer))
}

/// Where queues live.
pub trait Store: Send + Sync + 'static {
    /// What this store promises.
    fn traits(&self) -> &'static Traits;

    /// The store's URL as it may be printed: no password in it.
    fn url(&self) -> String;

    /// Begins a presence at the store. Notes for it go to `inbox` until the session is closed.
    fn open(self: Arc<Self>, me: Presence, inbox: Arc<dyn Inbox>) -> Pending<Arc<dyn Session>>;

    /// How long one request may take until it is answered or fails: the limit of a claim that does not wait, unless the
    /// client has another one.
    fn timeout(&self) -> Duration {
        Duration::from_secs(3)
    }

    /// Looks at what only this store can know of itself: versions, settings, replicas, clocks. Changes nothing, and may be
    /// dropped half-way. What every store has (how long a lock takes) is not looked at here. What may not be looked at is a
    /// finding, not an error.
    fn examine(self: Arc<Self>) -> Pending<Vec<Finding>> {
        ready(Ok(Vec::new()))
    }
}

/// Who opens a session.
#[derive(Debug, Clone)]
pub struct Presence {
    /// A random id.
    pub id: SessionId,
    /// What people read.
    pub label: Label,
}

/// One client's presence at a store.
pub trait Session: Send + Sync + 'static {
    /// Asks for a lock.
    fn join(self: Arc<Self>, ask: Ask) -> Pending<Joined>;

    /// As [`join`](Session::join), for a store that can answer on the spot, without a runtime and without blocking: it
    /// saves the client a boxed future on its hottest path. `None` means: ask with `join`; then nothing has happened.
    fn join_now(&self, ask: &Ask) -> Option<Result<Joined>> {
        let _ = ask;
        None
    }

    /// As [`leave`](Session::leave), on the spot; see [`join_now`](Session::join_now).
    fn leave_now(&self, leave: &Leave) -> Option<Result<Left>> {
        let _ = leave;
        None
    }

    /// As [`join`](Session::join), for a store that keeps connections on the runtime of the caller too: the answer needs no
    /// hop between threads. `None` means: ask with `join`; then nothing has happened. Called inside the caller's runtime, and never
    /// for what has to be done even if that runtime stands still or ends.
    fn join_here(&self, ask: &Ask) -> Option<Pending<Joined>> {
        let _ = ask;
        None
    }

    /// As [`leave`](Session::leave), by connections of the caller's runtime; see [`join_here`](Session::join_here).
    fn leave_here(&self, leave: &Leave) -> Option<Pending<Left>> {
        let _ = leave;
        None
    }

    /// Renews leases and places in the queue, and asks how things stand; one answer for each, in the same order.
    /// Each is judged on its own. The outer error means that none was answered.
    fn renew(self: Arc<Self>, batch: Vec<Renewal>) -> Pending<Vec<Result<Renewed>>>;

    /// Names with the same number may be renewed in one batch; a node that hangs delays only its own.
    fn group(&self, name: &Name) -> u64 {
        let _ = name;
        0
    }

    /// Takes an entry out of the queue: release and cancellation alike. Tells whether it was still there.
    fn leave(self: Arc<Self>, leave: Leave) -> Pending<Left>;

    /// Turns an exclusive hold into a shared one, keeping its place and its token.
    fn downgrade(self: Arc<Self>, name: Name, id: EntryId) -> Pending<Left>;

    /// Changes the number of permits of a semaphore that is in use. Does nothing if it is not: the first to come sets
    /// the limit. Refused while somebody waits for more than that.
    fn set_limit(self: Arc<Self>, name: Name, limit: u32) -> Pending<()>;

    /// Takes the lock away from its holders: all of them, or the one with this token. Tells whom.
    fn revoke(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot>;

    /// Asks the holders to give the lock back: all of them, or the one with this token. Takes nothing away: they are told
    /// ([`News::ReleaseRequested`]) and decide. The snapshot's holders are those that were asked.
    ///
    /// The request stays with an entry until it leaves, never passes to the next holder, and is part of every answer about
    /// the entry ([`Grant::release_requested`]): so a lost note is made good by the next renewal. Asking again tells them
    /// again; watchers see the first request only.
    fn request_release(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot>;

    /// How a lock stands. A name that nobody uses has no holders and no waiters.
    fn inspect(self: Arc<Self>, name: Name) -> Pending<Snapshot>;

    /// Up to `most` of the names in use that start with `prefix` and come after `after` in byte order.
    fn list(self: Arc<Self>, prefix: String, after: Option<Name>, most: usize) -> Pending<Vec<Snapshot>>;

    /// What happens from now on to names that start with `prefix`.
    fn watch(self: Arc<Self>, prefix: String) -> Pending<Events>;

    /// A file that keeps the session alive for as long as anybody has it open, also after this process is gone: for a
    /// helper process that has to clean up before the locks go to others. `None` where a session can't be lent.
    #[cfg(unix)]
    fn lifeline(&self) -> Option<std::os::fd::OwnedFd> {
        None
    }

    /// Ends the presence: every entry of the session leaves its queue. Repeating it does nothing.
    fn close(self: Arc<Self>) -> Pending<()>;
}

/// A request for a lock.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Which lock.
    pub name: Name,
    /// This attempt.
    pub id: EntryId,
    /// What is wanted.
    pub want: Want,
    /// How long a grant lasts.
    pub lease: Lease,
    /// How long a place in the queue lasts without being renewed.
    pub place: Duration,
    /// What to do if it can't be had at once.
    pub otherwise: Otherwise,
}

/// What happens to an [`Ask`] that can't be granted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// It joins the queue.
    Queue,
    /// It is noted as one that barges, and told ([`News::Retry`]) when trying again may help.
    Barge,
    /// It leaves nothing behind.
    GoAway,
}

/// The answer to an [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// The lock is held.
    Held(Grant),
    /// The entry waits; a [`Note`] will come.
    Waiting(Waiting),
    /// It is busy, and nothing was left behind.
    Busy,
}

/// What the store granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The tokens of this grant.
    pub tokens: TokenBlock,
    /// How long it is good without being renewed.
    pub term: Term,
    /// Whether the lease runs already. A fixed lease that was granted while its owner waited starts when the owner renews it
    /// once; until then the term is that of its place.
    pub started: bool,
    /// Whether others wait for this lock.
    pub contended: bool,
    /// Whether somebody asked for the lock back ([`Session::request_release`]).
    pub release_requested: bool,
}

/// How long a grant is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term {
    /// For this long, counted from before the last answered request about this entry was *sent*.
    For(Duration),
    /// Until this moment: the store shares the client's clock.
    Until(Tick),
    /// As long as the session lives.
    Open,
    /// For as long as a session of the store lives, which is certain only for a part of the lease at a time; on the client's
    /// clock.
    Session {
        /// Until when it is certain.
        until: Tick,
        /// When the client should ask again, to be certain for longer.
        renew_at: Tick,
        /// The end of a fixed lease; [`Tick::NEVER`] if the lease is kept.
        ends: Tick,
    },
}

/// How an entry waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// How many wait before it; `None` if it barges.
    pub place: Option<u32>,
    /// When asking again can first find a change that nobody else would tell of (the end of the holder's lease).
    pub poll_in: Option<Duration>,
}

/// One line of a [`Session::renew`] batch.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// Which lock.
    pub name: Name,
    /// Which entry.
    pub id: EntryId,
    /// The highest token that it was given, if it holds: tells a revoked lease from a wiped store.
    pub token: Option<Token>,
    /// Whether a new block of tokens is wanted (the local queue used the old one up).
    pub more_tokens: bool,
}

/// The answer to a [`Renewal`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// It holds the lock. The tokens are a fresh block if one was asked for, else the last one given.
    Held(Grant),
    /// It waits.
    Waiting(Waiting),
    /// There is no such entry (any more).
    Gone(Lost),
}

/// A request to take an entry out of its queue.
#[derive(Debug, Clone)]
pub struct Leave {
    /// Which lock.
    pub name: Name,
    /// Which entry.
    pub id: EntryId,
    /// The highest token of the grant that was really handed out, if it is known: the rest of the block goes back, so that
    /// a lock that is taken thousands of times a second does not run ahead of the clock that its tokens start from.
    pub used: Option<Token>,
}

impl Leave {
    /// Leaves without giving tokens back.
    pub fn new(name: Name, id: EntryId) -> Self {
        Leave { name, id, used: None }
    }
}

/// What became of an entry that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// It was there, and now the change is made.
    Done,
    /// It was not there: it left, expired or was revoked before.
    NotThere,
}

/// Something that a store tells a session unasked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// About which lock.
    pub name: Name,
    /// About which entry.
    pub id: EntryId,
    /// What.
    pub news: News,
}

/// What a [`Note`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A waiting entry holds the lock now.
    Granted(Grant),
    /// The client should ask about the entry ([`Session::renew`]): one that barges may get in, and whatever was said about any other
    /// may have been missed.
    Retry,
    /// The entry was taken out of the queue.
    Gone(Lost),
    /// Somebody asks the entry, which holds the lock, to give it back ([`Session::request_release`]).
    ReleaseRequested,
}

/// Where a session's notes go.
pub trait Inbox: Send + Sync + 'static {
    /// Takes a note. Returns quickly and never blocks.
    fn note(&self, note: Note);

    /// The whole session ended at the store: everything it held or waited for is gone.
    fn session_gone(&self);
}
