//! Redis: pairs of lock and unlock against redis-benchmark's bare commands, hand-offs against a round trip, and what it
//! costs to keep 100,000 locks.
//!
//! - [`floor`] is redis-benchmark.
//! - [`pairs`]: free names, by one task and by 64.
//! - [`one_name`]: one name that many tasks want, in one process and in four.
//! - [`hand_off`]: from one process to another.
//! - [`network`]: a way to the server that takes time.
//! - [`message`]: what a hand-off can't be faster than.
//! - [`kept`]: the renewal of 100,000 held locks.

mod floor;
mod hand_off;
mod kept;
pub(crate) mod message;
mod network;
mod one_name;
mod pairs;

use leasehold_testkit::servers::redis::{Redis, RedisOptions};

use crate::Done;
use crate::measure::Report;

/// A part of the benchmark on a server of its own.
type Part = (&'static str, fn(&mut Report, &Redis) -> Done);

const PARTS: [Part; 4] =
    [("pairs", pairs::run), ("one-name", one_name::run), ("hand-off", hand_off::run), ("kept", kept::run)];

/// The names of the parts.
pub(crate) fn parts() -> Vec<&'static str> {
    PARTS.iter().map(|(name, _)| *name).collect()
}

/// Runs all parts, or one.
pub(crate) fn run(report: &mut Report, only: Option<&str>) -> Done {
    for (_, part) in PARTS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        part(report, &Redis::start(RedisOptions::new()))?;
    }
    Ok(())
}
