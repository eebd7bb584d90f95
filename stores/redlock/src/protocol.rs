//! Fenced Redlock as pure data and functions: no I/O, no clock of its own.
//!
//! N masters that know nothing of each other, q = ⌊N/2⌋ + 1 of them are a quorum. The Lua scripts do on a real node what
//! [`node::Node`] does here (a test drives both with the same random histories), the session asks [`decide`] what the answers
//! mean, and the model checker (`verify/model`) explores all of it, with crashes, losses and delays, for small numbers.
//!
//! # The protocol
//!
//! 1. `ACQUIRE(id, ttl, floor)` goes to all nodes at once, with an id that is new for each attempt. A node that nobody owns
//!    picks x = max(counter, floor) + 1, reserves the block [x, x + K) by setting its counter to the block's end, and is owned
//!    by id for the ttl. Asking again gives the same x. A node that somebody else owns says no.
//! 2. As soon as q grants are in, t is the q-th smallest x. If q of them say exactly t, the lock is held: one round trip.
//! 3. Else `CONFIRM(id, t)` goes to those with x < t, which, if id still owns them, raise their counter to the end of the block
//!    [t, t + K). If that makes q, the lock is held: two round trips. **A node with x > t is never counted.**
//! 4. It is held only if all that took less than the ttl less the drift, counted from before the first message was sent. An
//!    attempt that fails is released on all nodes, and tried again after a random time.
//! 5. `EXTEND(id, ttl, up to)` renews: a quorum of nodes that id *still* owns must answer before the old validity is over. It
//!    never takes a node that is free. It also reserves more tokens: the next block is simply the one after the last, once the
//!    counters of q nodes with x ≤ t are raised past it.
//! 6. `RELEASE(id, used)` frees what id owns, and nothing else. The counter goes back to the highest token that was used.
//!
//! # Why tokens rise
//!
//! Say that attempt A holds with token a, counted on the nodes W(A), and B with b on W(B). Both sets have q nodes, so they share
//! one. It is owned by one at a time; say that A had it first. When A was counted there, the counter reached a + K − 1 (at once if x
//! was a, by the confirmation else) while A still owned it. It never goes back below a token that was used. B came later, so
//! its x there is higher than every token of A, and b ≥ x because nodes with x > b are not counted for B. So the blocks of A and B
//! are apart, and ordered as on the node that they share. If A was decided before B began, then A came first there.
//!
//! Nothing in this looked at a clock: delays, pauses, early and late expiry can't make tokens go back. Where each condition
//! is used: without "only if id still owns it", a confirmation would raise a counter after B had its x. Without raising the
//! counter, B could get an x below a. With a node with x > t, b ≥ x fails.
//!
//! # Why two never hold at once
//!
//! Here clocks matter. A counts its validity from before its first message, and ends it earlier than the nodes do by the drift
//! (1 % of the ttl and 2 ms). So for as long as A is valid it owns q nodes, and every other quorum lacks a node. A renewal
//! that is answered in time moves A from one quorum to another while both are its own; one that is answered late counts for
//! nothing, because somebody else may have come and gone in between.
//!
//! # Nodes that lose their memory
//!
//! Both proofs rest on nodes that remember. A node that came back empty, or with old data, must not be counted. Each has a
//! marker bound to its run id ([`standing`]); if it doesn't fit, the node is in **quarantine**: it takes part (it can be owned,
//! which keeps others out), but its grants, confirmations and extensions don't count. It ends when
//!
//! - the longest lease that was ever granted has passed: who counted this node before it fell can't hold any more, and can't
//!   come to a decision any more either; and then
//! - the node was raised to the highest counter of q *other* nodes that are not in quarantine. These share a node with W(A) for
//!   every A that ever held, even without the one that fell: q + (q − 1) > N − 1.
//!
//! A grant that was made during the quarantine stays uncounted for tokens for as long as it lives: its x was not above what the
//! node had forgotten. This part does need time for the order of tokens, as much as a decision can take: one lease.
//!
//! Extensions don't count in quarantine either. It is tempting to let them (the owner is known to hold), and wrong: B may have
//! counted the node before it fell, get its last missing node as soon as A's lease ends there, and both would hold. The model
//! checker keeps this as one of its mutants.
//!
//! # Tokens and the clocks of clients
//!
//! `floor` is the asker's clock in microseconds. It makes free nodes agree on x, so that one round trip is the usual case, and it
//! is the last line if *more* nodes lose their memory than the protocol can bear: then tokens still rise as long as the clocks
//! of clients do and no lock has run ahead of them. A lock that is taken thousands of times per second would run ahead if each grant used
//! up K = 1024 tokens. So a release gives back what was not used, and an attempt that failed gives back its whole block:
//! safe, because nobody else can have got a token there while it owned the node. A grant then uses up one token, and to run
//! ahead of the clock would take a million grants of one name per second.

pub mod decide;
pub mod node;
pub mod seat;
pub mod standing;

/// How many tokens a grant reserves.
pub const BLOCK: u64 = 1024;

/// How many nodes there are, and how many of them decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quorum {
    /// All nodes.
    pub nodes: usize,
    /// How many of them are enough: more than half.
    pub need: usize,
}

impl Quorum {
    /// The quorum of so many nodes.
    pub const fn of(nodes: usize) -> Self {
        Quorum { nodes, need: nodes / 2 + 1 }
    }

    /// How many nodes can be missing.
    pub const fn spare(self) -> usize {
        self.nodes - self.need
    }
}
