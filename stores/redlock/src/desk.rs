//! What all parts of a session share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::store::{Inbox, Presence};
use leasehold_core::watchers::Watchers;
use leasehold_core::{Clock, Error, Kind, Result, Tick};

use crate::config::Config;
use crate::node::{Node, Who};
use crate::protocol::Quorum;
use crate::state::{Entries, Entry};
use crate::tending::Tender;
use crate::watching::Ballots;

/// What all parts of a session share.
pub(crate) struct Desk {
    pub(crate) config: Arc<Config>,
    pub(crate) quorum: Quorum,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) me: Presence,
    pub(crate) inbox: Arc<dyn Inbox>,
    pub(crate) entries: Entries,
    pub(crate) tender: Arc<Tender>,
    pub(crate) watchers: Watchers,
    pub(crate) ballots: Ballots,
    pub(crate) watching: tokio::sync::Mutex<bool>,
    pub(crate) closed: AtomicBool,
    pub(crate) random: AtomicU64,
}

/// Why a node could not be counted.
pub(crate) type Reason = (usize, String);

impl Desk {
    /// The clock that leases are measured on.
    pub(crate) fn now(&self) -> Tick {
        Clock::system().now()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Refused, "the session is closed"));
        }
        self.tender.check()
    }

    /// For how long silent nodes are waited for: never for a good part of the lease.
    pub(crate) fn patience(&self, ttl: Duration) -> Duration {
        self.config.timeout().min(ttl / 3)
    }

    pub(crate) fn who(&self, entry: &Entry) -> Who {
        Who { session: self.me.id, label: self.me.label.clone(), barges: entry.barges() }
    }

    /// A random number below `below`. Not for secrets.
    pub(crate) fn random(&self, below: u64) -> u64 {
        let mut x = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % below.max(1)
    }

    /// Too few nodes could be counted: says which, and why not the others.
    pub(crate) fn no_quorum(&self, counted: usize, reasons: &[Reason]) -> Error {
        let Quorum { nodes, need } = self.quorum;
        let why: Vec<String> =
            reasons.iter().map(|(node, why)| format!("{}: {why}", self.nodes[*node].place)).collect();
        let what = format!("no quorum: {counted} of {nodes} nodes can be counted, and {need} are needed");
        let error =
            Error::new(Kind::Unavailable, what).advice("see why the others can't be, or wait for them");
        if why.is_empty() { error } else { error.because(why.join("; ")) }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // The task that tends sees that there is nothing left to tend.
        self.tender.wake();
    }
}

/// What clocks may disagree by during a lease: 1 % and 2 ms.
pub(crate) fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// An error in few words, for a list of them.
pub(crate) fn brief(error: &Error) -> String {
    error.what().to_owned()
}
