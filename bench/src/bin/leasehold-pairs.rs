//! Lock and release of free names on any store, for so long: `leasehold-pairs pairs URL TASKS MILLIS`. Prints the nanoseconds of a
//! pair. `leasehold-pairs idle URL MILLIS` holds one lock meanwhile and prints what that costs the process.
//!
//! A program of its own that uses only the public API, so that it can be built against another revision of the library:
//! `cargo xtask bench against REV` does that, and compares both on the same servers.
// A benchmark prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold::Client;
use tokio::runtime::{Builder, Runtime};

type Done<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["pairs", url, tasks, millis] => pairs(url, tasks, millis),
        ["idle", url, millis] => idle(url, millis),
        _ => Err("usage: leasehold-pairs pairs URL TASKS MILLIS | idle URL MILLIS".into()),
    };
    match result {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("leasehold-pairs: {e}");
            ExitCode::FAILURE
        }
    }
}

fn pairs(url: &str, tasks: &str, millis: &str) -> Done<String> {
    let (tasks, time) = (tasks.parse()?, Duration::from_millis(millis.parse()?));
    // One thread: two cores are for the client and its server.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(leasehold::connect(url))?;
    lock_and_release(&runtime, &client, tasks, time / 4)?;
    let began = Instant::now();
    let pairs = lock_and_release(&runtime, &client, tasks, time)?;
    let nanos = began.elapsed().as_nanos() as f64 / pairs as f64;
    runtime.block_on(client.close())?;
    Ok(format!("{nanos:.0}"))
}

/// How many pairs so many tasks make in that time, each with a name of its own.
fn lock_and_release(runtime: &Runtime, client: &Client, tasks: usize, time: Duration) -> Done<u64> {
    let end = Instant::now() + time;
    let all = (0..tasks).map(|task| {
        let client = client.clone();
        async move {
            let mut pairs: u64 = 0;
            while Instant::now() < end {
                client.mutex(format!("orders/{task}")).lock().await?.release().await?;
                pairs += 1;
            }
            leasehold::Result::<u64>::Ok(pairs)
        }
    });
    runtime.block_on(async {
        let running = all.map(tokio::spawn).collect::<Vec<_>>();
        let mut sum = 0;
        for task in running {
            sum += task.await??;
        }
        Ok(sum)
    })
}

fn idle(url: &str, millis: &str) -> Done<String> {
    let time = Duration::from_millis(millis.parse()?);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(leasehold::connect(url))?;
    let guard = runtime.block_on(client.mutex("idle").lock())?;
    let before = worked()?;
    std::thread::sleep(time);
    let worked = worked()? - before;
    let threads = fs::read_dir("/proc/self/task")?.count();
    let sockets = fs::read_dir("/proc/self/fd")?.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let sockets = sockets.filter(|to| to.to_string_lossy().starts_with("socket:")).count();
    runtime.block_on(guard.release())?;
    runtime.block_on(client.close())?;
    Ok(format!("{} {threads} {sockets}", worked.as_millis()))
}

/// Processor time of this process so far.
fn worked() -> Done<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::new(time.tv_sec.try_into()?, time.tv_nsec.try_into()?))
}
