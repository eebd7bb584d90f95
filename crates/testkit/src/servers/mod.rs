//! Real servers for tests, each started for the test and gone with it.
//!
//! Everything here blocks, so that it works in any test. A call takes milliseconds, except for the start of a set and for
//! waiting until a set has noticed a death. In an async test that must go on meanwhile, wait in
//! [`spawn_blocking`](tokio::task::spawn_blocking); every handle can be shared.
//!
//! A program that is not installed is a failure that says what to install, never a skipped test.
//!
//! Many tests of one binary can share a server: it starts with the first test that asks, and goes with the process.
//!
//! ```no_run
//! use std::sync::LazyLock;
//! use leasehold_testkit::servers::redis::{Redis, RedisOptions};
//!
//! static REDIS: LazyLock<Redis> = LazyLock::new(|| Redis::start(RedisOptions::new()));
//!
//! println!("{}", REDIS.url());
//! ```
//!
//! # Layout
//!
//! - [`process`]: one server process; `spawn` ties its life to ours, `port` and [`home`] are where it lives.
//! - [`redis`]: a single Redis server; [`certificates`] for TLS; [`resp`], a tiny client to look at it.
//! - [`independent`]: several that know nothing of each other, for Redlock.
//! - [`sentinel`]: a master with replicas, watched by sentinels.
//! - [`cluster`]: masters that share the slots; [`migration`] moves one of them.
//! - [`postgres`]: a single PostgreSQL server; [`pgbouncer`] stands before one. [`mariadb`]: a single MariaDB server.
//! - [`zookeeper`]: a single ZooKeeper server, and an ensemble.
//! - [`network`]: a network of the test's own, with a remote host that can lose a link.
//! - [`until`]: waiting for conditions.

pub mod certificates;
pub mod cluster;
mod folder;
pub mod independent;
pub mod mariadb;
pub mod migration;
pub mod network;
pub mod pgbouncer;
mod poll;
mod port;
pub mod postgres;
pub mod process;
pub mod redis;
pub mod resp;
pub mod sentinel;
mod spawn;
mod unprivileged;
pub mod zookeeper;

pub use cluster::Cluster;
pub use folder::home;
pub use independent::Independent;
pub use mariadb::{MariaDb, MariaDbOptions};
pub use pgbouncer::PgBouncer;
pub use poll::until;
pub(crate) use port::Port;
pub use postgres::{Postgres, PostgresOptions};
pub use redis::{Redis, RedisOptions};
pub use sentinel::Sentinels;
pub use zookeeper::{Ensemble, ZooKeeper, ZooKeeperOptions};
