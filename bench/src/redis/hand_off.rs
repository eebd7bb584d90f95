//! From the beginning of a release to the return of the one that waited, in another process; against a round trip of
//! redis-benchmark's, on the way of a network and on none. Beside it, to see where the time goes: a release that nobody waits for, where client
//! and server are the only two that run, and a bare message of a script, which has to wake a third: without a network that takes
//! more than a round trip itself.

use std::net::SocketAddr;

use leasehold_testkit::servers::redis::Redis;
use tokio::runtime::Builder;

use super::{floor, message, network};
use crate::Done;
use crate::measure::{Report, Target, median, time};
use crate::one_name::releases;
use crate::processes::{our_hand_offs, percentiles};

pub(crate) fn run(report: &mut Report, server: &Redis) -> Done {
    compare(report, server, network::to(server.address())?, "over a network")?;
    compare(report, server, server.address(), "on one machine")
}

fn compare(report: &mut Report, server: &Redis, way: SocketAddr, place: &str) -> Done {
    report.section(&format!("redis: hand-off between processes, {place}"));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let url = format!("redis://{way}/");
    let (mut bare, mut trips, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    let (mut hand_offs, mut tails) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        bare.push(floor::round_trip(server, way.port(), report.work(2_000))?);
        trips.push(percentiles(releases(&runtime, &url, report.work(500))?).0);
        messages.push(percentiles(message::hand_offs(way, report.work(500))?).0);
        let (p50, p99) = percentiles(our_hand_offs(&runtime, &url, report.work(500))?);
        hand_offs.push(p50);
        tails.push(p99);
    }
    let ratio = |of: &[f64]| median(hand_offs.iter().zip(of).map(|(ours, theirs)| ours / theirs));
    let beside = |what: &str, times: &[f64]| {
        let of = format!("hand-off: {:.1} of it", ratio(times));
        report.line(what, time(median(times.iter().copied())), of);
    };
    beside("redis-benchmark's round trip (EVALSHA)", &bare);
    beside("a release that nobody waits for, p50", &trips);
    beside("a bare message of a script to a process, p50", &messages);
    let tail = format!("p99 {}", time(median(tails.into_iter())));
    report.line("release to the waiter's return, p50", time(median(hand_offs.iter().copied())), tail);
    let name = format!("redis: hand-off in round trips of redis-benchmark, {place}, p50");
    report.target(&name, ratio(&bare), "×", Target::AtMost(1.3), "");
    Ok(())
}
