//! What this store promises.

use std::time::Duration;

use leasehold_core::Traits;
use leasehold_core::traits::Death;

/// The promises of the ZooKeeper store.
pub static TRAITS: Traits = Traits {
    store: "zookeeper",
    urls: &[
        "zookeeper://[USER:PASSWORD@]HOST:PORT,HOST:PORT/CHROOT",
        "zk://HOST:PORT,HOST:PORT/CHROOT",
        "zookeeper+tls://HOST:PORT,HOST:PORT/CHROOT",
        "zk+tls://HOST:PORT,HOST:PORT/CHROOT",
    ],
    reach: "all clients of one ZooKeeper ensemble",
    death: Death::LeaseEnd,
    tokens: "the czxid of the entry's node, times 1024",
    queue: true,
    order: "strict",
    shared: true,
    wakeup: "a watch on the one entry that is waited for",
    breaks: "a crash is noticed at the end of the ZooKeeper session (?session=, 30 s), also by shorter leases; a leader that was \
             cut off and still answers can let a second holder in (its token is higher)",
    outage: Some(Duration::from_secs(15)),
    shortest_lease: Duration::from_millis(100),
    longest_lease: Duration::from_secs(365 * 24 * 3600),
};
