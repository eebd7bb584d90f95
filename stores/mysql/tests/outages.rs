//! The promises about outages, on a single server behind a proxy.

use leasehold_core::url::StoreUrl;
use leasehold_testkit::outages::Setting;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::{MariaDb, MariaDbOptions};

leasehold_testkit::outages!(setting());

fn setting() -> Setting {
    let server = MariaDb::start(MariaDbOptions::new());
    let proxy = Proxy::start(server.address());
    let url = format!("{}?timeout=1s", server.url());
    let store = |url: &str| leasehold_mysql::open(StoreUrl::parse(url).expect("a URL")).expect("a store");
    let direct = store(&url);
    let through = store(&url.replace(&server.address().to_string(), &proxy.address().to_string()));
    Setting::new(server, vec![proxy], direct, through)
}
