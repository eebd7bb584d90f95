//! Until when it is known that nobody watches.
//!
//! Whoever takes or gives back a lock has to know whether somebody wants to be told. To look for that in the same statement costs the server as
//! much as half of the rest. So a session that is busy looks once in [`LAG`], and in between its statements only ask for the time; and
//! whoever begins to watch waits for that long, until all others have looked again.
//!
//! It is asked for twice: here before a statement is sent, so that a clock of the database that is set back changes nothing, and by the
//! statement itself, which may be long under way.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::row::micros;
use leasehold_core::{Clock, Tick};

/// How long others may go on without looking for those that watch.
pub const LAG: Duration = Duration::from_millis(250);

/// What the last look has shown.
pub struct Unwatched {
    clock: Clock,
    last: Mutex<Option<Look>>,
}

/// A look that found nobody.
struct Look {
    /// Before it was sent, by our clock.
    sent: Tick,
    /// By the clock of the database.
    at: u64,
}

impl Unwatched {
    /// Nothing was seen yet.
    pub fn new(clock: Clock) -> Self {
        Unwatched { clock, last: Mutex::new(None) }
    }

    /// The time by our clock, for [`seen`](Unwatched::seen).
    pub fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Until when nobody has to be looked for, by the clock of the database. `None` if that has to be done now.
    pub fn until(&self) -> Option<u64> {
        let now = self.now();
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|look| now < look.sent + LAG).map(|look| look.at + micros(LAG))
    }

    /// A statement that was sent then found nobody, at this time of the database.
    pub fn seen(&self, sent: Tick, at: u64) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Look { sent, at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_counts_for_a_while_by_both_clocks() {
        let clock = Clock::manual();
        let unwatched = Unwatched::new(clock.clone());
        assert_eq!(unwatched.until(), None);
        unwatched.seen(clock.now(), 1_000_000);
        assert_eq!(unwatched.until(), Some(1_250_000));
        clock.advance(LAG - Duration::from_nanos(1));
        assert_eq!(unwatched.until(), Some(1_250_000));
        clock.advance(Duration::from_nanos(1));
        assert_eq!(unwatched.until(), None);
    }
}
