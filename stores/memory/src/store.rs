//! The store: shared by all clients that are opened on it.

use std::sync::Arc;

use leasehold_core::store::{Inbox, Pending, Presence, Session, Store, ready};
use leasehold_core::{Clock, Traits};

use crate::session::MemorySession;
use crate::state::State;
use crate::traits::TRAITS;

/// A store in memory. Clients that share the `Arc` exclude each other.
#[derive(Debug)]
pub struct Memory {
    name: String,
    pub(crate) state: State,
}

impl Memory {
    /// An empty store.
    #[allow(clippy::new_ret_no_self)] // A store is only ever used behind an `Arc`.
    pub fn new() -> Arc<Self> {
        Self::with_clock(Clock::system())
    }

    /// An empty store whose leases end by this clock: with [`Clock::manual`] a test decides when.
    pub fn with_clock(clock: Clock) -> Arc<Self> {
        Arc::new(Memory { name: String::new(), state: State::new(clock) })
    }

    pub(crate) fn named(name: &str) -> Arc<Self> {
        Arc::new(Memory { name: name.to_owned(), state: State::new(Clock::system()) })
    }

    /// Forgets everything, as a server that restarts without persistence does. For tests.
    pub fn wipe(&self) {
        self.state.wipe();
    }
}

impl Store for Memory {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn url(&self) -> String {
        format!("memory:{}", self.name)
    }

    fn open(self: Arc<Self>, me: Presence, inbox: Arc<dyn Inbox>) -> Pending<Arc<dyn Session>> {
        ready(Ok(MemorySession::open(self, me, inbox)))
    }
}
