//! 64 tasks that want one name on `file:`: the local queue against a file transaction for each of them.

use leasehold::{Budget, Client, Mutex};
use tokio::runtime::{Builder, Runtime};

use crate::Done;
use crate::measure::{Pair, Report, Target, per_operation, time};

const TASKS: usize = 64;

pub(crate) fn run(report: &mut Report) -> Done {
    report.section(&format!("file: {TASKS} tasks that want one name, time from one holder to the next"));
    let one = Builder::new_current_thread().enable_all().build()?;
    let faster = compare(report, &one, "one thread")?;
    report.target("file: local hand-overs, times as fast", faster.0, "×", Target::AtLeast(50.0), faster.1);
    let many = Builder::new_multi_thread().enable_all().build()?;
    let threads = many.metrics().num_workers();
    let faster = compare(report, &many, &format!("{threads} threads"))?;
    report.line("times as fast", format!("{:.1}×", faster.0), faster.1);
    Ok(())
}

/// How many times as fast local hand-overs are, and how much that varied.
fn compare(report: &Report, runtime: &Runtime, on: &str) -> Done<(f64, String)> {
    let folder = tempfile::tempdir()?;
    let url = format!("file:{}", folder.path().display());
    let open = |budget: Option<Budget>| {
        let builder = Client::builder();
        let builder = match budget {
            Some(budget) => builder.local_queue(budget),
            None => builder,
        };
        runtime.block_on(leasehold::connect_with(builder, &url))
    };
    let (each_alone, together) = (open(Some(Budget::off()))?, open(None)?);
    let (few, many) = (report.work(100), report.work(2_000));
    let times = Pair::alternate(
        report.rounds(),
        || per_operation(TASKS * few, || contend(runtime, &each_alone, few)),
        || per_operation(TASKS * many, || contend(runtime, &together, many)),
    )?;
    report.line(&format!("a file transaction each (budget off), {on}"), time(times.floor()), "a hand-over");
    report.line(&format!("local hand-overs, {on}"), time(times.ours()), "a hand-over");
    runtime.block_on(async { each_alone.close().await.and(together.close().await) })?;
    let faster = times.slower().inverse();
    Ok((faster.median, faster.spread()))
}

/// Every task locks and releases the same name so many times, so that all of them wait nearly all of the time.
fn contend(runtime: &Runtime, client: &Client, times: usize) -> Done {
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let hot = client.mutex("hot");
            runtime.spawn(lock_and_release(hot, times))
        })
        .collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    Ok(())
}

/// Every holder lets the others run once while it holds. Without that a task on one thread would never meet another.
async fn lock_and_release(mutex: Mutex, times: usize) -> leasehold::Result<()> {
    for _ in 0..times {
        let guard = mutex.lock().await?;
        tokio::task::yield_now().await;
        guard.release().await?;
    }
    Ok(())
}
