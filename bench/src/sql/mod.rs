//! MariaDB and PostgreSQL: pairs of lock and unlock against INSERT and DELETE of one row, one name that many want, hand-offs in
//! round trips, and what those who wait cost.
//!
//! - [`server`]: a server of either kind.
//! - [`floor`]: the bare statements, by the driver that Leasehold uses.
//! - [`pairs`]: free names, by one task and by 64.
//! - [`one_name`]: one name that many tasks want, in one process and in four.
//! - [`hand_off`]: from one process to another.
//! - [`idle`]: statements of those that wait.

pub(crate) mod floor;
mod hand_off;
mod idle;
mod one_name;
mod pairs;
mod server;

use crate::Done;
use crate::measure::Report;
use server::Server;

/// A part of the benchmark.
type Part = (&'static str, fn(&mut Report, &Server) -> Done);

const PARTS: [Part; 4] =
    [("pairs", pairs::run), ("one-name", one_name::run), ("hand-off", hand_off::run), ("idle", idle::run)];

/// The names of the parts.
pub(crate) fn parts() -> Vec<&'static str> {
    PARTS.iter().map(|(name, _)| *name).collect()
}

/// Runs all parts, or one, on MariaDB.
pub(crate) fn mysql(report: &mut Report, only: Option<&str>) -> Done {
    run(report, only, Server::mysql)
}

/// Runs all parts, or one, on PostgreSQL.
pub(crate) fn postgres(report: &mut Report, only: Option<&str>) -> Done {
    run(report, only, Server::postgres)
}

fn run(report: &mut Report, only: Option<&str>, start: fn(bool) -> Server) -> Done {
    let wanted = PARTS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
    // As servers in use are: every commit is on disk before it is answered.
    let server = start(true);
    for (_, part) in wanted {
        part(report, &server)?;
    }
    drop(server);
    if only.is_none_or(|only| only == "pairs") {
        pairs::without_disk(report, &start(false))?;
    }
    Ok(())
}
