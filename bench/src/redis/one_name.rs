//! One name that many want: 64 tasks of one process, and 4 processes of 16 tasks.

use std::time::Duration;

use leasehold_testkit::servers::redis::Redis;
use tokio::runtime::Builder;

use super::floor;
use crate::Done;
use crate::measure::{Report, Target, median, time};
use crate::one_name::{contend, four_processes};

pub(crate) fn run(report: &mut Report, server: &Redis) -> Done {
    report.section("redis: one name that all want");
    let length = Duration::from_millis(report.work(2_000) as u64);
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let (mut round_trips, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        round_trips.push(floor::round_trip(server, server.port(), report.work(20_000))?);
        pairs.push(length.as_nanos() as f64 / contend(&runtime, &client, 64, length)? as f64);
    }
    runtime.block_on(client.close())?;
    let (trip, pair) = (median(round_trips.into_iter()), median(pairs.into_iter()));
    report.line("a round trip (EVALSHA, one at a time)", time(trip), "");
    report.line("64 tasks of one process", time(pair), "a pair");
    report.target(
        "redis: one name, 64 tasks, pairs in a round trip",
        trip / pair,
        "×",
        Target::AtLeast(20.0),
        "",
    );
    let pair = length.as_nanos() as f64 / four_processes(&server.url(), length)? as f64;
    report.line("4 processes of 16 tasks", time(pair), format!("a pair; {:.1} in a round trip", trip / pair));
    Ok(())
}
