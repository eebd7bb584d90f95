//! What this store promises.

use std::time::Duration;

use leasehold_core::Traits;
use leasehold_core::traits::Death;

/// The promises of the PostgreSQL store.
pub static TRAITS: Traits = Traits {
    store: "postgres",
    urls: &["postgres://[USER:PASSWORD@]HOST:PORT/DATABASE"],
    reach: "all clients of one PostgreSQL database",
    death: Death::LeaseEnd,
    tokens: "max(last + 1, database clock in µs)",
    queue: true,
    order: "strict",
    shared: true,
    wakeup: "NOTIFY on one connection per session; behind a pooler, polling of a mailbox",
    breaks: "a failover that loses a commit lets a second holder in (its token is higher); a database clock that jumps ahead ends leases early",
    outage: Some(Duration::from_secs(12)),
    shortest_lease: Duration::from_millis(10),
    longest_lease: Duration::from_secs(365 * 24 * 3600),
};
