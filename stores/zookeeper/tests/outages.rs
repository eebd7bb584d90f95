//! The promises about outages, on a single server behind a proxy.

use leasehold_core::url::StoreUrl;
use leasehold_testkit::outages::Setting;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};

leasehold_testkit::outages!(setting());

fn setting() -> Setting {
    let server = ZooKeeper::start(ZooKeeperOptions::new());
    let proxy = Proxy::to_zookeeper(server.address());
    let url = format!("{}?session=30s", server.url());
    let store = |url: &str| leasehold_zookeeper::open(StoreUrl::parse(url).expect("a URL")).expect("a store");
    let direct = store(&url);
    let through = store(&url.replace(&server.address().to_string(), &proxy.address().to_string()));
    Setting::new(server, vec![proxy], direct, through)
}
