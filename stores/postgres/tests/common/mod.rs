//! Where the stores under test come from: one server for a whole test binary, tables of its own for each test.
#![allow(dead_code)] // Each binary uses its part of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use leasehold_core::store::{Pending, Store, ready};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, Kind, Result};
use leasehold_postgres::TransactionLocks;
use leasehold_testkit::servers::{PgBouncer, Postgres, PostgresOptions};
use leasehold_testkit::sql::{Database, Link, Ran, fresh_prefix};
use leasehold_testkit::{Bed, Place};
use tokio_postgres::SimpleQueryMessage;

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
#[derive(Clone, Copy)]
pub(crate) struct Pooled;

macro_rules! bed {
    ($bed:ident, $server:ident, another topology: $another:literal) => {
        impl Bed for $bed {
            fn fresh(&self) -> Pending<Place> {
                ready(place(&$server.url()))
            }

            fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
                ready(open(&url))
            }

            fn is_another_topology(&self) -> bool {
                $another
            }
        }
    };
}

bed!(Direct, SERVER, another topology: false);
bed!(Pooled, POOLER, another topology: true);

macro_rules! database {
    ($database:ident, $reached:expr) => {
        impl Database for $database {
            type Server = Postgres;

            fn server(&self) -> &'static Postgres {
                &SERVER
            }

            fn start(&self) -> Postgres {
                Postgres::start(PostgresOptions::new())
            }

            fn start_with_tls(&self) -> Postgres {
                Postgres::start(PostgresOptions::new().tls())
            }

            fn open(&self, url: &str) -> Result<Arc<dyn Store>> {
                open(url)
            }

            fn ddl(&self, url: &str) -> Result<String> {
                leasehold_postgres::schema::ddl(StoreUrl::parse(url)?)
            }

            fn transaction_locks(&self, url: &str) -> Result<TransactionLocks> {
                Ok(leasehold_postgres::Config::parse(url)?.transaction_locks())
            }

            fn connect(&self, url: &str) -> Pending<Box<dyn Link>> {
                let reached: fn(&str) -> String = $reached;
                Box::pin(connect(reached(url)))
            }

            fn deadlocks_retried(&self) -> u64 {
                leasehold_postgres::deadlocks_retried()
            }
        }
    };
}

database!(Direct, |url| url.to_owned());
// Servers of one test alone have no pooler before them.
database!(Pooled, |url| url.replace(&SERVER.address().to_string(), &POOLER.address().to_string()));

/// A connection as a user's own program has it.
async fn connect(url: String) -> Result<Box<dyn Link>> {
    let place = url.split('?').next().unwrap_or(&url);
    let connected = tokio_postgres::connect(place, tokio_postgres::NoTls).await;
    let (client, connection) =
        connected.map_err(|e| Error::new(Kind::Unavailable, "no connection").because(e))?;
    tokio::spawn(connection);
    Ok(Box::new(Own(client)))
}

struct Own(tokio_postgres::Client);

impl Link for Own {
    fn run<'a>(
        &'a mut self,
        statement: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<Ran, String>> + Send + 'a>> {
        Box::pin(async move {
            let mut ran = Ran::default();
            for message in self.0.simple_query(statement).await.map_err(|e| e.to_string())? {
                match message {
                    SimpleQueryMessage::Row(row) => {
                        let cells: Vec<&str> =
                            (0..row.len()).map(|at| row.get(at).unwrap_or_default()).collect();
                        ran.rows.push(cells.join("|"));
                    }
                    SimpleQueryMessage::CommandComplete(rows) => ran.changed = rows,
                    _ => {}
                }
            }
            Ok(ran)
        })
    }
}
