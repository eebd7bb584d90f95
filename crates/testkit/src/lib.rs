//! The conformance suite: plain async functions that check any store, through the same client that users have.
//!
//! A store runs all of it with one line in its `tests/conformance.rs`, and each scenario appears there by name:
//!
//! ```text
//! leasehold_testkit::conformance!(leasehold_testkit::InProcess(|| Ok(Memory::new())));
//! ```
//!
//! # Layout
//!
//! - [`conformance`](mod@conformance): the scenarios, one file a group; `list.rs` names all of them once.
//! - [`bed`]: where a store under test comes from.
//! - [`stage`]: what every scenario stands on: a fresh store, clients, an observer.
//! - [`child`]: other processes on the same store, to be killed.
//! - [`program`]: the programs that users write first, as such processes.
//! - [`faulty`]: a store that fails by script or by seed.
//! - [`registry`]: what the users of locks believe to hold, checked at each grant.
//! - [`cancellation_matrix`]: every public async operation, dropped at every poll and with every store call failing.
//! - [`fuzz`]: random sequences of public calls, by seed.
//! - [`history`]: what the users of a lock saw, and whether it was right.
//! - [`servers`]: real servers, started for a test and gone with it.
//! - [`sql`]: scenarios of the SQL stores.
//! - [`outages`](mod@outages): scenarios of outages, on real servers behind proxies; [`log`]: what was logged.
//! - [`proxy`]: a TCP proxy that cuts, holds up and loses what passes between a client and a server.
//! - [`wait`]: waiting for conditions with a deadline.
#![deny(unsafe_code)]

pub mod bed;
pub mod cancellation_matrix;
pub mod child;
pub mod conformance;
pub mod faulty;
pub mod fuzz;
pub mod history;
mod list;
pub mod log;
pub mod needs;
pub mod outages;
mod panics;
pub mod program;
pub mod proxy;
pub mod registry;
pub mod servers;
pub mod sql;
pub mod stage;
pub mod wait;

pub use bed::{Bed, InFolder, InProcess, Place};
pub use faulty::Faulty;
pub use history::History;
pub use stage::Stage;
