//! How many statements sessions cost that only wait.

use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use super::server::Server;
use crate::Done;
use crate::measure::{Report, Target};

/// How many sessions wait.
const SESSIONS: usize = 8;

/// How long what has just happened may still be counted: a connection of PostgreSQL that has nothing to do says what it did up to 10 seconds
/// later.
const SETTLE: Duration = Duration::from_secs(12);

pub(crate) fn run(report: &mut Report, server: &Server) -> Done {
    let kind = server.kind();
    report.section(&format!("{kind}: {SESSIONS} sessions that wait"));
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let length = Duration::from_millis(report.work(60_000) as u64);
    let (statements, took) = runtime.block_on(async {
        let holder = leasehold::connect(&server.url()).await?;
        let guard = holder.mutex("held").lock().await?;
        let mut waiters = Vec::with_capacity(SESSIONS);
        for n in 0..SESSIONS {
            let client = leasehold::connect(&server.url()).await?;
            waiters.push(tokio::spawn(async move {
                let guard = client.mutex("held").lock().await?;
                guard.release().await?;
                client.close().await
            }));
            while holder.inspect("held").await?.waiters.len() <= n {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        server.rest();
        tokio::time::sleep(SETTLE).await;
        let (before, began) = (server.statements(), Instant::now());
        tokio::time::sleep(length).await;
        let counted = (server.statements().saturating_sub(before), began.elapsed());
        guard.release().await?;
        for waiter in waiters {
            waiter.await??;
        }
        holder.close().await?;
        crate::Done::Ok(counted)
    })?;
    let each = statements as f64 / took.as_secs_f64() / SESSIONS as f64;
    // A place in the queue is renewed three times in its lease, and so is the holder's. Nobody polls.
    let most = if kind == "mysql" { 1.0 } else { 0.2 };
    let name = format!("{kind}: statements a second of a session that waits");
    report.line(
        "statements in all",
        statements,
        format!("in {:.0} s, renewals among them", took.as_secs_f64()),
    );
    report.target(&name, each, "", Target::AtMost(most), "renewals of places and of the holder among them");
    Ok(())
}
