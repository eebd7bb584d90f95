//! Where the stores under test come from: one server for a whole test binary, tables of its own for each test.
#![allow(dead_code)] // Each binary uses its part of it.

use std::sync::{Arc, LazyLock};

use leasehold_core::Result;
use leasehold_core::store::{Pending, Store, ready};
use leasehold_core::url::StoreUrl;
use leasehold_testkit::servers::{MariaDb, MariaDbOptions};
use leasehold_testkit::sql::{Database, fresh_url};
use leasehold_testkit::{Bed, Place};

/// One server for the whole binary.
pub(crate) static SERVER: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::start(MariaDbOptions::new()));

/// Opens a store.
pub(crate) fn open(url: &str) -> Result<Arc<dyn Store>> {
    leasehold_mysql::open(StoreUrl::parse(url)?)
}

/// On the server itself.
#[derive(Clone, Copy)]
pub(crate) struct Single;

impl Bed for Single {
    fn fresh(&self) -> Pending<Place> {
        let url = fresh_url(&*SERVER);
        ready(open(&url).map(|store| Place { store, url: Some(url), keep: Box::new(()) }))
    }

    fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
        ready(open(&url))
    }
}

impl Database for Single {
    type Server = MariaDb;

    fn server(&self) -> &'static MariaDb {
        &SERVER
    }

    fn start(&self) -> MariaDb {
        MariaDb::start(MariaDbOptions::new())
    }

    fn open(&self, url: &str) -> Result<Arc<dyn Store>> {
        open(url)
    }

    fn ddl(&self, url: &str) -> Result<String> {
        leasehold_mysql::schema::ddl(StoreUrl::parse(url)?)
    }

    fn deadlocks_retried(&self) -> u64 {
        leasehold_mysql::deadlocks_retried()
    }
}
