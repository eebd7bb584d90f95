//! Lock and release of free names, by one task and by 64 at a time, over the connections of one client.

use tokio::runtime::{Builder, Runtime};

use super::floor::Floor;
use super::server::Server;
use crate::Done;
use crate::free_names::{its_own, lock_and_release};
use crate::measure::{Pair, Report, Target, per_operation, time};

pub(crate) fn run(report: &mut Report, server: &Server) -> Done {
    let kind = server.kind();
    report.section(&format!("{kind}: lock and release of free names, one client, every commit on disk"));
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    for (tasks, each) in [(1, 300), (64, 30)] {
        let times = compare(report, server, &runtime, tasks, each)?;
        let share = times.slower().inverse();
        let name = format!("{kind}: pairs of the floor, {tasks} in flight");
        report.target(&name, share.median, "", Target::AtLeast(0.7), share.spread());
    }
    Ok(())
}

/// The same where no commit waits for the disk: what remains is what the statements themselves cost.
pub(crate) fn without_disk(report: &mut Report, server: &Server) -> Done {
    report.section(&format!("{}: the same, where no commit waits for the disk", server.kind()));
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    for (tasks, each) in [(1, 1_000), (64, 100)] {
        let times = compare(report, server, &runtime, tasks, each)?;
        let share = times.slower().inverse();
        report.line("pairs of the floor", format!("{:.2}", share.median), share.spread());
    }
    Ok(())
}

fn compare(
    report: &Report,
    server: &Server,
    runtime: &Runtime,
    tasks: usize,
    pairs_each: usize,
) -> Done<Pair> {
    let floor = runtime.block_on(Floor::connect(server))?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let each = report.work(pairs_each);
    let times = Pair::alternate(
        report.rounds(),
        || per_operation(tasks * each, || floor.insert_and_delete(runtime, tasks, each)),
        || per_operation(tasks * each, || lock_and_release(runtime, &client, tasks, each, its_own)),
    )?;
    runtime.block_on(client.close())?;
    let rate = |nanos: f64| format!("{:.0}/s", 1e9 / nanos);
    report.line(&format!("INSERT and DELETE, {tasks} in flight"), time(times.floor()), rate(times.floor()));
    report.line(&format!("leasehold, {tasks} in flight"), time(times.ours()), rate(times.ours()));
    Ok(times)
}
