//! Random choices, and how a future is cut.

use std::time::Duration;

use tokio::time::timeout;

use crate::cancellation_matrix::Boxed;
use crate::cancellation_matrix::drive::Stepped;
use crate::faulty::random;
use crate::wait::PATIENCE;

/// The choices of one task: the same for the same seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The choices of a task in the round with this seed.
    pub fn new(seed: u64, task: u64) -> Self {
        let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ task.wrapping_mul(0xd1b5_4a32_d192_ed03);
        random(&mut mixed);
        Dice(mixed)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        random(&mut self.0) % n
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A time below this many microseconds.
    pub fn micros(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.below(below))
    }

    /// How a future is cut, if it is.
    pub fn cut(&mut self) -> Cut {
        match self.below(10) {
            0..=3 => Cut::Never,
            4..=6 => Cut::Polls(self.below(5), self.micros(600)),
            7 => Cut::Polls(self.below(12), self.micros(3000)),
            _ => Cut::Time(self.micros(8000)),
        }
    }
}

/// How a future is cut.
#[derive(Debug, Clone, Copy)]
pub enum Cut {
    /// It runs to its end.
    Never,
    /// It is dropped after so many polls, each when it was woken or after this time.
    Polls(u64, Duration),
    /// It is dropped after this time.
    Time(Duration),
}

/// How a future ended.
#[derive(Debug)]
pub enum Ended<T> {
    /// By itself.
    Done(T),
    /// It was dropped.
    Dropped,
    /// It should have ended long ago.
    Hangs,
}

impl Cut {
    /// Runs a future, or what the cut leaves of it.
    pub async fn run<T>(self, future: Boxed<T>) -> Ended<T> {
        match self {
            Cut::Never => timeout(PATIENCE, future).await.map_or(Ended::Hangs, Ended::Done),
            Cut::Time(time) => timeout(time, future).await.map_or(Ended::Dropped, Ended::Done),
            Cut::Polls(polls, pause) => {
                let mut future = Stepped::new(future);
                for _ in 0..polls {
                    if let Some(output) = future.poll() {
                        return Ended::Done(output);
                    }
                    future.woken(pause).await;
                }
                Ended::Dropped
            }
        }
    }
}

impl<T> Ended<T> {
    /// What it gave, if it ended by itself.
    pub fn output(self) -> Option<T> {
        match self {
            Ended::Done(output) => Some(output),
            Ended::Dropped | Ended::Hangs => None,
        }
    }
}
