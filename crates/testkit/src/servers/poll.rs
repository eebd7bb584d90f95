//! Waiting for conditions in blocking code: look, pause a little, look again, until a deadline.

use std::fmt::Display;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::wait::PATIENCE;

/// Waits until `check` gives a value. Panics with `what` and the last look if it takes too long.
///
/// It blocks the thread. The async sister is [`wait::eventually`](crate::wait::eventually).
pub fn until<T, E: Display>(what: &str, check: impl FnMut() -> Result<T, E>) -> T {
    try_until(PATIENCE, check)
        .unwrap_or_else(|seen| panic!("it never came true that {what}; seen last: {seen}"))
}

/// The same with a limit of its own; gives the last look if it takes too long.
pub(crate) fn try_until<T, E>(limit: Duration, mut check: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_micros(500);
    loop {
        match check() {
            Ok(found) => return Ok(found),
            Err(seen) if Instant::now() > deadline => return Err(seen),
            Err(_) => sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
