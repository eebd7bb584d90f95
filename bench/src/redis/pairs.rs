//! Lock and release of free names, by one task and by 64 at a time, over the one connection of a client.

use leasehold_testkit::servers::redis::Redis;
use tokio::runtime::{Builder, Runtime};

use super::floor::{self, server_time};
use crate::Done;
use crate::free_names::{a_new_one, lock_and_release};
use crate::measure::{Pair, Ratio, Report, Target, median, per_operation, time};

pub(crate) fn run(report: &mut Report, server: &Redis) -> Done {
    report.section("redis: lock and release of free names, one client");
    let one = Builder::new_current_thread().enable_all().build()?;
    // redis-benchmark has one thread. More than that want the server's core too, where there are only two.
    let many = Builder::new_multi_thread().enable_all().build()?;
    let threads = format!("{} threads", many.metrics().num_workers());
    for (runtime, on) in [(&one, "one thread"), (&many, threads.as_str())] {
        for (tasks, each) in [(1, 3_000), (64, 1_000)] {
            let share = compare(report, server, runtime, on, tasks, each)?;
            let name = format!("redis: pairs of the floor, {tasks} in flight, {on}");
            report.target(&name, share.median, "", Target::AtLeast(0.7), share.spread());
        }
    }
    Ok(())
}

fn compare(
    report: &Report,
    server: &Redis,
    runtime: &Runtime,
    on: &str,
    tasks: usize,
    pairs_each: usize,
) -> Done<Ratio> {
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
    Ok(times.slower().inverse())
}
