//! Lock and release of free names, by one task and by 64 at a time, over the one connection of a client.

use leasehold_testkit::servers::redis::Redis;
use tokio::runtime::{Builder, Runtime};

use super::floor::{self, server_time};
use crate::Done;
use crate::free_names::{a_new_one, lock_and_release};
use crate::measure::{Pair, Report, Target, median, per_operation, time};

pub(crate) fn run(report: &mut Report, server: &Redis) -> Done {
    report.section("redis: lock and release of free names, one client");
    let one = Builder::new_current_thread().enable_all().build()?;
    compare(report, server, &one, "one thread", 1, 3_000)?;
    compare(report, server, &one, "one thread", 64, 1_000)?;
    let many = Builder::new_multi_thread().enable_all().build()?;
    let threads = format!("{} threads", many.metrics().num_workers());
    compare(report, server, &many, &threads, 1, 3_000)?;
    compare(report, server, &many, &threads, 64, 1_000)
}

fn compare(
    report: &mut Report,
    server: &Redis,
    runtime: &Runtime,
    on: &str,
    tasks: usize,
    pairs_each: usize,
) -> Done {
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let each = report.work(pairs_each);
    let requests = (each * tasks).max(2_000);
    let (mut floor_worked, mut ours_worked) = (Vec::new(), Vec::new());
    let times = Pair::alternate(
        report.rounds(),
        || {
            let (took, worked) = floor::pair(server, tasks, requests)?;
            floor_worked.push(worked);
            Done::Ok(took)
        },
        || {
            let began = server_time(server)?;
            let took =
                per_operation(tasks * each, || lock_and_release(runtime, &client, tasks, each, a_new_one))?;
            ours_worked.push((server_time(server)? - began) / (tasks * each) as f64);
            Ok(took)
        },
    )?;
    runtime.block_on(client.close())?;
    let rate = |nanos: f64| format!("{:.0}/s", 1e9 / nanos);
    let what = format!("{tasks} in flight");
    report.line(&format!("SET NX PX + EVALSHA, {what}"), time(times.floor()), rate(times.floor()));
    report.line(&format!("leasehold, {what}, {on}"), time(times.ours()), rate(times.ours()));
    let worked = median(ours_worked.into_iter());
    let of = time(median(floor_worked.into_iter()));
    report.line("of which the server works", time(worked), format!("{of} for the bare commands"));
    let share = times.slower().inverse();
    let name = format!("redis: pairs of the floor, {what}, {on}");
    report.target(&name, share.median, "", Target::AtLeast(0.7), share.spread());
    Ok(())
}
