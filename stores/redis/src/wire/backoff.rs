//! How long to wait before the next try.

use std::time::Duration;

/// Delays that double from one bound to the other, each with a random part, so that many clients of one server don't
/// come back at the same moment.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    first: Duration,
    most: Duration,
}

impl Backoff {
    /// Between connection attempts: a server that restarts is found soon, one that is gone is asked once a second.
    pub(crate) fn connecting() -> Self {
        Backoff::new(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Between tries of one command, within its time.
    pub(crate) fn repeating() -> Self {
        Backoff::new(Duration::from_millis(5), Duration::from_millis(200))
    }

    /// Between questions for the map of a cluster that does not change, or not yet.
    pub(crate) fn refreshing() -> Self {
        Backoff::new(Duration::from_millis(40), Duration::from_millis(500))
    }

    fn new(first: Duration, most: Duration) -> Self {
        Backoff { next: first, first, most }
    }

    /// The next delay.
    pub(crate) fn delay(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.most);
        // Between half and all of it.
        let part = f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX);
        whole.mul_f64(0.5 + part / 2.0)
    }

    /// Starts again with the first delay.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_bound_and_start_again() {
        let mut backoff = Backoff::connecting();
        let first = backoff.delay();
        assert!(first >= Duration::from_millis(5) && first <= Duration::from_millis(10), "{first:?}");
        let last = (0..20).map(|_| backoff.delay()).last().unwrap();
        assert!(last >= Duration::from_millis(500) && last <= Duration::from_secs(1), "{last:?}");
        backoff.reset();
        assert!(backoff.delay() <= Duration::from_millis(10));
    }
}
