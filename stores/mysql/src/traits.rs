//! What this store promises.

use std::time::Duration;

use leasehold_core::Traits;
use leasehold_core::traits::Death;

/// The promises of the MySQL store.
pub static TRAITS: Traits = Traits {
    store: "mysql",
    urls: &["mysql://[USER:PASSWORD@]HOST:PORT/DATABASE"],
    reach: "all clients of one MySQL or MariaDB database",
    death: Death::LeaseEnd,
    tokens: "max(last + 1, database clock in µs)",
    queue: true,
    order: "strict",
    shared: true,
    wakeup: "a waiting connection per session, woken by KILL QUERY; where that is forbidden, polling of a mailbox",
    breaks: "a failover that loses a commit lets a second holder in (its token is higher); a database clock that jumps ahead ends leases early",
    outage: Some(Duration::from_secs(12)),
    shortest_lease: Duration::from_millis(10),
    longest_lease: Duration::from_secs(365 * 24 * 3600),
};
