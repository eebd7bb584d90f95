//! What answers come from, and how callers learn that none will come any more.
//!
//! redis-rs tells those that wait for an answer when their connection ends, except for one: whoever puts its command into the queue
//! while the other end drains it for the last time. Such a command stays in the queue as long as anybody has the connection, and
//! whoever waits for its answer has it. So callers listen to us as well.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::config::Address;

/// A connection, as far as callers have to know it.
#[derive(Debug)]
pub(crate) struct Source {
    /// Where the connection goes.
    pub(crate) address: Address,
    /// Counts the connections of a link, from 1.
    pub(crate) generation: u64,
    /// The server's process, if our user may know it.
    process: Option<String>,
    /// It ended. A caller may find that before the supervisor does: nobody else tries it.
    dead: AtomicBool,
    /// Told when it ends.
    died: Notify,
}

impl Source {
    pub(super) fn new(address: Address, generation: u64, process: Option<String>) -> Self {
        Source { address, generation, process, dead: AtomicBool::new(false), died: Notify::new() }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Nothing will be answered any more: all who listen to [`end`](Source::end) are told.
    pub(super) fn die(&self) {
        if !self.dead.swap(true, Ordering::AcqRel) {
            self.died.notify_waiters();
        }
    }

    /// Is ready when the connection ends. `None` if it has.
    pub(super) fn end(&self) -> Option<impl Future<Output = ()>> {
        // It hears all that is said after this moment, so one that dies later than we look is not missed.
        let end = self.died.notified();
        (!self.is_dead()).then_some(end)
    }

    /// Whether both are connections to the same server, as far as can be known.
    pub(crate) fn is_same_server(&self, other: &Source) -> bool {
        self.address == other.address && self.process == other.process
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn whoever_waits_learns_of_the_end() {
        let source = Source::new(Address::Tcp { host: "localhost".into(), port: 1 }, 1, None);
        let early = source.end().unwrap();
        let mut late = Box::pin(source.end().unwrap());
        assert_eq!(late.as_mut().now_or_never(), None);
        source.die();
        assert_eq!((early.now_or_never(), late.now_or_never()), (Some(()), Some(())));
        assert!(source.end().is_none());
    }
}
