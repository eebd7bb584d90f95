//! One name that many want: 64 tasks of one process, and 4 processes of 16 tasks.

use std::time::Duration;

use tokio::runtime::Builder;

use super::floor::Floor;
use super::server::Server;
use crate::Done;
use crate::measure::{Report, Target, median, per_operation, time};
use crate::one_name::{contend, four_processes};

pub(crate) fn run(report: &mut Report, server: &Server) -> Done {
    let kind = server.kind();
    report.section(&format!("{kind}: one name that all want"));
    let length = Duration::from_millis(report.work(2_000) as u64);
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let floor = runtime.block_on(Floor::connect(server))?;
    let each = report.work(300);
    let (mut transactions, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        // A pair of statements is two transactions.
        let pair = per_operation(each, || floor.insert_and_delete(&runtime, 1, each))?;
        transactions.push(pair / 2.0);
        pairs.push(length.as_nanos() as f64 / contend(&runtime, &client, 64, length)? as f64);
    }
    runtime.block_on(client.close())?;
    let (transaction, pair) = (median(transactions.into_iter()), median(pairs.into_iter()));
    report.line("a transaction (INSERT or DELETE, one at a time)", time(transaction), "");
    report.line("64 tasks of one process", time(pair), "a pair");
    let name = format!("{kind}: one name, 64 tasks, pairs in a transaction");
    report.target(&name, transaction / pair, "×", Target::AtLeast(20.0), "");
    let pair = length.as_nanos() as f64 / four_processes(&server.url(), length)?.max(1) as f64;
    let note = format!("a pair; {:.1} in a transaction", transaction / pair);
    report.line("4 processes of 16 tasks", time(pair), note);
    Ok(())
}
