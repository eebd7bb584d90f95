//! Where the stores under test come from: one server for a whole test binary, tables of its own for each test.
#![allow(dead_code)] // Each binary uses its part of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use leasehold_core::store::{Pending, Store, ready};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, Kind, Result};
use leasehold_mysql::TransactionLocks;
use leasehold_testkit::servers::{MariaDb, MariaDbOptions};
use leasehold_testkit::sql::{Database, Link, Ran, fresh_url};
use leasehold_testkit::{Bed, Place};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};

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

    fn start_with_tls(&self) -> MariaDb {
        MariaDb::start(MariaDbOptions::new().tls())
    }

    fn open(&self, url: &str) -> Result<Arc<dyn Store>> {
        open(url)
    }

    fn ddl(&self, url: &str) -> Result<String> {
        leasehold_mysql::schema::ddl(StoreUrl::parse(url)?)
    }

    fn transaction_locks(&self, url: &str) -> Result<TransactionLocks> {
        Ok(leasehold_mysql::Config::parse(url)?.transaction_locks())
    }

    fn connect(&self, url: &str) -> Pending<Box<dyn Link>> {
        Box::pin(connect(url.to_owned()))
    }

    fn deadlocks_retried(&self) -> u64 {
        leasehold_mysql::deadlocks_retried()
    }
}

/// A connection as a user's own program has it, with the server's usual isolation.
async fn connect(url: String) -> Result<Box<dyn Link>> {
    let place = url.split('?').next().unwrap_or(&url);
    // It counts the rows that it finds, whether or not they change.
    let connected = Conn::from_url(format!("{place}?client_found_rows=true")).await;
    Ok(Box::new(Own(connected.map_err(|e| Error::new(Kind::Unavailable, "no connection").because(e))?)))
}

struct Own(Conn);

impl Link for Own {
    fn run<'a>(
        &'a mut self,
        statement: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Ran, String>> + Send + 'a>> {
        Box::pin(async move {
            let mut result = self.0.query_iter(statement).await.map_err(|e| e.to_string())?;
            let changed = result.affected_rows();
            let rows: Vec<Row> = result.collect().await.map_err(|e| e.to_string())?;
            let cell = |value: Value| value.as_sql(true).trim_matches('\'').to_owned();
            let line = |row: Row| row.unwrap().into_iter().map(cell).collect::<Vec<_>>().join("|");
            Ok(Ran { rows: rows.into_iter().map(line).collect(), changed })
        })
    }
}
