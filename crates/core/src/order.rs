//! In which order claims get in.

use std::time::Duration;

/// In which order waiting claims get in. All of them exclude each other on one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served.
    #[default]
    Queue,
    /// Take it if it is free, else wait to be told and try again: more throughput, no order.
    Barge,
    /// Take it if it is free, else try again after a growing, jittered pause, and never ask to be told.
    Spin(Backoff),
}

impl Order {
    /// [`Order::Spin`] with the usual pauses.
    pub fn spin() -> Self {
        Order::Spin(Backoff::default())
    }

    /// The word that people read.
    pub const fn as_str(self) -> &'static str {
        match self {
            Order::Queue => "queue",
            Order::Barge => "barge",
            Order::Spin(_) => "spin",
        }
    }
}

/// Pauses that double from `first` to `most`, each cut to a random part of itself (half to whole), so that
/// those who failed together don't try together again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_millis(1), most: Duration::from_millis(64) }
    }
}

impl Backoff {
    /// The pause after the `tries`-th failure (from 0); `random` is any number, its low bits are used.
    pub fn pause(self, tries: u32, random: u32) -> Duration {
        let whole = self.first.saturating_mul(1u32.checked_shl(tries).unwrap_or(u32::MAX)).min(self.most);
        let half = whole / 2;
        half + half.mul_f64(f64::from(random % 1024) / 1023.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_bounded() {
        let b = Backoff::default();
        assert_eq!(b.pause(0, 1023), Duration::from_millis(1));
        assert_eq!(b.pause(0, 0), Duration::from_micros(500));
        assert_eq!(b.pause(3, 1023), Duration::from_millis(8));
        for tries in 6..200 {
            assert_eq!(b.pause(tries, 1023), b.most);
        }
    }
}
