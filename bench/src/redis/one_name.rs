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
    compare(report, server, &one, "one thread", length)?;
    let many = Builder::new_multi_thread().enable_all().build()?;
    let threads = format!("{} threads", many.metrics().num_workers());
    let trip = compare(report, server, &many, &threads, length)?;
    let pair = length.as_nanos() as f64 / four_processes(&server.url(), length)? as f64;
    report.line("4 processes of 16 tasks", time(pair), format!("a pair; {:.1} in a round trip", trip / pair));
    Ok(())
}

/// The tasks of one process. Gives the nanoseconds of a round trip.
fn compare(report: &mut Report, server: &Redis, runtime: &Runtime, on: &str, length: Duration) -> Done<f64> {
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let (mut round_trips, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        round_trips.push(floor::round_trip(server, server.port(), report.work(20_000))?);
        pairs.push(length.as_nanos() as f64 / contend(runtime, &client, 64, length)? as f64);
    }
    runtime.block_on(client.close())?;
    let (trip, pair) = (median(round_trips.into_iter()), median(pairs.into_iter()));
    report.line("a round trip (EVALSHA, one at a time)", time(trip), "");
    report.line(&format!("64 tasks of one process, {on}"), time(pair), "a pair");
    let name = format!("redis: one name, 64 tasks, pairs in a round trip, {on}");
    report.target(&name, trip / pair, "×", Target::AtLeast(20.0), "");
    Ok(trip)
}
