//! Scenarios of the SQL stores, on real servers.
//!
//! A store says once how it is reached ([`Database`]), and runs each group with one line in a file of its `tests`:
//!
//! ```text
//! leasehold_testkit::sql_faults!(common::Ours);
//! ```
//!
//! # Layout
//!
//! - [`promises`]: clear errors for bad input, rows that people can read, a late writer that changes nothing.
//! - [`fencing`]: the statements of `docs/fencing.md`.
//! - [`doctor`]: what the store finds out about its database.
//! - [`encryption`]: servers that must prove who they are.
//! - [`transactions`]: locks that end with the user's own transaction.
//! - [`deaths`]: clients that die; [`faults`]: servers that die, connections that break, many clients at once.
//! - [`company`]: many claims and releases at once.
//! - [`histories`]: random ones, against the rule.
//! - [`server`]: what a server can be asked for, whatever its make.
//! - `list`: the names of all scenarios.

pub mod company;
pub mod deaths;
pub mod doctor;
pub mod encryption;
pub mod faults;
pub mod fencing;
pub mod histories;
mod list;
pub mod promises;
pub mod server;
pub mod transactions;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_client::{Budget, Client};
use leasehold_core::Result;
use leasehold_core::store::{Pending, Store};
use leasehold_sql::TransactionLocks;
use tokio::time::timeout;

use crate::wait::soon;

pub use server::SqlServer;

/// How long a whole scenario may take before it counts as hung.
const TOO_LONG: Duration = Duration::from_secs(180);

/// A SQL store under test.
pub trait Database: Copy + Send + Sync + 'static {
    /// The servers that it runs on.
    type Server: SqlServer;

    /// The server of the whole test binary. Whoever kills or reconfigures it takes one of its own: [`start`](Database::start).
    fn server(&self) -> &'static Self::Server;

    /// A server for one scenario alone.
    fn start(&self) -> Self::Server;

    /// A server for one scenario alone that speaks TLS.
    fn start_with_tls(&self) -> Self::Server;

    /// Opens the store at a URL.
    fn open(&self, url: &str) -> Result<Arc<dyn Store>>;

    /// The statements that create the tables of a URL.
    fn ddl(&self, url: &str) -> Result<String>;

    /// Locks in the user's own transactions.
    fn transaction_locks(&self, url: &str) -> Result<TransactionLocks>;

    /// Connects to the database of a URL as a user's own program does.
    fn connect(&self, url: &str) -> Pending<Box<dyn Link>>;

    /// How many statements of this process were tried again after a deadlock.
    fn deadlocks_retried(&self) -> u64;
}

/// A connection of a user's own program, with a driver of its own.
pub trait Link: Send {
    /// Runs a statement: what came of it, or what the database said.
    fn run<'a>(&'a mut self, statement: &'a str) -> BoxFuture<'a, Result<Ran, String>>;
}

/// What a statement did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// The rows that it found, columns separated by `|`.
    pub rows: Vec<String>,
    /// How many rows it changed.
    pub changed: u64,
}

/// Runs one scenario to its end.
pub fn run<D: Database, Fut>(database: D, scenario: &str, body: fn(D) -> Fut)
where
    Fut: Future<Output = ()>,
{
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = threads.expect("a runtime");
    let ended = runtime.block_on(async { timeout(TOO_LONG, body(database)).await });
    assert!(ended.is_ok(), "{scenario} hangs");
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// Tables of its own for a scenario: a URL with a prefix that no other one has.
pub fn fresh_url(server: &impl SqlServer) -> String {
    format!("{}?prefix={}&pool=2", server.url(), fresh_prefix())
}

/// What no other tables' names begin with.
pub fn fresh_prefix() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("t{}_{}_", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// What the tables of a URL begin with, as a user of the server says it who is not in the database of the locks.
pub fn prefix_of<S: SqlServer>(url: &str) -> String {
    let prefix = url.split(['?', '&']).find_map(|part| part.strip_prefix("prefix=")).expect("a prefix");
    format!("{}{prefix}", S::DATABASE)
}

/// A client whose every claim is an entry of its own at the store, or why there is none.
pub async fn try_client(database: impl Database, url: &str) -> Result<Client> {
    let builder = Client::builder().local_queue(Budget::off());
    soon("an answer", builder.open(database.open(url)?)).await
}

/// A client whose every claim is an entry of its own at the store.
pub async fn client(database: impl Database, url: &str) -> Client {
    try_client(database, url).await.expect("a client")
}
