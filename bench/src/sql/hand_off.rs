//! From the beginning of a release to the return of the one that waited, in another process; in round trips of a release that nobody
//! waits for, and beside those who poll.

use tokio::runtime::Builder;

use super::floor;
use super::server::Server;
use crate::Done;
use crate::measure::{Report, median, time};
use crate::one_name::releases;
use crate::processes::{our_hand_offs, percentiles};

pub(crate) fn run(report: &mut Report, server: &Server) -> Done {
    report.section(&format!("{}: hand-off between processes", server.kind()));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (mut trips, mut hand_offs, mut tails) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        trips.push(percentiles(releases(&runtime, &server.url(), report.work(100))?).0);
        let (p50, p99) = percentiles(our_hand_offs(&runtime, &server.url(), report.work(100))?);
        hand_offs.push(p50);
        tails.push(p99);
    }
    let ratio = median(hand_offs.iter().zip(&trips).map(|(ours, trip)| ours / trip));
    report.line("a release that nobody waits for, p50", time(median(trips.into_iter())), "one round trip");
    let tail = format!("{ratio:.1} round trips; p99 {}", time(median(tails.into_iter())));
    report.line("release to the waiter's return, p50", time(median(hand_offs.into_iter())), tail);
    let polled = floor::hand_offs_by_polling(&runtime, server, report.work(100))?;
    let (p50, p99) = percentiles(polled);
    let note = format!("p99 {}; 10 statements a second", time(p99));
    report.line("the same where the other polls (100 ms), p50", time(p50), note);
    Ok(())
}
