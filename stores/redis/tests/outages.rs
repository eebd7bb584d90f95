//! The promises about outages, on a single server behind a proxy.

use std::sync::Arc;

use leasehold_core::url::StoreUrl;
use leasehold_redis::Redis;
use leasehold_testkit::outages::{Setting, a_client_is_let_in_after};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::{Redis as Server, RedisOptions};
use leasehold_testkit::wait::eventually;

leasehold_testkit::outages!(setting());

fn setting() -> Setting {
    let server = Server::start(RedisOptions::new());
    let proxy = Proxy::start(server.address());
    let (direct, through) = (store(&server.url()), store(&format!("redis://{}", proxy.address())));
    Setting::new(server, vec![proxy], direct, through)
}

fn store(url: &str) -> Arc<Redis> {
    Redis::from_url(StoreUrl::parse(url).expect("a URL")).expect("a store")
}

/// During a failover the server that is reached may be a replica for a while.
#[tokio::test]
async fn a_client_waits_for_a_replica_that_becomes_the_master() {
    let (master, replica) = (Server::start(RedisOptions::new()), Server::start(RedisOptions::new()));
    replica.cli(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let promote = || drop(replica.cli(&["REPLICAOF", "NO", "ONE"]));
    a_client_is_let_in_after(store(&replica.url()), "replica of", promote).await;
}

#[tokio::test]
async fn a_client_waits_for_a_server_that_loads_its_data() {
    let server = Server::start(RedisOptions::new().line("loading-process-events-interval-bytes 1024"));
    server.cli(&["DEBUG", "POPULATE", "400000"]);
    // Minutes, unless it is told otherwise. It answers between some fifty keys each: every 25 ms, so that its answers come well
    // within the time-outs of a client.
    server.cli(&["CONFIG", "SET", "key-load-delay", "500"]);
    let mut other = server.connect().expect("a connection");
    other.send(&["DEBUG", "RELOAD"]).expect("a command");
    eventually("it loads", || async {
        let loading = server.info("loading");
        if loading == "1" { Ok(()) } else { Err(loading) }
    })
    .await;
    let hurry = || drop(server.cli(&["CONFIG", "SET", "key-load-delay", "0"]));
    a_client_is_let_in_after(store(&server.url()), "is loading its data", hurry).await;
}
