//! Benchmarks of Leasehold against floors in the same run: `cargo xtask bench embedded`.
//!
//! A floor is what a user would write without Leasehold, as fast as it goes. Rounds of the floor and of Leasehold
//! alternate, so that whatever else the machine does hits both; figures are medians over the rounds.
//!
//! # Layout
//!
//! - [`uncontended`]: lock and release of a free name on `memory:`, against tokio's mutex in a map of names.
//! - [`files`]: the same on `file:`, against open, flock, unlock and close.
//! - [`handover`]: 64 tasks that want one name on `file:`, with and without the local queue.
//! - [`held`]: what 100,000 held locks cost in memory.
//! - [`processes`]: from one process to another, and as a command beside flock(1).
//! - [`redis`]: the same questions on a Redis server, against redis-benchmark: `cargo xtask bench redis`.
//! - [`zookeeper`]: pairs and hand-offs on a ZooKeeper server, against bare requests: `cargo xtask bench zookeeper`.
//! - [`sql`]: the same on MariaDB and on PostgreSQL, against INSERT and DELETE: `cargo xtask bench mysql` and `postgres`.
//! - [`against`]: this revision against another one, on every store: `cargo xtask bench against REV`.
//! - [`one_name`]: one that many want.
//! - [`free_names`]: locks that nobody else wants.
//! - [`floor`]: the code that Leasehold is compared with.
//! - [`measure`]: rounds, medians, the printed table and the targets.
//! - [`alloc`]: an allocator that counts.
// A benchmark prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod against;
mod alloc;
mod files;
mod floor;
mod free_names;
mod handover;
mod held;
mod measure;
mod one_name;
mod processes;
mod redis;
mod sql;
mod uncontended;
mod zookeeper;

use std::process::ExitCode;

use measure::Report;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// What every measurement returns.
type Done<T = ()> = Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "\
leasehold-bench embedded|redis|zookeeper|mysql|postgres|against PROGRAM [--check] [--quick] [--only PART]

  --check   exit with 1 if a target is missed
  --quick   fewer and shorter rounds: for a look, not for figures to quote
  --only    embedded: uncontended, files, handover, held or processes; redis: pairs, one-name, hand-off or kept;
            zookeeper: pairs or hand-off; mysql, postgres: pairs, one-name, hand-off or idle; against: a store
  PROGRAM   the leasehold-pairs of another revision";

/// One part of the benchmark.
type Part = (&'static str, fn(&mut Report) -> Done);

const PARTS: [Part; 5] = [
    ("uncontended", uncontended::run),
    ("files", files::run),
    ("handover", handover::run),
    ("held", held::run),
    ("processes", processes::run),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["embedded", options @ ..] => bench(options, &PARTS.map(|(name, _)| name), embedded),
        ["redis", options @ ..] => bench(options, &redis::parts(), redis::run),
        ["mysql", options @ ..] => bench(options, &sql::parts(), sql::mysql),
        ["postgres", options @ ..] => bench(options, &sql::parts(), sql::postgres),
        ["zookeeper", options @ ..] => bench(options, &zookeeper::parts(), zookeeper::run),
        ["against", program, options @ ..] => {
            let program = std::path::Path::new(program);
            bench(options, &against::parts(), |report, only| against::run(report, program, only))
        }
        [processes::CHILD, rest @ ..] => done(processes::child(rest)),
        [one_name::CHILD, rest @ ..] => done(one_name::child(rest)),
        _ => usage(),
    }
}

fn bench(
    mut options: &[&str],
    parts: &[&str],
    run: impl FnOnce(&mut Report, Option<&str>) -> Done,
) -> ExitCode {
    let (mut check, mut quick, mut only) = (false, false, None);
    while let Some((option, rest)) = options.split_first() {
        options = rest;
        match *option {
            "--check" => check = true,
            "--quick" => quick = true,
            "--only" if !rest.is_empty() => (only, options) = (Some(rest[0]), &rest[1..]),
            _ => return usage(),
        }
    }
    if only.is_some_and(|only| !parts.contains(&only)) {
        return usage();
    }
    let mut report = Report::new(quick);
    if let Err(e) = run(&mut report, only) {
        return done(Err(e));
    }
    let missed = report.finish();
    if check && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The stores that need no server.
fn embedded(report: &mut Report, only: Option<&str>) -> Done {
    for (_, part) in PARTS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        part(report)?;
    }
    Ok(())
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(64)
}

fn done(result: Done) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("leasehold-bench: {e}");
            ExitCode::FAILURE
        }
    }
}
