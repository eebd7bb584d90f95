//! What people and programs see of a lock: who holds it, who waits, and what happens to it.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;

use crate::{EntryId, Error, Kind, Label, Name, Result, SessionId, Token, Want};

/// Why a lease ended before its guard was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// Its time was over: it was not (or could not be) renewed.
    Expired,
    /// Somebody took it away with a force release.
    Revoked,
    /// The session at the store ended.
    SessionGone,
    /// The store no longer knows the lock: its data was deleted or it came back empty.
    Wiped,
}

impl Lost {
    /// The word that people and programs read.
    pub const fn as_str(self) -> &'static str {
        match self {
            Lost::Expired => "expired",
            Lost::Revoked => "revoked",
            Lost::SessionGone => "session gone",
            Lost::Wiped => "store wiped",
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Lost {}

/// For `guard.protect(work).await?`.
impl From<Lost> for Error {
    fn from(why: Lost) -> Error {
        Error::new(Kind::Lost, "the lock was lost while it was in use")
            .because(why)
            .advice("others may hold it now: see what was done so far before you go on")
    }
}

/// A lock as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The lock.
    pub name: Name,
    /// Who holds it, in the order of their grants.
    pub holders: Vec<EntryView>,
    /// Who waits: the queue in its order, then those that barge.
    pub waiters: Vec<EntryView>,
    /// The number of permits in force, if it is used as a semaphore.
    pub limit: Option<u32>,
}

/// One entry of a lock. It stands for one client: tasks of one client queue locally behind one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryView {
    /// The attempt.
    pub id: EntryId,
    /// The client's session.
    pub session: SessionId,
    /// The client in words.
    pub label: Label,
    /// What it wants or has.
    pub want: Want,
    /// Whether it barges instead of queueing.
    pub barges: bool,
    /// When it came, in microseconds since 1970 by the store's clock.
    pub since: u64,
    /// When it got the lock, in microseconds since 1970; `None` while it waits.
    pub held_since: Option<u64>,
    /// The token of its grant; `None` while it waits. After local hand-overs the client's own current token is a
    /// little higher.
    pub token: Option<Token>,
    /// How long the lease (or the place in the queue) still lasts if nothing renews it; `None` if it ends only
    /// with the session.
    pub lease_left: Option<Duration>,
    /// How many stand before it in the queue; `None` for holders and for those that barge.
    pub place: Option<u32>,
    /// Whether somebody asked it to give the lock back; only holders are asked.
    pub release_requested: bool,
}

/// Something that happened to a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds since 1970 by the store's clock.
    pub at: u64,
    /// To which lock.
    pub name: Name,
    /// What.
    pub what: Happened,
    /// Whose entry it was.
    pub label: Label,
    /// The client's session.
    pub session: SessionId,
    /// What it wants or had.
    pub want: Want,
    /// The token, if it held or holds the lock.
    pub token: Option<Token>,
}

/// What can happen to an entry of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Happened {
    /// It joined the queue and waits.
    Queued,
    /// It got the lock.
    Acquired,
    /// It gave the lock back.
    Released,
    /// It stopped waiting.
    Left,
    /// It lost the lock, or its place, before its time: revoked, or the session ended.
    Lost(Lost),
    /// Its lease, or its place in the queue, ended.
    Expired,
    /// It holds the lock, and somebody asked it to give the lock back.
    ReleaseRequested,
}

impl Happened {
    /// The word that people and programs read.
    pub const fn as_str(self) -> &'static str {
        match self {
            Happened::Queued => "queued",
            Happened::Acquired => "acquired",
            Happened::Released => "released",
            Happened::Left => "left",
            Happened::Lost(_) => "lost",
            Happened::Expired => "expired",
            Happened::ReleaseRequested => "release requested",
        }
    }
}

/// A stream of what happens.
pub type Events = Pin<Box<dyn Stream<Item = Result<Event>> + Send>>;
