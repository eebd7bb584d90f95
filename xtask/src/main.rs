//! The project's own commands: `cargo xtask COMMAND`.
//!
//! # Layout
//!
//! - `test`: everything that can be shown on one machine: tests, doc tests, interleavings, examples.
//! - `programs`: test programs, several at a time.
//! - `bench`: benchmarks, in release.
//! - `fuzz`: the fuzzer of the public API for as long as one likes, and the whole cancellation matrix.
//! - `deny`, `msrv`, `package`: jobs of `.ci/run` that need more than one line of shell.
//! - `tools`: programs that must be there, and how a missing one is installed.
//! - `sh`: how commands are run and how their failure is told.
#![forbid(unsafe_code)]
// A command line talks on its standard streams.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod deny;
mod fuzz;
mod msrv;
mod package;
mod programs;
mod sh;
mod test;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

  test [FILTER]           tests, doc tests, interleavings, examples; installs what they need
                          (with FILTER: only the tests whose name contains it)
  bench embedded [ARGS]   the benchmarks that need no server; --check fails below a target, --quick is shorter
  bench redis [ARGS]      the same questions on a Redis server
  bench zookeeper [ARGS]  the same questions on a ZooKeeper server
  bench mysql [ARGS]      the same questions on a MariaDB server
  bench postgres [ARGS]   the same questions on a PostgreSQL server
  bench against REV [ARGS]
                          this work tree against another revision, on every store; --only picks a store
  fuzz [STORE] [--claims N] [--seed S]
                          random sequences of public calls on one store, or on all; `fuzz matrix` drops every
                          operation at every poll and fails every store call, in every situation
  ci                      all that CI checks: the same as .ci/run
  deny                    licences, sources, bans, and advisories if their database can be reached
  msrv                    builds with the oldest Rust that Cargo.toml promises
  package                 packages every published crate and builds it from its package";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["test"] => test::run(None),
        ["test", filter] if !filter.starts_with('-') => test::run(Some(filter)),
        ["bench", "embedded", rest @ ..] => bench::embedded(rest),
        ["bench", "redis", rest @ ..] => bench::redis(rest),
        ["bench", "zookeeper", rest @ ..] => bench::zookeeper(rest),
        ["bench", "against", rev, rest @ ..] => bench::against(rev, rest),
        ["bench", which @ ("mysql" | "postgres"), rest @ ..] => bench::sql(which, rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["ci"] => sh::Cmd::new(sh::root().join(".ci/run")).run(),
        ["deny"] => deny::run(),
        ["msrv"] => msrv::run(),
        ["package"] => package::run(),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("xtask: {what}");
            ExitCode::FAILURE
        }
    }
}
