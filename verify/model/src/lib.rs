//! Explores the Fenced Redlock protocol exhaustively, for small numbers of nodes and attempts.
//!
//! The nodes and the decisions are those of the store itself (`leasehold_redlock::protocol`); what is added here is everything
//! that can happen around them: messages that come late, in any order or never, leases that end, nodes that lose their data,
//! clients that are slow. Each promise is checked in every state that can be reached.
//!
//! A checker that finds nothing may be blind. So the protocol is also checked with one rule broken at a time
//! ([`locking::Mutant`], [`recovery::Mutant`]), and each of these must be caught.
//!
//! # Layout
//!
//! - [`search`]: visits every state that can be reached, and shows the way to a bad one.
//! - [`locking`]: nodes and attempts: tokens rise, and two never hold at once.
//! - [`recovery`]: nodes that fall and come back, one after the other, in sets of five: no token is forgotten.
//! - [`first_use`]: clients that meet an empty set at the same time, and nodes that are wiped meanwhile.
#![forbid(unsafe_code)]

pub mod first_use;
pub mod locking;
pub mod recovery;
pub mod search;
