//! The clock that validity is measured on: one that also runs while the machine sleeps.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A moment, in nanoseconds since the machine started, sleep included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// A moment that never comes.
    pub const NEVER: Tick = Tick(u64::MAX);

    /// How long from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Tick {
    type Output = Tick;

    fn add(self, d: Duration) -> Tick {
        Tick(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Tick {
    type Output = Tick;

    fn sub(self, d: Duration) -> Tick {
        Tick(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Where the time comes from: the system, or a test's hand.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// The system's clock: `CLOCK_BOOTTIME`, which counts suspend. A lease that ended while a laptop slept has ended.
    pub const fn system() -> Self {
        Clock(None)
    }

    /// A clock that a test moves by hand with [`advance`](Clock::advance). Clones share it.
    pub fn manual() -> Self {
        Clock(Some(Arc::new(AtomicU64::new(1_000_000_000))))
    }

    /// Whether a test moves it.
    pub fn is_manual(&self) -> bool {
        self.0.is_some()
    }

    /// The moment now.
    pub fn now(&self) -> Tick {
        match &self.0 {
            None => boot_time(),
            Some(nanos) => Tick(nanos.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock on. Does nothing to the system's.
    pub fn advance(&self, by: Duration) {
        if let Some(nanos) = &self.0 {
            nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
    }
}

fn boot_time() -> Tick {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia"))]
    let id = rustix::time::ClockId::Boottime;
    // On macOS and the BSDs this clock counts sleep or comes nearest to it.
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "fuchsia")))]
    let id = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(id);
    Tick(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Microseconds since 1970: what tokens start from and what people read. Never used to measure a lease.
pub fn wall_micros() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_on_and_a_manual_one_stands_still() {
        let clock = Clock::system();
        let first = clock.now();
        assert!(clock.now() >= first && first.0 > 0);

        let clock = Clock::manual();
        let first = clock.now();
        assert_eq!(clock.now(), first);
        clock.clone().advance(Duration::from_secs(3));
        assert_eq!(clock.now().since(first), Duration::from_secs(3));
    }
}
