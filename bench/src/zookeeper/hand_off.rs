//! From the beginning of a release to the return of the one that waited, in another process; against a delete and the event
//! that it causes there.

use leasehold_testkit::servers::ZooKeeper;
use tokio::runtime::Builder;

use super::floor;
use crate::Done;
use crate::measure::{Report, Target, median, time};
use crate::processes::{our_hand_offs, percentiles};

pub(crate) fn run(report: &mut Report, server: &ZooKeeper) -> Done {
    report.section("zookeeper: hand-off between processes");
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (mut floors, mut hand_offs, mut tails) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        floors.push(percentiles(floor::hand_offs(&runtime, server.address(), report.work(300))?).0);
        let (p50, p99) = percentiles(our_hand_offs(&runtime, &server.url(), report.work(300))?);
        hand_offs.push(p50);
        tails.push(p99);
    }
    let ratio = median(hand_offs.iter().zip(&floors).map(|(ours, floor)| ours / floor));
    report.line("delete to the event elsewhere, p50", time(median(floors.into_iter())), "");
    let tail = format!("p99 {}", time(median(tails.into_iter())));
    report.line("release to the waiter's return, p50", time(median(hand_offs.into_iter())), tail);
    report.target("zookeeper: hand-off of a delete and its event, p50", ratio, "×", Target::AtMost(1.3), "");
    Ok(())
}
