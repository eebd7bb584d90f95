//! What the SQL stores share: a lock as rows of two tables, and the rule run on them.
//!
//! The rule itself is [`leasehold_core::queue::Queue`]: a lock's rows are read, the queue is made of them, the event happens to it, and
//! what changed is written back in one statement, on the condition that nobody else wrote meanwhile. Nothing is locked while a
//! client thinks, so a client that is stopped in the middle holds up nobody. The usual cases, a free lock and its only
//! holder, need no reading: each is one statement, and many at once share a transaction.
//!
//! A database is a [`Backend`]: it knows its dialect and its connections, and nothing of the rule.
//!
//! # Layout
//!
//! - [`row`]: an entry as a row, and the columns.
//! - [`change`]: what an event changed, as rows to write and to remove.
//! - [`letter`]: what sessions and watchers are told, as text.
//! - [`backend`]: what a database must be able to do.
//! - `desk`: one client's presence: each call is an event on a lock.
//! - [`session`]: the [`Session`](leasehold_core::store::Session) of every SQL store.
//! - [`usual`]: which statement takes a free lock or gives it back, and what came of it.
//! - [`idle`]: how the rows of locks are, as far as is known.
//! - `together`: what waits for a connection goes together.
//! - [`unwatched`]: until when it is known that nobody watches.
//! - `wake`: what a session knows of its entries, and whom it tells.
//! - `postman`: fetches what was left for a session.
//! - [`fence`]: statements that refuse a late writer.
//! - [`transaction`]: locks that end with the user's own transaction.
//! - [`doctor`]: what the doctors of SQL stores say alike.
//! - [`options`]: what the URLs of SQL stores have in common; [`tls`]: how they say that connections are encrypted.
//! - [`trouble`]: what errors of a database mean.
#![forbid(unsafe_code)]

pub mod backend;
pub mod change;
mod desk;
pub mod doctor;
pub mod fence;
pub mod idle;
pub mod letter;
pub mod options;
mod postman;
pub mod row;
pub mod session;
pub mod tls;
mod together;
pub mod transaction;
pub mod trouble;
pub mod unwatched;
pub mod usual;
mod wake;

pub use backend::{Backend, Bell, Departing, Entering, Kept, Loaded, Lock, Step, Stepped};
pub use change::Change;
pub use letter::Letter;
pub use options::Options;
pub use row::{Cell, Row};
pub use session::SqlSession;
pub use transaction::{TransactionLock, TransactionLocks};
pub use wake::Ears;

use leasehold_core::queue::Policy;
use leasehold_core::traits::Death;

/// How many tokens a grant reserves.
pub const BLOCK: u32 = 1024;

/// Leases end by the database's clock.
pub const POLICY: Policy = Policy { death: Death::LeaseEnd, block: BLOCK };
