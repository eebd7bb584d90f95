//! What it costs to keep 100,000 locks: the time of this process and of the server while renewals are all they do.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use leasehold_testkit::servers::redis::Redis;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;

use super::floor::server_time;
use crate::Done;
use crate::measure::{Report, Target, nanos, time};

const LOCKS: usize = 100_000;

/// Taken together, so that the set-up does not take all day.
const AT_ONCE: usize = 500;

pub(crate) fn run(report: &mut Report, server: &Redis) -> Done {
    report.section("redis: 100,000 held locks, leases of 30 s");
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let mut guards = Vec::with_capacity(LOCKS);
    for first in (0..LOCKS).step_by(AT_ONCE) {
        let names = (first..first + AT_ONCE).map(|n| client.mutex(format!("customers/{n:06}")));
        let locks: Vec<_> = names.collect();
        guards.extend(runtime.block_on(try_join_all(locks.iter().map(|lock| lock.lock())))?);
    }
    // Two whole rounds of renewals, at a third of the lease each.
    let length = Duration::from_secs(if report.work(10) < 10 { 10 } else { 20 });
    let (ours, theirs, calls) = (our_time(), server_time(server)?, server.calls("evalsha"));
    let began = Instant::now();
    runtime.block_on(async { tokio::time::sleep(length).await });
    let whole = nanos(began.elapsed());
    let (ours, theirs) = (nanos(our_time() - ours), server_time(server)? - theirs);
    let calls = server.calls("evalsha") - calls;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    if lost > 0 {
        return Err(format!("{lost} locks were lost meanwhile").into());
    }
    let renewals = LOCKS as f64 * whole / 10e9;
    report.line(
        "renewal of one lock, client",
        time(ours / renewals),
        format!("{calls} commands in {length:?}"),
    );
    report.line("renewal of one lock, server", time(theirs / renewals), "");
    let share = 100.0 * ours / whole;
    let server_share = format!("and {:.1} % of the server's", 100.0 * theirs / whole);
    report.target("redis: 100,000 kept locks, of one core", share, " %", Target::Below(5.0), server_share);
    while !guards.is_empty() {
        let some = guards.split_off(guards.len().saturating_sub(AT_ONCE));
        runtime.block_on(try_join_all(some.into_iter().map(|guard| guard.release())))?;
    }
    Ok(runtime.block_on(client.close())?)
}

fn our_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
