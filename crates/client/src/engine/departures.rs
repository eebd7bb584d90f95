//! Entries of this client that are leaving the store in the background, by the name of their lock.
//!
//! A guard that is dropped, or a claim, is out of the store a moment later. A try in that moment would be told that the lock is
//! busy, by nothing but what this client has given up: it waits for that, and asks again.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_core::Name;
use tokio::sync::Notify;

use crate::sync::{Mutex, lock};

#[derive(Default)]
pub(super) struct Departures {
    /// How many there are, of any name: most tries find none.
    count: AtomicUsize,
    names: Mutex<HashMap<Name, usize>>,
    over: Notify,
}

/// One of them, until it is dropped.
pub(super) struct Departure {
    departures: Arc<Departures>,
    name: Name,
}

impl Departures {
    pub(super) fn begin(self: &Arc<Self>, name: &Name) -> Departure {
        *lock(&self.names).entry(name.clone()).or_default() += 1;
        self.count.fetch_add(1, Ordering::SeqCst);
        Departure { departures: self.clone(), name: name.clone() }
    }

    /// Whether there are any of this name.
    pub(super) fn of(&self, name: &Name) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && lock(&self.names).contains_key(name)
    }

    /// Waits until there are none of this name.
    pub(super) async fn over(&self, name: &Name) {
        let mut over = pin!(self.over.notified());
        loop {
            over.as_mut().enable();
            if !self.of(name) {
                return;
            }
            over.as_mut().await;
            over.set(self.over.notified());
        }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let mut names = lock(&self.departures.names);
        if let Some(count) = names.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                names.remove(&self.name);
            }
        }
        drop(names);
        self.departures.count.fetch_sub(1, Ordering::SeqCst);
        self.departures.over.notify_waiters();
    }
}
