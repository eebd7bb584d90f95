//! What an event changed, as rows to write and to remove.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::queue::{Entry, Queue};
use leasehold_core::{EntryId, Error, Kind, Name, Result};

use crate::backend::Lock;
use crate::letter::Letter;
use crate::row::{Row, micros, to_i64};

/// What to write, on the condition that the lock has the version that it was made from.
#[derive(Debug)]
pub struct Change {
    /// Which lock.
    pub name: Name,
    /// The version that it must have now; `None`: there must be no such lock.
    pub from: Option<i64>,
    /// The version that it gets. Random: whoever finds it knows that this change was made.
    pub to: i64,
    /// The highest token ever given out.
    pub last: i64,
    /// The number of permits in force.
    pub limit: Option<i64>,
    /// When the rows may be removed if nothing happens.
    pub keep: i64,
    /// The entry at the front of the queue. It lives in the row of the lock.
    pub front: Option<Row>,
    /// How many entries there are besides, each with a row of its own.
    pub rest: i64,
    /// The highest number in line that was given out.
    pub line: i64,
    /// Rows of their own to write: new ones and changed ones.
    pub put: Vec<Row>,
    /// Rows of their own to remove.
    pub gone: Vec<EntryId>,
    /// Whom to tell what, if the change is made.
    pub letters: Vec<Letter>,
}

impl Change {
    /// The change from one state to another. `wake` says how the session of an entry that has no row yet is told.
    pub(crate) fn between(
        name: &Name,
        before: Option<&Lock>,
        after: &Queue,
        now: u64,
        retention: Duration,
        wake: impl Fn(&Entry) -> Option<String>,
    ) -> Result<Change> {
        let no_rows = Vec::new();
        let old_rows = before.map_or(&no_rows, |lock| &lock.rows);
        let old: HashMap<EntryId, &Row> = old_rows.iter().map(|row| (row.id(), row)).collect();
        let highest = old_rows.iter().map(|row| row.seq).max().unwrap_or(0);
        let mut rows = Rows { old: &old, last: before.map_or(0, |lock| lock.line).max(highest), wake };
        let queued = rows.line(&after.entries, false);
        let barging = rows.line(&after.bargers, true);
        let line = rows.last;
        let old_front = old_rows.iter().filter(|row| !row.barges).min_by_key(|row| row.seq).map(Row::id);
        let latest = queued.iter().chain(&barging).filter_map(|row| row.entry.ends).max();
        let keep = latest.map_or(now, |end| end.0 / 1000).max(now).saturating_add(micros(retention));

        let mut queued = queued.into_iter();
        let front = queued.next();
        let others: Vec<Row> = queued.chain(barging).collect();
        let kept = |id: EntryId| others.iter().any(|row| row.id() == id);
        let gone = old_rows.iter().map(Row::id).filter(|id| Some(*id) != old_front && !kept(*id)).collect();
        // Not all rows may have been read.
        let known = old_rows.len() as i64 - i64::from(old_front.is_some());
        let unread = before.map_or(0, |lock| (lock.rest - known).max(0));
        let rest = to_i64(others.len() as u64) + unread;
        let stays =
            |row: &Row| Some(row.id()) != old_front && old.get(&row.id()).is_some_and(|was| *was == row);
        let put = others.into_iter().filter(|row| !stays(row)).collect();
        Ok(Change {
            name: name.clone(),
            from: before.map(|lock| lock.version),
            to: fresh_version()?,
            last: to_i64(after.last),
            limit: after.limit.map(i64::from),
            keep: to_i64(keep),
            front,
            rest,
            line,
            put,
            gone,
            letters: Vec::new(),
        })
    }
}

struct Rows<'a, W> {
    old: &'a HashMap<EntryId, &'a Row>,
    last: i64,
    wake: W,
}

impl<W: Fn(&Entry) -> Option<String>> Rows<'_, W> {
    /// The rows of a line. Whoever is new, or was sent to the back, gets the next number.
    fn line(&mut self, entries: &[Entry], barges: bool) -> Vec<Row> {
        let mut highest = i64::MIN;
        let mut line = Vec::with_capacity(entries.len());
        for entry in entries {
            let was = self.old.get(&entry.id);
            let seq = match was {
                Some(row) if row.barges == barges && row.seq > highest => row.seq,
                _ => {
                    self.last += 1;
                    self.last
                }
            };
            highest = seq;
            let wake = (self.wake)(entry).or_else(|| was.map(|row| row.wake.clone())).unwrap_or_default();
            line.push(Row { entry: entry.clone(), barges, seq, wake });
        }
        line
    }
}

/// A number of 62 bits that nobody else has: adding one now and then never makes it too large. The first of a process is random, and those
/// that follow are no two the same and look random: to ask the system for each would take longer than the rest of a claim.
pub fn fresh_version() -> Result<i64> {
    static FIRST: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let first = match FIRST.get() {
        Some(first) => *first,
        None => {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes).map_err(|e| {
                Error::new(Kind::Unavailable, "the system gave no random bytes").because(e.to_string())
            })?;
            *FIRST.get_or_init(|| u64::from_le_bytes(bytes))
        }
    };
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(to_i64(mixed(first.wrapping_add(count.wrapping_mul(STRIDE)))))
}

/// How far two versions are apart before they are mixed: an odd number, so that all come before one comes again.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the lower 62 bits (the steps of SplitMix64), so that no two numbers give the same.
fn mixed(number: u64) -> u64 {
    const BITS: u64 = u64::MAX >> 2;
    let mut mixed = number & BITS;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9) & BITS;
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) & BITS;
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_version_comes_twice_and_one_more_never_makes_it_too_large() {
        let versions: HashSet<i64> = (0..100_000).map(|_| fresh_version().unwrap()).collect();
        assert_eq!(versions.len(), 100_000);
        assert!(versions.iter().all(|version| (0..1 << 62).contains(version)));
    }
}
