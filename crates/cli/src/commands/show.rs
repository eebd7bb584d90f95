//! `leasehold show NAME`

use leasehold::{Client, EntryView, Name, Snapshot};

use crate::args::{Format, Global, Show};
use crate::commands::{Done, with_client};
use crate::exit::Exit;
use crate::output::{self, Cell, Look, Out};

pub(crate) async fn run(global: Global, args: Show) -> Done {
    let name = Name::new(args.name)?;
    with_client(&global, async |client| show(&client, name, global.format).await).await
}

async fn show(client: &Client, name: Name, format: Format) -> Done {
    let lock = client.inspect(name).await?;
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&output::snapshot_json(&lock))?,
        Format::Text => text(&mut out, &lock)?,
    }
    out.flush()?;
    Ok(Exit::OK)
}

fn text(out: &mut Out, lock: &Snapshot) -> std::io::Result<()> {
    let name = out.paint(&output::printable(lock.name.as_str()), Look::Name);
    if lock.holders.is_empty() && lock.waiters.is_empty() {
        return out.line(&format!("{name}: free, and nobody waits for it"));
    }
    let held = match lock.holders.len() {
        0 => "free".to_owned(),
        1 => "held by 1".to_owned(),
        n => format!("held by {n}"),
    };
    let limit = lock.limit.map_or_else(String::new, |limit| format!(", {limit} permits in all"));
    out.line(&format!("{name}: {held}, {} waiting{limit}", lock.waiters.len()))?;
    let held = lock.holders.iter().map(|entry| row(entry, hold(entry)));
    let waiting = lock.waiters.iter().map(|entry| row(entry, place(entry)));
    let rows: Vec<_> = held.chain(waiting).collect();
    out.table(&["PLACE", "WHO", "WANT", "FOR", "TOKEN", "LEASE LEFT"], &rows)
}

fn hold(entry: &EntryView) -> Cell {
    if entry.release_requested {
        Cell::new("held, asked for", Look::Heading)
    } else {
        Cell::new("held", Look::Good)
    }
}

fn place(entry: &EntryView) -> Cell {
    Cell::plain(entry.place.map_or_else(|| "barging".to_owned(), output::ordinal))
}

fn row(entry: &EntryView, place: Cell) -> Vec<Cell> {
    let since = entry.held_since.unwrap_or(entry.since);
    let lease = match (entry.held_since, entry.lease_left) {
        (Some(_), Some(left)) => Cell::plain(output::duration(left)),
        (Some(_), None) => Cell::new("while it lives", Look::Faint),
        (None, _) => Cell::none(),
    };
    vec![
        place,
        Cell::plain(entry.label.to_string()),
        Cell::plain(output::want(entry.want)),
        Cell::plain(output::duration(output::age(since))),
        entry.token.map_or_else(Cell::none, |token| Cell::plain(token.to_string())),
        lease,
    ]
}
