//! What this store promises.

use std::time::Duration;

use leasehold_core::Traits;
use leasehold_core::traits::Death;

/// The promises of the memory store.
pub static TRAITS: Traits = Traits {
    store: "memory",
    urls: &["memory:", "memory:NAME"],
    reach: "the clients of one process",
    death: Death::LeaseEnd,
    tokens: "max(last + 1, wall clock in µs)",
    queue: true,
    order: "strict",
    shared: true,
    wakeup: "direct call",
    breaks: "nothing survives the process, so nothing is left to break",
    outage: None,
    shortest_lease: Duration::from_millis(10),
    longest_lease: Duration::from_secs(365 * 24 * 3600),
};
