//! The promises about outages, on a single server behind a proxy.

use std::sync::Arc;

use leasehold_client::Client;
use leasehold_core::store::Store;
use leasehold_core::url::StoreUrl;
use leasehold_testkit::outages::{Setting, a_client_is_let_in_after};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::{Postgres, PostgresOptions};
use leasehold_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};

leasehold_testkit::outages!(setting());

fn setting() -> Setting {
    let server = Postgres::start(PostgresOptions::new());
    let proxy = Proxy::start(server.address());
    let url = format!("{}?timeout=1s", server.url());
    let direct = store(&url);
    let through = store(&url.replace(&server.address().to_string(), &proxy.address().to_string()));
    Setting::new(server, vec![proxy], direct, through)
}

fn store(url: &str) -> Arc<dyn Store> {
    leasehold_postgres::open(StoreUrl::parse(url).expect("a URL")).expect("a store")
}

/// During a failover the server that is reached may only be read for a while.
#[tokio::test]
async fn a_client_waits_for_a_database_that_can_be_written() {
    let server = Postgres::start(PostgresOptions::new());
    let read_only = |on: &str| {
        server.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {on}"));
        server.sql("SELECT pg_reload_conf()");
    };
    // The tables are there.
    Client::open(store(&server.url())).await.expect("a client").close().await.expect("a goodbye");
    read_only("on");
    a_client_is_let_in_after(store(&server.url()), "can only be read", || read_only("off")).await;
}

/// `57P03`: a server that starts or ends says so with one code. One that waits for its sessions to end says it for as long as wanted.
#[tokio::test]
async fn a_client_waits_for_a_server_that_is_being_restarted() {
    let server = Postgres::start(PostgresOptions::new());
    let (session, connection) =
        tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.expect("a session");
    let connection = tokio::spawn(connection);
    let postmaster = Pid::from_raw(i32::try_from(server.pid()).expect("an id")).expect("an id");
    kill_process(postmaster, Signal::TERM).expect("a signal");
    eventually("it takes no new session", || async {
        match server.try_sql("SELECT 1") {
            Err(said) if said.contains("shutting down") => Ok(()),
            other => Err(other),
        }
    })
    .await;
    a_client_is_let_in_after(store(&server.url()), "shutting down", || server.restart()).await;
    drop(session);
    let _ = connection.await;
}
