//! What held locks cost in memory: guard, client and memory store together.

use std::time::Instant;

use leasehold::{Client, Guard};
use tokio::runtime::Builder;

use crate::measure::{Report, Target, nanos, time};
use crate::{Done, alloc};

/// Not fewer when in a hurry: the growth of tables is part of the figure.
const LOCKS: usize = 100_000;

pub(crate) fn run(report: &mut Report) -> Done {
    report.section("memory: 100,000 held locks in one client");
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(leasehold::connect("memory:"))?;
    let names: Vec<String> = (0..LOCKS).map(|n| format!("customers/{n:06}")).collect();

    let resident = resident_bytes();
    alloc::start();
    let began = Instant::now();
    let guards = runtime.block_on(hold_all(&client, &names))?;
    let took = nanos(began.elapsed()) / LOCKS as f64;
    let held = alloc::so_far();
    let resident = resident_bytes().zip(resident).map(|(after, before)| after.saturating_sub(before));
    runtime.block_on(release_all(guards))?;
    let left = alloc::stop();

    let each = held.live_bytes as f64 / LOCKS as f64;
    report.line("time to take one", time(took), "");
    report.target(
        "memory of a held lock",
        each,
        " bytes",
        Target::Below(1024.0),
        "guard, client and store together",
    );
    if let Some(resident) = resident {
        let each = resident as f64 / LOCKS as f64;
        report.line(
            "resident memory of the process for it",
            format!("{each:.0} bytes"),
            "what the system sees",
        );
    }
    let left = left.live_bytes as f64 / LOCKS as f64;
    report.line("after the release of all", format!("{left:.0} bytes"), "capacity kept for the next ones");
    Ok(runtime.block_on(client.close())?)
}

async fn hold_all(client: &Client, names: &[String]) -> leasehold::Result<Vec<Guard>> {
    let mut guards = Vec::with_capacity(names.len());
    for name in names {
        guards.push(client.mutex(name).lock().await?);
    }
    Ok(guards)
}

async fn release_all(guards: Vec<Guard>) -> leasehold::Result<()> {
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

/// The memory of this process that is in use, where the system tells (Linux).
fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}
