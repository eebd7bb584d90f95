//! The MySQL and MariaDB store: locks in tables, by the database's clock.
//!
//! A free lock is taken and given back by one statement each. All else is the rule of the core, run on the rows of a lock and written
//! back in one round trip (`leasehold-sql` is that part). MySQL tells nobody anything, so whoever waits has a doorbell: a
//! connection that waits in the server, which others end with `KILL QUERY`. Where that is not allowed, mail is looked for.
//!
//! # Layout
//!
//! - [`config`]: URLs and options.
//! - [`traits`]: what this store promises.
//! - [`store`]: [`MySql`], the store.
//! - [`schema`]: the tables.
//! - `session`: one client's presence.
//! - `state`: the statements that read and write a lock.
//! - `sql`: values as they are written in statements, and what comes back.
//! - `usual`: the statements that take a free lock and give it back.
//! - `wake`: the doorbell.
//! - `mailbox`: what was left for a session.
//! - `transaction`: locks that end with the user's own transaction.
//! - `doctor`: what the store can find out about its database.
//! - `wire`: connections, and how a text is run to its end.
//! - `trouble`: what errors of the server mean.
#![forbid(unsafe_code)]

pub mod config;
mod doctor;
mod mailbox;
pub mod schema;
mod session;
mod sql;
mod state;
pub mod store;
pub mod traits;
mod transaction;
mod trouble;
mod usual;
mod wake;
mod wire;

pub use config::Config;
pub use leasehold_sql::fence::{FenceSql, fence_sql};
pub use leasehold_sql::{TransactionLock, TransactionLocks};
pub use store::{MySql, SCHEMES, open};
pub use traits::TRAITS;
pub use trouble::deadlocks_retried;
