//! The promises about outages, on three servers, each behind a proxy.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_client::Client;
use leasehold_redlock::Redlock;
use leasehold_testkit::outages::Setting;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::Independent;
use leasehold_testkit::wait::{not_yet, soon};

leasehold_testkit::outages!(setting());

fn setting() -> Setting {
    let servers = Independent::start(3);
    let proxies: Vec<Proxy> = servers.servers().iter().map(|server| Proxy::start(server.address())).collect();
    let store = |addresses: Vec<SocketAddr>| {
        let with = |builder: leasehold_redlock::Builder, address| builder.node(format!("redis://{address}"));
        addresses.into_iter().fold(Redlock::builder(), with).build().expect("a store")
    };
    let direct = store(servers.servers().iter().map(|server| server.address()).collect());
    let through = store(proxies.iter().map(Proxy::address).collect());
    Setting::new(servers, proxies, direct, through)
}

/// Nodes without a trace are not put in quarantine, for an hour, because the others are not up yet.
#[tokio::test]
async fn the_servers_of_a_new_set_may_start_one_after_the_other() {
    for up in [1, 2] {
        let servers = Independent::start(3);
        let proxies: Vec<Proxy> =
            servers.servers().iter().map(|server| Proxy::start(server.address())).collect();
        proxies[up..].iter().for_each(Proxy::refuse);
        let with = |builder: leasehold_redlock::Builder, proxy: &Proxy| {
            builder.node(format!("redis://{}", proxy.address()))
        };
        let store = proxies.iter().fold(Redlock::builder(), with).build().expect("a store");
        let patience = Duration::from_secs(30);
        let mut locking = tokio::spawn(async move {
            let client = Client::builder().retry_for(patience).open(store).await?;
            client.mutex("x").lock_within(patience).await
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        not_yet("a lock was had without a set", &mut locking).await;
        proxies.iter().for_each(Proxy::pass);
        let guard = soon("a lock", locking).await.expect("a task").expect("an answer").expect("a free lock");
        guard.release().await.expect("a release");
    }
}
