//! Where the stores under test come from: one server for a whole test binary, tables of its own for each test.
#![allow(dead_code, unused_imports)] // Each binary uses its part of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use leasehold_core::Result;
use leasehold_core::store::{Pending, Store, ready};
use leasehold_core::url::StoreUrl;
use leasehold_testkit::servers::{MariaDb, MariaDbOptions};
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
    leasehold_mysql::open(StoreUrl::parse(url)?)
}

/// One server for the whole binary.
pub(crate) static SERVER: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::start(MariaDbOptions::new()));

/// On the server itself.
pub(crate) struct Single;

impl Bed for Single {
    fn fresh(&self) -> Pending<Place> {
        ready(place(&SERVER.url()))
    }

    fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
        ready(open(&url))
    }
}

pub(crate) use leasehold_mysql::deadlocks_retried;
pub(crate) use leasehold_testkit::servers::MariaDb as Server;

/// A server for one test alone.
pub(crate) fn start() -> Server {
    Server::start(MariaDbOptions::new())
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
    let count =
        |table: &str, what: &str| format!("(SELECT COUNT(*) FROM locks.{prefix}{table} WHERE {what})");
    let parts = [count("locks", "entry IS NOT NULL OR rest <> 0"), count("entries", "1 = 1")];
    server.try_sql(&format!("SELECT {}", parts.join(", "))).unwrap_or_else(|e| e)
}

pub(crate) use leasehold_mysql::fence_sql;

/// What the names of the tables of a URL begin with, as the server's own client says them.
pub(crate) fn prefix_of(url: &str) -> String {
    let prefix = url.split(['?', '&']).find_map(|part| part.strip_prefix("prefix=")).expect("a prefix");
    format!("locks.{prefix}")
}

/// The statements that create the tables of a URL.
pub(crate) fn tables(url: &str) -> String {
    let tables = leasehold_mysql::schema::ddl(StoreUrl::parse(url).expect("a URL")).expect("tables");
    format!("USE locks; {tables}")
}

/// The same place for a user who may not create tables.
pub(crate) fn user_url(url: &str) -> String {
    static BOB: LazyLock<()> = LazyLock::new(|| {
        SERVER.sql(
            "CREATE USER bob IDENTIFIED BY 'secret'; GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO bob",
        );
    });
    LazyLock::force(&BOB);
    url.replace("root@", "bob:secret@")
}

/// The same place for a user who can only read.
pub(crate) fn reader_url(url: &str) -> String {
    static EVE: LazyLock<()> = LazyLock::new(|| {
        SERVER.sql("CREATE USER eve IDENTIFIED BY 'secret'; GRANT SELECT ON locks.* TO eve");
    });
    LazyLock::force(&EVE);
    url.replace("root@", "eve:secret@")
}
