//! ZooKeeper: pairs of lock and unlock against create and delete of one ephemeral node, and hand-offs against a delete and
//! the event that it causes, all by the same client crate.
//!
//! - [`floor`]: the bare requests.
//! - [`pairs`]: free names, by one task and by 64.
//! - [`hand_off`]: from one process to another.

pub(crate) mod floor;
mod hand_off;
mod pairs;

use std::time::Duration;

use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};

use crate::Done;
use crate::measure::Report;

/// A part of the benchmark on a server of its own.
type Part = (&'static str, fn(&mut Report, &ZooKeeper) -> Done);

const PARTS: [Part; 2] = [("pairs", pairs::run), ("hand-off", hand_off::run)];

/// The names of the parts.
pub(crate) fn parts() -> Vec<&'static str> {
    PARTS.iter().map(|(name, _)| *name).collect()
}

/// Runs all parts, or one.
pub(crate) fn run(report: &mut Report, only: Option<&str>) -> Done {
    for (_, part) in PARTS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        // As servers in use are: compiled well, with writes on the disk before they are answered, a log that grows in large
        // steps, ticks and checks far apart.
        let options = ZooKeeperOptions::new()
            .java("-XX:TieredStopAtLevel=4")
            .java("-Dzookeeper.forceSync=yes")
            .java("-Dzookeeper.preAllocSize=65536")
            .tick(Duration::from_secs(2))
            .container_check(Duration::from_secs(60));
        part(report, &ZooKeeper::start(options))?;
    }
    Ok(())
}
