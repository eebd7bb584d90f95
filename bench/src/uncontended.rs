//! Lock and release of a free name on `memory:`, against tokio's mutex in a map of names.
//!
//! Nobody listens to `tracing` or `metrics` here, so what they cost then is part of the figures.

use std::sync::Arc;

use leasehold::Client;
use tokio::runtime::{Builder, Runtime};

use crate::floor::NamedMutexes;
use crate::measure::{Pair, Ratio, Report, Target, per_operation, time};
use crate::{Done, alloc};

/// As many names as a busy service has in use at a time. Leasehold remembers that many idle ones.
const NAMES: usize = 1024;

/// More than it remembers, so that each is made and forgotten again, as the floor does always.
const MANY_NAMES: usize = 100_000;

/// The two that are compared.
#[derive(Clone)]
enum Way {
    Floor(Arc<NamedMutexes>),
    Ours(Client),
}

impl Way {
    /// Locks and releases so many times, a name after the other.
    async fn pairs(&self, names: &[String], pairs: usize) -> leasehold::Result<()> {
        let names = names.iter().cycle().take(pairs);
        match self {
            Way::Floor(mutexes) => {
                for name in names {
                    mutexes.lock(name).await.release();
                }
            }
            Way::Ours(client) => {
                for name in names {
                    client.mutex(name).lock().await?.release().await?;
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn run(report: &mut Report) -> Done {
    report.section(
        "memory: lock+release of a free name; nobody listens to tracing or metrics, so their cost is in it",
    );
    let slower = one_thread(report, NAMES)?;
    report.target("memory: times the floor", slower.median, "×", Target::AtMost(3.0), slower.spread());
    let slower = one_thread(report, MANY_NAMES)?;
    report.line("times the floor", format!("{:.1}×", slower.median), slower.spread());
    all_cores(report)
}

fn names(count: usize) -> Arc<[String]> {
    (0..count).map(|n| format!("orders/{n}")).collect()
}

fn one_thread(report: &Report, count: usize) -> Done<Ratio> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(leasehold::connect("memory:"))?;
    let (floor, ours) = (Way::Floor(Arc::new(NamedMutexes::new())), Way::Ours(client.clone()));
    let (names, pairs) = (names(count), report.work(200_000));
    let round = |way: &Way| per_operation(pairs, || runtime.block_on(way.pairs(&names, pairs)));
    let times = Pair::alternate(report.rounds(), || round(&floor), || round(&ours))?;
    let allocations = |way: &Way| -> leasehold::Result<String> {
        alloc::start();
        runtime.block_on(way.pairs(&names, pairs))?;
        let each = alloc::stop().allocations as f64 / pairs as f64;
        Ok(format!("{each:.1} allocations"))
    };
    report.line(
        &format!("tokio mutex in a sharded map, {count} names"),
        time(times.floor()),
        allocations(&floor)?,
    );
    report.line(&format!("leasehold, {count} names"), time(times.ours()), allocations(&ours)?);
    runtime.block_on(client.close())?;
    Ok(times.slower())
}

/// One task a core, each with its own part of the names.
fn all_cores(report: &Report) -> Done {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let client = runtime.block_on(leasehold::connect("memory:"))?;
    let (floor, ours) = (Way::Floor(Arc::new(NamedMutexes::new())), Way::Ours(client.clone()));
    let tasks = runtime.metrics().num_workers();
    let (names, pairs) = (names(NAMES), report.work(200_000));
    let round = |way: &Way| per_operation(tasks * pairs, || spread(&runtime, way, &names, tasks, pairs));
    let times = Pair::alternate(report.rounds(), || round(&floor), || round(&ours))?;
    report.line(
        &format!("tokio mutex in a sharded map, {tasks} threads"),
        time(times.floor()),
        "a pair, all together",
    );
    report.line(&format!("leasehold, {tasks} threads"), time(times.ours()), "a pair, all together");
    let slower = times.slower();
    report.line("times the floor", format!("{:.1}×", slower.median), slower.spread());
    Ok(runtime.block_on(client.close())?)
}

fn spread(runtime: &Runtime, way: &Way, names: &Arc<[String]>, tasks: usize, pairs: usize) -> Done {
    let share = names.len() / tasks;
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (way, names) = (way.clone(), names.clone());
            runtime.spawn(async move { way.pairs(&names[task * share..][..share], pairs).await })
        })
        .collect();
    for task in running {
        runtime.block_on(task)??;
    }
    Ok(())
}
