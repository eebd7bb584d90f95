//! What this store promises.

use std::time::Duration;

use leasehold_core::Traits;
use leasehold_core::traits::Death;

/// The promises of the Redis store.
pub static TRAITS: Traits = Traits {
    store: "redis",
    urls: &[
        "redis://[USER:PASSWORD@]HOST:PORT/DB",
        "rediss://HOST:PORT/DB",
        "unix:PATH",
        "redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB",
        "redis+cluster://HOST:PORT,HOST:PORT",
    ],
    reach: "all clients of one Redis: a server, a master with replicas, a cluster",
    death: Death::LeaseEnd,
    tokens: "max(last + 1, server clock in µs)",
    queue: true,
    order: "strict",
    shared: true,
    wakeup: "push on one channel per session",
    breaks: "a failover or restart that loses a grant lets a second holder in (its token is higher); a server clock that jumps ahead ends leases early",
    outage: Some(Duration::from_secs(12)),
    shortest_lease: Duration::from_millis(10),
    longest_lease: Duration::from_secs(365 * 24 * 3600),
};
