//! The exit of the process waits a moment for releases in flight.
//!
//! A program that locks, works and returns from `main` has dropped its guard; without this wait the release would die with
//! the process, and the lock would stay for its whole lease.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the exit of a process waits for releases that a store does not answer, in all: destructors that have waited
/// for them just before count.
pub const EXIT_PATIENCE: Duration = Duration::from_secs(1);

/// How long the exit waits at least: destructors may have waited for one store in vain, and another one answers.
const AT_LEAST: Duration = Duration::from_millis(100);

/// A wait in vain that is longer ago does not count any more.
const REFILL: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct InFlightCount(Arc<Count>);

#[derive(Default)]
struct Count {
    state: Mutex<State>,
    none_left: Condvar,
}

#[derive(Default)]
struct State {
    in_flight: usize,
    /// How long was waited in vain for what is in flight, and when that was.
    spent: Option<(Duration, Instant)>,
}

/// Something that the exit of the process waits for while this value lives.
pub struct InFlight(Arc<Count>);

impl Count {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlightCount {
    pub(crate) fn begin(&self) -> InFlight {
        self.0.lock().in_flight += 1;
        InFlight(self.0.clone())
    }

    /// Waits until nothing is in flight, but no longer than the [patience](Self::patience), or for a moment.
    pub(crate) fn wait(&self) {
        let patience = self.patience().max(AT_LEAST);
        let some = |state: &mut State| state.in_flight > 0;
        let _ = self.0.none_left.wait_timeout_while(self.0.lock(), patience, some);
    }

    /// What is left of [`EXIT_PATIENCE`].
    pub(crate) fn patience(&self) -> Duration {
        match self.0.lock().spent {
            Some((spent, at)) if at.elapsed() < REFILL => EXIT_PATIENCE.saturating_sub(spent),
            _ => EXIT_PATIENCE,
        }
    }

    /// Something was waited for in vain, and is in flight still.
    pub(crate) fn spend(&self, waited: Duration) {
        let left = self.patience();
        self.0.lock().spent = Some((EXIT_PATIENCE - left.saturating_sub(waited), Instant::now()));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.in_flight -= 1;
        if state.in_flight == 0 {
            state.spent = None;
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
        assert_eq!(count.0.lock().in_flight, 0);
        last.join().unwrap();
    }

    #[test]
    fn a_store_that_does_not_answer_holds_up_the_exit_for_a_moment_only() {
        let count = InFlightCount::default();
        let in_flight = count.begin();
        count.wait();
        assert_eq!(count.0.lock().in_flight, 1);
        drop(in_flight);
    }

    #[test]
    fn a_store_that_answers_is_waited_for_though_another_one_used_the_patience_up() {
        let count = InFlightCount::default();
        let _silent = count.begin();
        count.spend(EXIT_PATIENCE);
        let began = Instant::now();
        count.wait();
        assert!(began.elapsed() >= AT_LEAST);
    }

    #[test]
    fn waits_in_vain_share_one_patience_until_the_store_answers() {
        let count = InFlightCount::default();
        let in_flight = count.begin();
        count.spend(EXIT_PATIENCE * 3 / 4);
        assert_eq!(count.patience(), EXIT_PATIENCE / 4);
        count.spend(EXIT_PATIENCE);
        assert_eq!(count.patience(), Duration::ZERO);
        drop(in_flight);
        assert_eq!(count.patience(), EXIT_PATIENCE);
    }
}
