//! What a store promises, as plain data: documentation and `leasehold stores` print their tables from it, and
//! the conformance suite checks each line.

use std::time::Duration;

/// What one store promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traits {
    /// The store's short name: `file`, `memory`, `redis`, …
    pub store: &'static str,
    /// The forms of its URL.
    pub urls: &'static [&'static str],
    /// How far its locks reach.
    pub reach: &'static str,
    /// How the death of a holder or waiter is noticed.
    pub death: Death,
    /// Whether grants carry fencing tokens, and where their numbers come from.
    pub tokens: &'static str,
    /// Whether those that wait get in in the order in which they came; `order` says it in words.
    pub queue: bool,
    /// How well the order of the queue is kept.
    pub order: &'static str,
    /// Whether shared claims and permits are kept; where not, they are refused.
    pub shared: bool,
    /// How waiters learn that it is their turn.
    pub wakeup: &'static str,
    /// What failure can break which promise.
    pub breaks: &'static str,
    /// For how long the way to it may be down without the loss of a lock, with the default lease or session. `None` if there is no way
    /// that could be down. `docs/outages.md` has the same table, and a test cuts the way for that long.
    pub outage: Option<Duration>,
    /// The shortest lease it can keep.
    pub shortest_lease: Duration,
    /// The longest lease it can keep.
    pub longest_lease: Duration,
}

/// How a store notices that a session died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// By the end of its leases: within the length of a lease.
    LeaseEnd,
    /// By the operating system or the server, at once; a kept lease has no end of its own.
    AtOnce,
}
