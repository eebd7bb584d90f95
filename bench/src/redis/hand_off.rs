//! From the beginning of a release to the return of the one that waited, in another process; against the round trip of a
//! release that nobody waits for, by the same client.

use leasehold_testkit::servers::redis::Redis;
use tokio::runtime::Builder;

use super::{floor, message};
use crate::Done;
use crate::measure::{Report, Target, median, time};
use crate::one_name::releases;
use crate::processes::{our_hand_offs, percentiles};

pub(crate) fn run(report: &mut Report, server: &Redis) -> Done {
    report.section("redis: hand-off between processes");
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (mut bare, mut trips, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    let (mut hand_offs, mut tails) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        bare.push(floor::round_trip(server, report.work(20_000))?);
        trips.push(percentiles(releases(&runtime, &server.url(), report.work(500))?).0);
        messages.push(percentiles(message::hand_offs(server.address(), report.work(500))?).0);
        let (p50, p99) = percentiles(our_hand_offs(&runtime, &server.url(), report.work(500))?);
        hand_offs.push(p50);
        tails.push(p99);
    }
    let ratio = median(hand_offs.iter().zip(&trips).map(|(ours, trip)| ours / trip));
    let hand_off = median(hand_offs.into_iter());
    let bare = median(bare.into_iter());
    report.line(
        "redis-benchmark's round trip (EVALSHA)",
        time(bare),
        format!("hand-off: {:.1} of them", hand_off / bare),
    );
    report.line("a release that nobody waits for, p50", time(median(trips.into_iter())), "one round trip");
    let message = median(messages.into_iter());
    let of = format!("hand-off: {:.1} of it", hand_off / message);
    report.line("a bare message of a script to a process, p50", time(message), of);
    let tail = format!("p99 {}", time(median(tails.into_iter())));
    report.line("release to the waiter's return, p50", time(hand_off), tail);
    report.target("redis: hand-off in round trips, p50", ratio, "×", Target::AtMost(1.3), "");
    Ok(())
}
