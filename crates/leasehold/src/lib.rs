//! A distributed lock: one API over the store that a team already has, or over the files of one host.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! let client = leasehold::connect("memory:").await?;
//! let guard = client.mutex("orders/42").lock().await?;
//! println!("mine, with token {}", guard.token());
//! guard.release().await?;
//! client.close().await
//! # }
//! ```
//!
//! # Which lock
//!
//! [`Client::mutex`] for one holder, [`Client::rwlock`] for readers and a writer, [`Client::semaphore`] for a number of
//! permits, [`Client::multi`] for several names at once, [`Client::striped`] for one hot name with many keys,
//! [`Client::leader`] for an election. All can wait, try, or wait no longer than, and take the same options.
//!
//! # What is promised
//!
//! While [`Guard::is_held`] is true, nobody else holds the lock, as far as the store's [`Traits`] go; [`stores`] lists them. A
//! guard turns lost by itself, before anybody else can hold. Every hold has a [`Token`] higher than all before it: hand it to
//! what the lock guards (see [`Fence`]), and not even a holder that was paused past its lease can do harm.
//!
//! # The end of the process, and forks
//!
//! Guards that are dropped before the process ends are given back; its exit waits for that for up to a second in all.
//! After `std::process::exit` without [`Client::close`], a signal that is not handled (Ctrl-C, SIGTERM) or an abort the
//! locks stay as after a crash: until their leases end, unless the store notices deaths by itself. Clients and guards
//! of the parent are dead in a child that was forked without exec.
//!
//! # Layout
//!
//! - `connect`: from a URL to a client.
//! - `stores`: the one list of stores. Features pick them: `file`, `memory`, `redis` and `redlock` are on by default;
//!   `mysql`, `postgres`, `zookeeper` and `zookeeper-tls` are not.
//! - [`schema()`]: the tables of SQL stores, for those who create them by hand.
//! - `sql`: what SQL databases offer besides: fencing and locks in the user's own transactions (features `mysql` and `postgres`).
//! - [`doctor()`]: a look at a store before it is trusted.
//! - [`blocking`]: the same words for threads.
//! - Everything else is `leasehold-client` and `leasehold-core`, re-exported.
#![forbid(unsafe_code)]

pub mod blocking;
mod connect;
mod doctor;
mod schema;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql;
mod stores;

pub use connect::{connect, connect_with, open_store};
pub use doctor::{Doctor, Report, Visit, doctor};
pub use leasehold_client::*;
pub use leasehold_core::doctor::{Finding, Grade};
pub use leasehold_core::traits::Death;
#[doc(hidden)]
pub use leasehold_core::url::percent_encode;
pub use leasehold_core::url::redact;
#[cfg(feature = "file")]
pub use leasehold_file::{DefaultFolder, default_folder};
pub use schema::schema;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use sql::{FenceSql, TransactionLock, TransactionLocks, fence_sql, transaction_locks};
pub use stores::stores;
