//! The exit of the process waits a moment for releases in flight.
//!
//! A program that locks, works and returns from `main` has dropped its guard; without this wait the release would die with
//! the process, and the lock would stay for its whole lease.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the exit of a process waits for releases that a store does not answer.
pub const EXIT_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct InFlightCount(Arc<Count>);

#[derive(Default)]
struct Count {
    in_flight: Mutex<usize>,
    none_left: Condvar,
}

/// Something that the exit of the process waits for while this value lives.
pub struct InFlight(Arc<Count>);

impl Count {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlightCount {
    pub(crate) fn begin(&self) -> InFlight {
        *self.0.lock() += 1;
        InFlight(self.0.clone())
    }

    /// Waits until nothing is in flight, but no longer than [`EXIT_PATIENCE`].
    pub(crate) fn wait(&self) {
        let some = |in_flight: &mut usize| *in_flight > 0;
        let _ = self.0.none_left.wait_timeout_while(self.0.lock(), EXIT_PATIENCE, some);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut in_flight = self.0.lock();
        *in_flight -= 1;
        if *in_flight == 0 {
            self.0.none_left.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_with_the_last_of_them() {
        let count = InFlightCount::default();
        count.wait();
        let (a, b) = (count.begin(), count.begin());
        drop(a);
        let last = std::thread::spawn(move || drop(b));
        count.wait();
        assert_eq!(*count.0.lock(), 0);
        last.join().unwrap();
    }

    #[test]
    fn a_store_that_does_not_answer_holds_up_the_exit_for_a_moment_only() {
        let count = InFlightCount::default();
        let in_flight = count.begin();
        count.wait();
        assert_eq!(*count.0.lock(), 1);
        drop(in_flight);
    }
}
