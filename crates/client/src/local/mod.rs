//! The local queue: tasks of one client that want the same name queue here, and one entry stands for them at the store.
//!
//! While the lease is good and the [budget](crate::Budget) lasts, the lock passes from task to task without a trip to the
//! store, each holder with its own token from the block that the store reserved.
//!
//! Everything here is plain state behind short mutexes. It does no I/O: what must be said to the store comes out as
//! [`Action`]s, which the [engine](crate::engine) carries out. So it can be run under the `shuttle` checker as it is.
//!
//! # Layout
//!
//! - [`hold`]: one lease as its guards see it: valid until when, lost why.
//! - [`waiter`]: one task that waits.
//! - [`lane`]: the queue of one name: who waits, which entry stands at the store, who holds.
//! - [`asking`], [`held`]: that entry, before and after it is granted.
//! - [`leaving`]: entries on their way out; [`release`]: those that somebody waits for.
//! - [`reentrancy`]: how many guards of one owner share a hold, and whether it may still write.
//! - [`table`]: all lanes of a client, in shards.
//! - `interleavings`: all of it under the `shuttle` checker.

mod asking;
mod held;
pub(crate) mod hold;
#[cfg(all(test, shuttle))]
mod interleavings;
pub(crate) mod lane;
pub(crate) mod leaving;
pub(crate) mod reentrancy;
pub(crate) mod release;
pub(crate) mod table;
pub(crate) mod waiter;

use std::time::Duration;

use leasehold_core::store::Ask;
use leasehold_core::traits::Death;
use leasehold_core::{Backoff, EntryId, Lease, Name, Tick, Token};

use crate::budget::Budget;

/// Which lane: claims that can be handed on to each other share one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneKey {
    pub(crate) name: Name,
    pub(crate) kind: LaneKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneKind {
    /// Kept leases, in queue order.
    Queue,
    /// Kept leases, barging.
    Barge,
    /// One claim alone: permits, fixed leases, or a client without a local queue. It keeps its entry id for life.
    Solo(EntryId),
}

/// How the claims of a lane ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The lease of a solo claim; the other lanes have the client's default.
    pub(crate) lease: Lease,
    /// Whether they barge instead of queueing.
    pub(crate) barges: bool,
    /// How long the one that comes bears a store in trouble. `None`: it has a limit of its own.
    pub(crate) retry_for: Option<Duration>,
}

/// What must be said to the store.
#[derive(Debug)]
pub(crate) enum Action {
    /// Ask for the lock; the answer goes to [`table::Table::joined`].
    Join(LaneKey, Ask),
    /// Nobody has polled this request for long: it goes on by itself.
    GoOn(LaneKey, waiter::Lent),
    /// The same for a release.
    GoOnLeaving(release::Neglected),
    /// Take an entry out.
    Leave(leaving::Going),
    /// The lease has ended for us; soon it has for the store, which then has to notice.
    Bury(Name, EntryId, Duration),
    /// The store knows an entry that nobody here does: its task was cancelled while the request was under way.
    Disown(Name, EntryId),
    /// Renew, or ask how an entry stands.
    Renew(Due),
}

/// An entry that wants to be renewed.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub(crate) key: LaneKey,
    pub(crate) id: EntryId,
    /// The highest token given out, if it holds.
    pub(crate) token: Option<Token>,
    /// Whether the budget is over: new tokens, and the news whether others wait.
    pub(crate) more_tokens: bool,
}

impl Due {
    /// A waiting entry, to be asked about: renews its place, and a barging one tries again.
    pub(crate) fn waiting(key: LaneKey, id: EntryId) -> Self {
        Due { key, id, token: None, more_tokens: false }
    }
}

/// What all lanes of a client share.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) lease: Duration,
    pub(crate) budget: Budget,
    /// How long a verb without a limit of its own bears a store in trouble.
    pub(crate) retry_for: Duration,
    /// How long a claim that does not wait does.
    pub(crate) try_for: Duration,
    pub(crate) death: Death,
}

impl Rules {
    /// How much earlier than it must be a lease is renewed to be renewed together with others: a tenth of the time between
    /// two renewals. Without it the renewals of locks that were taken one after the other stay apart for ever.
    pub(crate) fn together(&self) -> Duration {
        self.lease / 30
    }

    /// When an entry has ended by itself that would live until `end` where time ends it. Where deaths are noticed by other means,
    /// it stays for as long as this process lives.
    pub(crate) fn gone_by(&self, end: Tick) -> Tick {
        if self.death == Death::AtOnce { Tick::NEVER } else { end }
    }

    /// How long the first answer about an entry may take before it is asked for again.
    pub(crate) fn first_answer(&self) -> Duration {
        (self.lease / 3).min(self.retry_for)
    }
}

/// How long a request is left to the task that waits for it. A future that is polled once and then left alone, as in a buffered
/// stream, must not hold up what the store keeps for its request, nor others that wait for the same lock.
pub(crate) const LENT: Duration = Duration::from_millis(100);

/// How often an entry is looked at that nothing else would make us look at: the net under lost messages, and for an
/// open-ended lease the check that the store still knows it.
pub(crate) const SLOW_POLL: Duration = Duration::from_secs(10);

/// How much longer than its limit a claim waits for an answer that is on its way: whoever gave a shorter limit than a trip to the store takes
/// is told how the lock stands.
pub(crate) const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// A request that a connection of the caller's runtime carries, and that is not answered so long after it was taken from the caller, is
/// sent once more by the background thread.
pub(crate) const STALLED: Duration = Duration::from_millis(400);

/// A store that was asked again how an entry waits, and has not answered for so long, is in trouble.
pub(crate) const SILENCE: Duration = Duration::from_millis(500);

/// The pauses between tries at a store that can't be reached.
pub(crate) const RETRY: Backoff =
    Backoff { first: Duration::from_millis(5), most: Duration::from_millis(500) };

/// What clocks may disagree by during a lease: 1 % and 2 ms, as in Redlock.
pub(crate) fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}
