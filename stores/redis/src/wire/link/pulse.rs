//! How old the oldest unanswered call is, without a timer for each.
//!
//! A timer costs a fifth of the work that a call is for the client, and calls come by the hundred thousand. So a call only
//! counts itself into the present period of time and out again, and the supervisor looks from time to time whether anybody
//! is left in an old one. It then asks the server itself, because a call can also be old for another reason: whoever made it
//! may have no time to take its answer.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// How many periods are counted apart, more than any call may live through.
const PERIODS: usize = 8;

/// The time of a call has this many.
const PER_CALL: u32 = 4;

/// A call that lived through this many is looked at: what is left of its time is for looking.
const OLD: usize = 3;

/// Counts calls by the period in which they began.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    now: AtomicUsize,
    begun: [AtomicU32; PERIODS],
}

/// A call that waits for its answer.
pub(super) struct Waiting<'a>(&'a AtomicU32);

impl Pulse {
    /// How long a period is, if calls may take this long.
    pub(super) fn period(time: Duration) -> Duration {
        (time / PER_CALL).max(Duration::from_millis(1))
    }

    /// Counts a call until the result is dropped.
    pub(super) fn begin(&self) -> Waiting<'_> {
        let count = &self.begun[self.now.load(Relaxed) % PERIODS];
        count.fetch_add(1, Relaxed);
        Waiting(count)
    }

    /// Begins the next period, and tells whether there is an old call.
    pub(super) fn tick(&self) -> bool {
        let now = self.now.fetch_add(1, Relaxed).wrapping_add(1);
        // One that is older than all periods counts as a new one, and is found again later.
        (OLD..PERIODS).any(|age| self.begun[now.wrapping_sub(age) % PERIODS].load(Relaxed) > 0)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_old_before_its_time_is_over() {
        let pulse = Pulse::default();
        let answered = pulse.begin();
        let waiting = pulse.begin();
        drop(answered);
        let ticks = (1..).find(|_| pulse.tick()).unwrap();
        assert_eq!(ticks, OLD);
        assert!(ticks < PER_CALL as usize);
        drop(waiting);
        assert!(!(0..50).any(|_| pulse.tick()));
    }

    #[test]
    fn calls_that_are_answered_never_grow_old() {
        let pulse = Pulse::default();
        let mut last = pulse.begin();
        for _ in 0..100 {
            assert!(!pulse.tick());
            last = pulse.begin();
        }
        drop(last);
    }
}
