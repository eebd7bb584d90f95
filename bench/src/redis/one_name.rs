//! One name that many want: 64 tasks of one process, and 4 processes of 16 tasks.

use std::time::Duration;

use leasehold_testkit::servers::redis::Redis;
use tokio::runtime::{Builder, Runtime};

use super::floor;
use crate::Done;
use crate::measure::{Report, Target, median, time};
use crate::one_name::{contend, four_processes};

pub(crate) fn run(report: &mut Report, server: &Redis) -> Done {
    report.section("redis: one name that all want");
    let length = Duration::from_millis(report.work(2_000) as u64);
    let one = Builder::new_current_thread().enable_all().build()?;
    let (trip, pair) = compare(report, server, &one, length)?;
    report.line("a round trip (EVALSHA, one at a time)", time(trip), "");
    report.line("64 tasks of one process, one thread", time(pair), "a pair");
    let name = "redis: one name, 64 tasks, pairs in a round trip";
    report.target(name, trip / pair, "×", Target::AtLeast(20.0), "");
    let beside = |what: &str, pair: f64| {
        report.line(what, time(pair), format!("a pair; {:.1} in a round trip", trip / pair));
    };
    let many = Builder::new_multi_thread().enable_all().build()?;
    let threads = many.metrics().num_workers();
    beside(&format!("the same, {threads} threads"), compare(report, server, &many, length)?.1);
    let pair = length.as_nanos() as f64 / four_processes(&server.url(), length)? as f64;
    beside("4 processes of 16 tasks", pair);
    Ok(())
}

/// Nanoseconds of a round trip, and of a pair of lock and release.
fn compare(report: &Report, server: &Redis, runtime: &Runtime, length: Duration) -> Done<(f64, f64)> {
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let (mut round_trips, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        round_trips.push(floor::round_trip(server, server.port(), report.work(20_000))?);
        pairs.push(length.as_nanos() as f64 / contend(runtime, &client, 64, length)? as f64);
    }
    runtime.block_on(client.close())?;
    Ok((median(round_trips.into_iter()), median(pairs.into_iter())))
}
