//! From one process to another on `file:`, and `leasehold run` beside flock(1). Printed without targets: most of
//! it is the kernel's time to wake and to start processes.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::{Client, Clock, Tick};
use rustix::fs::{FlockOperation, flock};
use tokio::runtime::{Builder, Runtime};

use crate::Done;
use crate::measure::{Report, median, nanos, time};
use crate::redis::message;

/// The first argument of a process that is started as the other side.
pub(crate) const CHILD: &str = "other-side";

const NAME: &str = "hand-off";

/// What passes before a release that is timed, in a hand-off and in what it is compared with: all that were told something have taken it by
/// then, and sleep.
pub(crate) const SETTLE: Duration = Duration::from_micros(200);

pub(crate) fn run(report: &mut Report) -> Done {
    report.section("file: between processes");
    hand_off(report)?;
    commands(report)
}

fn hand_off(report: &Report) -> Done {
    let folder = tempfile::tempdir()?;
    let times = report.work(500);
    let bare = folder.path().join("bare");
    File::create(&bare)?;
    let (p50, p99) = percentiles(flock_hand_offs(&bare, times)?);
    report.line("flock(2), release to the waiter's return, p50", time(p50), format!("p99 {}", time(p99)));
    let url = format!("file:{}", folder.path().join("store").display());
    // The workers serve the store's wake-ups while this thread waits for the other process.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (p50, p99) = percentiles(our_hand_offs(&runtime, &url, times)?);
    report.line("leasehold, release to the waiter's return, p50", time(p50), format!("p99 {}", time(p99)));
    Ok(())
}

pub(crate) fn our_hand_offs(runtime: &Runtime, url: &str, times: usize) -> Done<Vec<f64>> {
    let client = runtime.block_on(leasehold::connect(url))?;
    let mut other = OtherSide::start("leasehold", url)?;
    let mut latencies = Vec::with_capacity(times);
    for _ in 0..times {
        let guard = runtime.block_on(client.mutex(NAME).lock())?;
        other.go()?;
        until(|| Ok(somebody_waits(runtime, &client)?))?;
        // The store knows it before the other process does, which must not still be busy with that answer. The look after it is
        // for us: what was asleep wakes slowly.
        std::thread::sleep(SETTLE);
        somebody_waits(runtime, &client)?;
        let released = Clock::system().now();
        runtime.block_on(guard.release())?;
        latencies.push(nanos(other.entered()?.since(released)));
    }
    runtime.block_on(client.close())?;
    Ok(latencies)
}

fn flock_hand_offs(path: &Path, times: usize) -> Done<Vec<f64>> {
    let file = File::open(path)?;
    let mut other = OtherSide::start("flock", &path.display().to_string())?;
    let waits = format!(" {} ", other.process.id());
    let mut latencies = Vec::with_capacity(times);
    for _ in 0..times {
        flock(&file, FlockOperation::LockExclusive)?;
        other.go()?;
        until(|| {
            let locks = std::fs::read_to_string("/proc/locks")?;
            Ok(locks.lines().any(|line| line.contains("->") && line.contains(&waits)))
        })?;
        let released = Clock::system().now();
        flock(&file, FlockOperation::Unlock)?;
        latencies.push(nanos(other.entered()?.since(released)));
    }
    Ok(latencies)
}

fn somebody_waits(runtime: &Runtime, client: &Client) -> leasehold::Result<bool> {
    Ok(!runtime.block_on(client.inspect(NAME))?.waiters.is_empty())
}

fn until(mut there: impl FnMut() -> Done<bool>) -> Done {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !there()? {
        if Instant::now() > deadline {
            return Err("the other process did not come to wait within 10 s".into());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// The other process: for every line that it reads, it locks, releases, and prints when it had entered.
pub(crate) struct OtherSide {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl OtherSide {
    pub(crate) fn start(way: &str, place: &str) -> Done<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let piped = command.args([CHILD, way, place]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = piped.spawn()?;
        let answers = BufReader::new(process.stdout.take().ok_or("no standard output")?);
        Ok(OtherSide { orders: process.stdin.take(), answers, process })
    }

    pub(crate) fn go(&mut self) -> Done {
        let orders = self.orders.as_mut().ok_or("no standard input")?;
        Ok(orders.write_all(b"go\n")?)
    }

    pub(crate) fn entered(&mut self) -> Done<Tick> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(Tick(line.trim().parse().map_err(|_| format!("the other process said {line:?}"))?))
    }
}

impl Drop for OtherSide {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}

/// What the other process does.
pub(crate) fn child(args: &[&str]) -> Done {
    match args {
        ["leasehold", url] => {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let client = runtime.block_on(leasehold::connect(url))?;
            answer(|| {
                runtime.block_on(async {
                    let guard = client.mutex(NAME).lock().await?;
                    let entered = Clock::system().now();
                    guard.release().await?;
                    Ok(entered)
                })
            })?;
            Ok(runtime.block_on(client.close())?)
        }
        ["flock", path] => {
            let file = File::open(path)?;
            answer(|| {
                flock(&file, FlockOperation::LockExclusive)?;
                let entered = Clock::system().now();
                flock(&file, FlockOperation::Unlock)?;
                Ok(entered)
            })
        }
        ["message", address] => message::receive(address),
        ["poll-mysql", url] => crate::sql::floor::poll("mysql", url),
        ["poll-postgres", url] => crate::sql::floor::poll("postgres", url),
        ["event", address] => crate::zookeeper::floor::watch(address),
        _ => Err("this is started by the benchmark itself".into()),
    }
}

pub(crate) fn answer(mut lock_and_release: impl FnMut() -> Done<Tick>) -> Done {
    for line in std::io::stdin().lines() {
        line?;
        let entered = lock_and_release()?;
        println!("{}", entered.0);
    }
    Ok(())
}

fn commands(report: &Report) -> Done {
    let program = std::env::current_exe()?.with_file_name("leasehold");
    if !program.exists() {
        report.line("leasehold run", "-", format!("{} is not built", program.display()));
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let bare = folder.path().join("bare");
    let store = format!("file:{}", folder.path().join("store").display());
    let mut ways: Vec<(&str, PathBuf, Vec<String>)> = vec![("true", "true".into(), vec![])];
    ways.push(("flock FILE true", "flock".into(), vec![bare.display().to_string(), "true".into()]));
    let run = ["--store", &store, "run", "job", "--", "true"].map(str::to_owned);
    ways.push(("leasehold run NAME -- true", program, run.to_vec()));
    for (what, program, args) in ways {
        match invocations(&program, &args, report.work(200)) {
            Ok(times) => report.line(&format!("{what}, p50"), time(percentiles(times).0), "an invocation"),
            Err(e) => report.line(what, "-", e),
        }
    }
    Ok(())
}

fn invocations(program: &Path, args: &[String], times: usize) -> Done<Vec<f64>> {
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        let status = Command::new(program).args(args).stdin(Stdio::null()).status()?;
        took.push(nanos(began.elapsed()));
        if !status.success() {
            return Err(format!("{}: {status}", program.display()).into());
        }
    }
    Ok(took)
}

pub(crate) fn percentiles(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN);
    (median(times.into_iter()), p99)
}
