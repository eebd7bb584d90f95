//! What this store promises.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::Traits;
use leasehold_core::traits::Death;

use crate::config::LONGEST_LEASE;

/// The promises of the Redlock store, as it is if nothing is configured.
pub static TRAITS: Traits = Traits {
    store: "redlock",
    urls: &[
        "redlock://[USER:PASSWORD@]HOST:PORT,HOST:PORT,HOST:PORT",
        "redlocks://HOST:PORT,HOST:PORT,HOST:PORT",
    ],
    reach: "all clients of N independent Redis masters, as long as more than half of them work",
    death: Death::LeaseEnd,
    tokens: "agreed on by a quorum: max(counters, client clock in µs) + 1",
    queue: false,
    order: "roughly: who waits longest is called first, and others may be faster",
    shared: false,
    wakeup: "push on one channel per session, when a quorum has told",
    breaks: "clocks that run apart by more than 1 % let two hold at once; all nodes losing all data at once may (tokens then rest on the clients' clocks)",
    outage: Some(Duration::from_secs(12)),
    shortest_lease: Duration::from_millis(50),
    longest_lease: LONGEST_LEASE,
};

/// The promises with another longest lease. They live as long as the program, and the same ones are made only once.
pub(crate) fn with_longest(longest: Duration) -> &'static Traits {
    static MADE: Mutex<BTreeMap<Duration, &'static Traits>> = Mutex::new(BTreeMap::new());
    if longest == TRAITS.longest_lease {
        return &TRAITS;
    }
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(longest)
        .or_insert_with(|| Box::leak(Box::new(Traits { longest_lease: longest, ..TRAITS.clone() })))
}
