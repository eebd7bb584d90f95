//! What this store promises.

use std::time::Duration;

use leasehold_core::Traits;
use leasehold_core::queue::Policy;
use leasehold_core::traits::Death;

/// The promises of the file store.
pub static TRAITS: Traits = Traits {
    store: "file",
    urls: &["file:", "file:PATH", "file:///PATH"],
    reach: "the processes of one host",
    death: Death::AtOnce,
    tokens: "max(last + 1, wall clock in µs); what removed locks had reached is kept",
    queue: true,
    order: "strict",
    shared: true,
    wakeup: "a FIFO per session",
    breaks: "deleting or moving the folder while it is in use; a folder shared between hosts",
    outage: None,
    shortest_lease: Duration::from_millis(10),
    longest_lease: Duration::from_secs(365 * 24 * 3600),
};

/// How its queues are run. A block of 1024 tokens lets a client pass the lock on locally for long without coming back.
pub(crate) const POLICY: Policy = Policy { death: TRAITS.death, block: 1024 };
