//! Where the stores under test come from: one server for a whole test binary, tables of its own for each test.
#![allow(dead_code, unused_imports)] // Each binary uses its part of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use leasehold_core::Result;
use leasehold_core::store::{Pending, Store, ready};
use leasehold_core::url::StoreUrl;
use leasehold_testkit::servers::{PgBouncer, Postgres, PostgresOptions};
use leasehold_testkit::{Bed, Place};

/// A prefix that no other test uses.
pub(crate) fn prefix() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("t{}_{}_", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The store at a URL, with tables of its own.
pub(crate) fn place(url: &str) -> Result<Place> {
    let url = format!("{url}?prefix={}&pool=2", prefix());
    Ok(Place { store: open(&url)?, url: Some(url), keep: Box::new(()) })
}

/// Opens a store.
pub(crate) fn open(url: &str) -> Result<Arc<dyn Store>> {
    leasehold_postgres::open(StoreUrl::parse(url)?)
}

/// One server for the whole binary.
pub(crate) static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(PostgresOptions::new()));

/// A pooler before it, with a few connections for all.
static POOLER: LazyLock<PgBouncer> = LazyLock::new(|| PgBouncer::start(SERVER.address(), 8));

/// On the server itself.
pub(crate) struct Direct;

/// Behind the pooler.
pub(crate) struct Pooled;

macro_rules! bed {
    ($bed:ident, $server:ident) => {
        impl Bed for $bed {
            fn fresh(&self) -> Pending<Place> {
                ready(place(&$server.url()))
            }

            fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
                ready(open(&url))
            }
        }
    };
}

bed!(Direct, SERVER);
bed!(Pooled, POOLER);

pub(crate) use leasehold_postgres::deadlocks_retried;
pub(crate) use leasehold_testkit::servers::Postgres as Server;

/// A server for one test alone.
pub(crate) fn start() -> Server {
    Server::start(PostgresOptions::new())
}

/// Tables of its own for a test.
pub(crate) fn fresh_url(server: &Server) -> String {
    format!("{}?prefix={}&pool=2", server.url(), prefix())
}

/// The same place, reached through a proxy.
pub(crate) fn through(url: &str, server: &Server, proxy: &leasehold_testkit::proxy::Proxy) -> String {
    url.replace(&server.address().to_string(), &proxy.address().to_string())
}

/// How many entries and letters there are in the tables of a URL: zeros, if nothing is left.
pub(crate) fn rows_left(server: &Server, url: &str) -> String {
    let prefix = url.split(['?', '&']).find_map(|part| part.strip_prefix("prefix=")).expect("a prefix");
    let count = |table: &str, what: &str| format!("(SELECT COUNT(*) FROM {prefix}{table} WHERE {what})");
    let parts = [count("locks", "entry IS NOT NULL OR rest <> 0"), count("entries", "1 = 1")];
    server.try_sql(&format!("SELECT {}", parts.join(", "))).unwrap_or_else(|e| e)
}

pub(crate) use leasehold_postgres::fence_sql;

/// What the names of the tables of a URL begin with, as the server's own client says them.
pub(crate) fn prefix_of(url: &str) -> String {
    let prefix = url.split(['?', '&']).find_map(|part| part.strip_prefix("prefix=")).expect("a prefix");
    prefix.to_owned()
}

/// The statements that create the tables of a URL, for a user who may only use them.
pub(crate) fn tables(url: &str) -> String {
    let tables = leasehold_postgres::schema::ddl(StoreUrl::parse(url).expect("a URL")).expect("tables");
    user_url(url);
    format!("{tables} GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO bob")
}

/// The same place for a user who may not create tables.
pub(crate) fn user_url(url: &str) -> String {
    static BOB: LazyLock<()> = LazyLock::new(|| {
        SERVER.sql("CREATE ROLE bob LOGIN PASSWORD 'secret'; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    });
    LazyLock::force(&BOB);
    url.replace("postgres@", "bob:secret@")
}

/// The same place for a user whose transactions can only read.
pub(crate) fn reader_url(url: &str) -> String {
    static EVE: LazyLock<()> = LazyLock::new(|| {
        SERVER.sql("CREATE ROLE eve LOGIN SUPERUSER PASSWORD 'secret'; ALTER ROLE eve SET default_transaction_read_only = on");
    });
    LazyLock::force(&EVE);
    url.replace("postgres@", "eve:secret@")
}
