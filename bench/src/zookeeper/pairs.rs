//! Lock and release of free names, by one task and by 64 at a time, over the one session of a client.

use leasehold_testkit::servers::ZooKeeper;
use tokio::runtime::{Builder, Runtime};

use super::floor;
use crate::Done;
use crate::free_names::{its_own, lock_and_release};
use crate::measure::{Pair, Report, Target, per_operation, time};

pub(crate) fn run(report: &mut Report, server: &ZooKeeper) -> Done {
    report.section("zookeeper: lock and release of free names, one client");
    let one = Builder::new_current_thread().enable_all().build()?;
    warm_up(report, server, &one)?;
    compare(report, server, &one, "one thread", 1, 1_000)?;
    compare(report, server, &one, "one thread", 64, 100)?;
    let many = Builder::new_multi_thread().enable_all().build()?;
    let threads = format!("{} threads", many.metrics().num_workers());
    compare(report, server, &many, &threads, 1, 1_000)?;
    compare(report, server, &many, &threads, 64, 100)
}

/// A fresh server compiles itself for its first seconds, and takes half of the machine for that.
fn warm_up(report: &Report, server: &ZooKeeper, runtime: &Runtime) -> Done {
    let bare = runtime.block_on(floor::connect(&server.address().to_string()))?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    for _ in 0..4 {
        floor::create_and_delete(runtime, &bare, 64, report.work(100))?;
        lock_and_release(runtime, &client, 64, report.work(100), its_own)?;
    }
    runtime.block_on(client.close())?;
    Ok(())
}

fn compare(
    report: &mut Report,
    server: &ZooKeeper,
    runtime: &Runtime,
    on: &str,
    tasks: usize,
    pairs_each: usize,
) -> Done {
    let bare = runtime.block_on(floor::connect(&server.address().to_string()))?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let each = report.work(pairs_each);
    let times = Pair::alternate(
        report.rounds(),
        || per_operation(tasks * each, || floor::create_and_delete(runtime, &bare, tasks, each)),
        || per_operation(tasks * each, || lock_and_release(runtime, &client, tasks, each, its_own)),
    )?;
    runtime.block_on(client.close())?;
    let rate = |nanos: f64| format!("{:.0}/s", 1e9 / nanos);
    let what = format!("{tasks} in flight");
    report.line(&format!("create and delete, {what}, {on}"), time(times.floor()), rate(times.floor()));
    report.line(&format!("leasehold, {what}, {on}"), time(times.ours()), rate(times.ours()));
    let share = times.slower().inverse();
    let name = format!("zookeeper: pairs of the floor, {what}, {on}");
    report.target(&name, share.median, "", Target::AtLeast(0.8), share.spread());
    Ok(())
}
