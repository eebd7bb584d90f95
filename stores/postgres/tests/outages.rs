//! The promises about outages, on a single server behind a proxy.

use std::time::Duration;

use leasehold_client::{Client, Outage};
use leasehold_core::url::StoreUrl;
use leasehold_testkit::outages::Setting;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::{Postgres, PostgresOptions};
use leasehold_testkit::wait::soon;

leasehold_testkit::outages!(setting());

fn setting() -> Setting {
    let server = Postgres::start(PostgresOptions::new());
    let proxy = Proxy::start(server.address());
    let url = format!("{}?timeout=1s", server.url());
    let store = |url: &str| leasehold_postgres::open(StoreUrl::parse(url).expect("a URL")).expect("a store");
    let direct = store(&url);
    let through = store(&url.replace(&server.address().to_string(), &proxy.address().to_string()));
    Setting::new(server, vec![proxy], direct, through)
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
    let store = || leasehold_postgres::open(StoreUrl::parse(&server.url()).expect("a URL")).expect("a store");
    Client::open(store()).await.expect("a client").close().await.expect("a goodbye");
    read_only("on");
    let (said, heard) = std::sync::mpsc::channel();
    let builder = Client::builder().retry_for(Duration::from_secs(50)).on_outage(move |outage| {
        if let Outage::Began { error, .. } = outage {
            let _ = said.send(error.to_string());
        }
    });
    let opening = tokio::spawn(builder.open(store()));
    let waits_for =
        tokio::task::spawn_blocking(move || heard.recv()).await.expect("a thread").expect("an outage");
    assert!(waits_for.contains("can only be read"), "{waits_for}");
    read_only("off");
    let client = soon("a client", opening).await.expect("a task").expect("a client");
    client.close().await.expect("a goodbye");
}
