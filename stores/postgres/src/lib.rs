//! The PostgreSQL store: locks in tables, by the database's clock.
//!
//! A free lock is taken and given back by one statement each. All else is the rule of the core, run on the rows of a lock and written
//! back in one statement (`leasehold-sql` is that part). Whoever waits is told by NOTIFY; behind a pooler that hands every
//! transaction to another connection, where LISTEN hears nothing, letters are left in a table and looked for.
//!
//! # Layout
//!
//! - [`config`]: URLs and options.
//! - [`traits`]: what this store promises.
//! - [`store`]: [`Postgres`], the store.
//! - [`schema`]: the tables.
//! - `session`: one client's presence.
//! - `state`: the statements that read and write a lock.
//! - `sql`: statements with their values.
//! - `usual`: the statements that take a free lock and give it back.
//! - `wake`: LISTEN and NOTIFY.
//! - `transaction`: locks that end with the user's own transaction.
//! - `doctor`: what the store can find out about its database.
//! - `wire`: connections; `line`: one of them. `tls` encrypts them, and `direct` finds out whether there is a pooler between.
//! - `trouble`: what errors of the server mean.
#![forbid(unsafe_code)]

pub mod config;
mod direct;
mod doctor;
mod line;
pub mod schema;
mod session;
mod sql;
mod state;
pub mod store;
mod tls;
pub mod traits;
mod transaction;
mod trouble;
mod usual;
mod wake;
mod wire;

pub use config::Config;
pub use leasehold_sql::fence::{FenceSql, fence_sql};
pub use leasehold_sql::{TransactionLock, TransactionLocks};
pub use store::{Postgres, SCHEMES, open};
pub use traits::TRAITS;
pub use trouble::deadlocks_retried;
