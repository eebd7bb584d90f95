//! Everything that can be shown on one machine.

use std::fs;
use std::time::{Duration, Instant};

use crate::sh::{self, Cmd, Done};
use crate::{programs, tools};

/// How long tests may print nothing, which is many times longer than the longest takes: a program that is silent for so long
/// hangs. It is killed, its last lines say which tests it was in, and the others run.
const SILENCE: Duration = Duration::from_secs(10 * 60);

/// Runs the tests, or those whose name contains `filter`.
pub(crate) fn run(filter: Option<&str>) -> Done {
    tools::ensure(tools::FOR_TESTS)?;
    let mut report = Report::default();
    report.step("tests", |sum| tests(filter, sum));
    report.step("doc tests", |sum| doc_tests(filter, sum));
    report.step("ZooKeeper by TLS", |sum| zookeeper_tls_tests(filter, sum));
    report.step("interleavings (shuttle)", |sum| shuttle_tests(filter, sum));
    if filter.is_none() {
        for example in examples()? {
            report.step(&format!("example {example}"), |_| run_example(&example));
        }
    }
    report.finish()
}

/// Libraries, programs and integration tests; examples are built.
///
/// Most tests wait for a server, or for the end of a lease: several programs run at once, each with more tests than there are cores.
fn tests(filter: Option<&str>, sum: &mut Sum) -> Done {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| (2 * cores).to_string());
    let programs = programs::build(Cmd::cargo().args(["test", "--workspace"]))?;
    let prepare = |cmd: Cmd| cmd.args(filter).env("RUST_TEST_THREADS", &threads);
    programs::run(&programs, cores.max(2), SILENCE, prepare, &mut |line: &str| sum.see(line))
}

fn doc_tests(filter: Option<&str>, sum: &mut Sum) -> Done {
    let cargo = Cmd::cargo().args(["test", "--workspace", "--doc", "--no-fail-fast"]).args(filter);
    cargo.run_seeing(SILENCE, |line| sum.see(line))
}

/// Builds first, however long that takes; only what runs can hang.
fn build_and_run(cargo: impl Fn() -> Cmd, sum: &mut Sum) -> Done {
    cargo().args(["--no-run"]).run()?;
    cargo().run_seeing(SILENCE, |line| sum.see(line))
}

/// A feature that nobody has who does not ask for it, since it brings a second cryptography library.
fn zookeeper_tls_tests(filter: Option<&str>, sum: &mut Sum) -> Done {
    // With the whole workspace, whatever it has in common with the tests before is not built again.
    let tls = ["test", "--workspace", "--features", "leasehold-zookeeper/tls", "--test", "tls"];
    build_and_run(|| Cmd::cargo().args(tls).args(filter), sum)
}

/// The local queue and the hand-over of guards in thousands of interleavings. The flag swaps the client's mutexes for
/// the checker's, so it is a build of its own, in a folder of its own.
fn shuttle_tests(filter: Option<&str>, sum: &mut Sum) -> Done {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let cargo = || {
        Cmd::cargo()
            .args(["test", "--package", "leasehold-client", "--lib", filter.unwrap_or("interleavings")])
            .env("RUSTFLAGS", format!("{flags} --cfg shuttle").trim())
            .env("CARGO_TARGET_DIR", sh::target_dir().join("shuttle"))
    };
    build_and_run(cargo, sum)
}

/// The examples assert what they tell, so running them is a test. They were built with the tests.
fn run_example(name: &str) -> Done {
    Cmd::new(sh::target_dir().join("debug/examples").join(name)).run()
}

fn examples() -> Done<Vec<String>> {
    let folder = sh::root().join("crates/leasehold/examples");
    let files = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> = files
        .filter_map(|file| file.ok()?.file_name().into_string().ok()?.strip_suffix(".rs").map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

/// What the lines `test result: …` add up to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Sum {
    fn see(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        for part in counts.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(count)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }
}

#[derive(Default)]
struct Report {
    sum: Sum,
    steps: Vec<(String, Duration, Done)>,
}

impl Report {
    /// Runs a step. A failed one doesn't keep the next from running: all failures are seen in one go.
    fn step(&mut self, name: &str, run: impl FnOnce(&mut Sum) -> Done) {
        println!("\n== {name}");
        let began = Instant::now();
        let done = run(&mut self.sum);
        self.steps.push((name.to_owned(), began.elapsed(), done));
    }

    fn finish(self) -> Done {
        println!("\n== summary");
        for (name, took, done) in &self.steps {
            let word = if done.is_ok() { "ok    " } else { "FAILED" };
            println!("{word} {:>7.1} s  {name}", took.as_secs_f64());
        }
        let Sum { passed, failed, ignored } = self.sum;
        let word = if self.steps.iter().all(|(_, _, done)| done.is_ok()) { "ok" } else { "FAILED" };
        println!("{word}: {passed} passed, {failed} failed, {ignored} ignored");
        let failures: Vec<String> = self.steps.into_iter().filter_map(|(_, _, done)| done.err()).collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("\nxtask: ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_all_test_programs_are_added_up() {
        let mut sum = Sum::default();
        sum.see("running 5 tests\n");
        sum.see(
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        sum.see("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1.5s\n");
        assert_eq!(sum, Sum { passed: 7, failed: 1, ignored: 1 });
    }
}
