//! Where the stores under test come from: one server for a whole test binary, tables of its own for each test.
#![allow(dead_code)] // Each binary uses its part of it.

use std::sync::{Arc, LazyLock};

use leasehold_core::Result;
use leasehold_core::store::{Pending, Store, ready};
use leasehold_core::url::StoreUrl;
use leasehold_testkit::servers::{PgBouncer, Postgres, PostgresOptions};
use leasehold_testkit::sql::{Database, fresh_prefix};
use leasehold_testkit::{Bed, Place};

/// One server for the whole binary.
pub(crate) static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(PostgresOptions::new()));

/// A pooler before it, with a few connections for all.
pub(crate) static POOLER: LazyLock<PgBouncer> = LazyLock::new(|| PgBouncer::start(SERVER.address(), 8));

/// Opens a store.
pub(crate) fn open(url: &str) -> Result<Arc<dyn Store>> {
    leasehold_postgres::open(StoreUrl::parse(url)?)
}

/// The store at a URL, with tables of its own.
fn place(url: &str) -> Result<Place> {
    let url = format!("{url}?prefix={}&pool=2", fresh_prefix());
    Ok(Place { store: open(&url)?, url: Some(url), keep: Box::new(()) })
}

/// On the server itself.
#[derive(Clone, Copy)]
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

impl Database for Direct {
    type Server = Postgres;

    fn server(&self) -> &'static Postgres {
        &SERVER
    }

    fn start(&self) -> Postgres {
        Postgres::start(PostgresOptions::new())
    }

    fn open(&self, url: &str) -> Result<Arc<dyn Store>> {
        open(url)
    }

    fn ddl(&self, url: &str) -> Result<String> {
        leasehold_postgres::schema::ddl(StoreUrl::parse(url)?)
    }

    fn deadlocks_retried(&self) -> u64 {
        leasehold_postgres::deadlocks_retried()
    }
}
