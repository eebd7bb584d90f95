//! `leasehold ls [PREFIX]`

use leasehold::{Client, Snapshot};

use crate::args::{Format, Global, Ls};
use crate::commands::{Done, with_client};
use crate::exit::Exit;
use crate::output::{self, Cell, Look, Out};

pub(crate) async fn run(global: Global, args: Ls) -> Done {
    with_client(&global, async |client| list(&client, args.prefix, global.format).await).await
}

async fn list(client: &Client, prefix: String, format: Format) -> Done {
    let mut out = Out::stdout();
    let mut rows = Vec::new();
    let mut listing = client.list(prefix);
    while let Some(lock) = listing.next().await {
        match format {
            Format::Json => out.json(&output::snapshot_json(&lock?))?,
            Format::Text => rows.push(row(&lock?)),
        }
    }
    if format == Format::Text && !rows.is_empty() {
        out.table(&["NAME", "WANT", "HELD BY", "FOR", "TOKEN", "WAITING"], &rows)?;
    }
    out.flush()?;
    Ok(Exit::OK)
}

fn row(lock: &Snapshot) -> Vec<Cell> {
    let first = lock.holders.first();
    let want = first.or(lock.waiters.first()).map_or_else(Cell::none, |entry| match lock.limit {
        Some(limit) => Cell::plain(format!("{} of {limit} permits", permits_held(lock))),
        None => Cell::plain(output::want(entry.want)),
    });
    let holder = first.map_or_else(Cell::none, |entry| match lock.holders.len() {
        1 => Cell::new(entry.label.to_string(), Look::Good),
        n => Cell::new(format!("{} and {} more", entry.label, n - 1), Look::Good),
    });
    let age = first.and_then(|entry| entry.held_since).map(|since| output::duration(output::age(since)));
    let token = first.and_then(|entry| entry.token).map(|token| token.to_string());
    let waiting = match lock.waiters.len() {
        0 => Cell::none(),
        n => Cell::plain(n.to_string()),
    };
    vec![
        Cell::new(&lock.name, Look::Name),
        want,
        holder,
        age.map_or_else(Cell::none, Cell::plain),
        token.map_or_else(Cell::none, Cell::plain),
        waiting,
    ]
}

fn permits_held(lock: &Snapshot) -> u64 {
    let permits = lock.holders.iter().map(|entry| match entry.want {
        leasehold::Want::Permits { n, .. } => u64::from(n),
        _ => 0,
    });
    permits.sum()
}
