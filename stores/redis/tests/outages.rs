//! The promises about outages, on a single server behind a proxy.

use std::time::Duration;

use leasehold_client::{Client, Outage};
use leasehold_core::url::StoreUrl;
use leasehold_redis::Redis;
use leasehold_testkit::outages::Setting;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::{Redis as Server, RedisOptions};
use leasehold_testkit::wait::soon;

leasehold_testkit::outages!(setting());

fn setting() -> Setting {
    let server = Server::start(RedisOptions::new());
    let proxy = Proxy::start(server.address());
    let store = |address| {
        let url = StoreUrl::parse(&format!("redis://{address}")).expect("a URL");
        Redis::from_url(url).expect("a store")
    };
    let (direct, through) = (store(server.address()), store(proxy.address()));
    Setting::new(server, vec![proxy], direct, through)
}

/// During a failover the server that is reached may be a replica for a while.
#[tokio::test]
async fn a_client_waits_for_a_replica_that_becomes_the_master() {
    let (master, replica) = (Server::start(RedisOptions::new()), Server::start(RedisOptions::new()));
    replica.cli(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let url = StoreUrl::parse(&replica.url()).expect("a URL");
    let (said, heard) = std::sync::mpsc::channel();
    let builder = Client::builder().retry_for(Duration::from_secs(50)).on_outage(move |outage| {
        if let Outage::Began { error, .. } = outage {
            let _ = said.send(error.to_string());
        }
    });
    let opening = tokio::spawn(builder.open(Redis::from_url(url).expect("a store")));
    let waits_for =
        tokio::task::spawn_blocking(move || heard.recv()).await.expect("a thread").expect("an outage");
    assert!(waits_for.contains("replica of"), "{waits_for}");
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    let client = soon("a client", opening).await.expect("a task").expect("a client");
    client.close().await.expect("a goodbye");
}
