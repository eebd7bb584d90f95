//! The promises about outages, on a single server behind a proxy.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;

use leasehold_client::Client;
use leasehold_core::store::Store;
use leasehold_core::url::StoreUrl;
use leasehold_testkit::outages::{Setting, a_client_is_let_in_after};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::{MariaDb, MariaDbOptions};
use leasehold_testkit::wait::soon;

leasehold_testkit::outages!(setting());

fn setting() -> Setting {
    let server = MariaDb::start(MariaDbOptions::new());
    let proxy = Proxy::start(server.address());
    let url = format!("{}?timeout=1s", server.url());
    let direct = store(&url);
    let through = store(&url.replace(&server.address().to_string(), &proxy.address().to_string()));
    Setting::new(server, vec![proxy], direct, through)
}

fn store(url: &str) -> Arc<dyn Store> {
    leasehold_mysql::open(StoreUrl::parse(url).expect("a URL")).expect("a store")
}

#[tokio::test]
async fn a_client_waits_for_a_server_with_too_many_connections() {
    let server =
        MariaDb::start(MariaDbOptions::new().line("max-connections=10").line("connect-timeout=3600"));
    // A connection that never logs in is one, too. Each is greeted, until one hears an error instead.
    let crowd: Vec<_> = std::iter::from_fn(|| {
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        let mut head = [0; 5];
        stream.read_exact(&mut head).expect("a greeting");
        (head[4] != 0xff).then_some(stream)
    })
    .collect();
    assert!(crowd.len() >= 10, "only {} fit", crowd.len());
    a_client_is_let_in_after(store(&server.url()), "Too many connections", || drop(crowd)).await;
}

/// Tables are made one by one. A program that comes while another one makes them, or that comes after one died meanwhile, makes the rest.
#[tokio::test]
async fn tables_that_are_half_made_are_completed() {
    let server = MariaDb::start(MariaDbOptions::new());
    let open = || async { soon("a client", Client::open(store(&server.url()))).await.expect("a client") };
    open().await.close().await.expect("a goodbye");
    server.sql("DELETE FROM locks.leasehold_schema");
    open().await.close().await.expect("a goodbye");
    server.sql("DROP TABLE locks.leasehold_schema");
    open().await.close().await.expect("a goodbye");
}
