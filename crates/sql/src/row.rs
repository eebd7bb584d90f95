//! An entry as a row. Text and whole numbers only, so that every database has them and people can read them.

use std::borrow::Cow;
use std::time::Duration;

use leasehold_core::queue::{Entry, Granted};
use leasehold_core::{EntryId, Error, Kind, Label, Lease, Result, SessionId, Tick, Token, TokenBlock, Want};

use crate::BLOCK;

/// The value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// Text.
    Text(Cow<'static, str>),
    /// A number: times are microseconds, since 1970 by the database's clock or as lengths.
    Number(i64),
    /// Nothing.
    Null,
}

/// What a column can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Text of at most so many bytes.
    Text(u32),
    /// A number of 64 bits.
    Number,
}

/// The columns of an entry, in both tables, in this order. `held_since`, `block` and `block_end` are written if they are not what they are
/// when a free lock is taken: [`FRESH`].
pub const COLUMNS: [(&str, Sort); 20] = [
    ("entry", Sort::Text(32)),
    ("session", Sort::Text(32)),
    ("label", Sort::Text(Label::MAX_BYTES as u32)),
    ("state", Sort::Text(8)),
    ("want", Sort::Text(12)),
    ("permits", Sort::Number),
    ("permits_of", Sort::Number),
    ("token", Sort::Number),
    ("ends", Sort::Number),
    ("since", Sort::Number),
    ("held_since", Sort::Number),
    ("seq", Sort::Number),
    ("lease_kind", Sort::Text(8)),
    ("lease", Sort::Number),
    ("place", Sort::Number),
    ("block", Sort::Number),
    ("block_end", Sort::Number),
    ("started", Sort::Number),
    ("asked", Sort::Number),
    ("wake", Sort::Text(64)),
];

/// Columns that are empty for an entry that took a free lock and was given nothing since: it holds the lock since it came, and has the block of
/// tokens that begins with its first.
pub const FRESH: [&str; 3] = ["held_since", "block", "block_end"];

/// The first and the last token of the block of an entry, as a statement says it.
pub fn block() -> (String, String) {
    ("COALESCE(block, token)".to_owned(), format!("COALESCE(block_end, token + {})", BLOCK - 1))
}

/// An entry, where it stands, and how its session is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The entry.
    pub entry: Entry,
    /// Whether it is one of those that barge.
    pub barges: bool,
    /// Its number in line. Rises from front to back; has gaps.
    pub seq: i64,
    /// How its session is told, in the database's own words.
    pub wake: String,
}

impl Row {
    /// The values of the [`COLUMNS`].
    pub fn cells(&self) -> [Cell; COLUMNS.len()] {
        COLUMNS.map(|(column, _)| self.cell(column))
    }

    /// The value of one of the [`COLUMNS`]: nothing for any other.
    pub fn cell(&self, column: &str) -> Cell {
        let maybe = |number: Option<u64>| number.map_or(Cell::Null, |n| Cell::Number(to_i64(n)));
        let number = |n: u64| Cell::Number(to_i64(n));
        let Entry { id, session, label, want, lease, place, since, ends, grant } = &self.entry;
        let (wanted, n, of) = match want {
            Want::Exclusive => ("exclusive", 0, 0),
            Want::Shared => ("shared", 0, 0),
            Want::Permits { n, of } => ("permits", *n, *of),
        };
        match column {
            "entry" => Cell::Text(id.to_string().into()),
            "session" => Cell::Text(session.to_string().into()),
            "label" => Cell::Text(label.as_str().to_owned().into()),
            "state" => Cell::Text(match (grant, self.barges) {
                (Some(_), _) => "holds".into(),
                (None, false) => "waits".into(),
                (None, true) => "barges".into(),
            }),
            "want" => Cell::Text(wanted.into()),
            "permits" => number(n.into()),
            "permits_of" => number(of.into()),
            "token" => maybe(grant.map(|g| g.first.0)),
            "ends" => number(ends.map_or(0, micros_of)),
            "since" => number(*since),
            "held_since" => maybe(grant.map(|g| g.at)),
            "seq" => Cell::Number(self.seq),
            "lease_kind" => Cell::Text(if matches!(lease, Lease::Kept(_)) { "kept" } else { "fixed" }.into()),
            "lease" => number(micros(lease.length())),
            "place" => number(micros(*place)),
            "block" => maybe(grant.map(|g| g.tokens.first.0)),
            "block_end" => maybe(grant.map(|g| g.tokens.last().0)),
            "started" => number(grant.is_some_and(|g| g.started).into()),
            "asked" => number(grant.is_some_and(|g| g.release_requested).into()),
            "wake" => Cell::Text(self.wake.clone().into()),
            _ => Cell::Null,
        }
    }

    /// Reads the values of the [`COLUMNS`]. What makes no sense is an error: somebody else wrote it, or a newer version of ours.
    pub fn read(cells: Vec<Cell>) -> Result<Row> {
        Self::try_read(cells)
            .ok_or_else(|| unreadable("a row of the lock tables was not written by this version"))
    }

    fn try_read(cells: Vec<Cell>) -> Option<Row> {
        let mut cells = cells.into_iter();
        let mut next = || cells.next();
        let (id, session) = (next()?.text()?.parse().ok()?, next()?.text()?.parse().ok()?);
        let label = Label::new(next()?.text()?);
        let (state, want) = (next()?.text()?, next()?.text()?);
        let (n, of) = (next()?.number()?, next()?.number()?);
        let (first, ends, since, at) =
            (next()?.maybe()?, next()?.number()?, next()?.number()?, next()?.maybe()?);
        let seq = next()?.number()?;
        let (kind, lease, place) = (next()?.text()?, length(next()?)?, length(next()?)?);
        let (block, block_end) = (next()?.maybe()?, next()?.maybe()?);
        let (started, asked) = (next()?.number()? != 0, next()?.number()? != 0);
        let wake = next()?.text()?;
        let want = match want.as_str() {
            "exclusive" => Want::Exclusive,
            "shared" => Want::Shared,
            "permits" => Want::Permits { n: n.try_into().ok()?, of: of.try_into().ok()? },
            _ => return None,
        };
        let grant = match state.as_str() {
            "holds" => {
                let first = token(first?)?;
                // Most are as they were when the lock was taken, and then these are not written.
                let block = block.map_or(Some(first), token)?;
                let fresh_end = || block.0.checked_add(u64::from(BLOCK) - 1).map(Token);
                let block_end = block_end.map_or_else(fresh_end, token)?;
                let len = u32::try_from(block_end.0.checked_sub(block.0)? + 1).ok()?;
                let tokens = TokenBlock { first: block, len };
                let at = u64::try_from(at.unwrap_or(since)).ok()?;
                Some(Granted { first, tokens, at, started, release_requested: asked })
            }
            "waits" | "barges" => None,
            _ => return None,
        };
        let entry = Entry {
            id,
            session,
            label,
            want,
            lease: if kind == "kept" { Lease::Kept(lease) } else { Lease::Fixed(lease) },
            place,
            since: since.try_into().ok()?,
            ends: Some(tick(ends.try_into().ok()?)),
            grant,
        };
        Some(Row { entry, barges: state == "barges", seq, wake })
    }

    /// Which entry it is.
    pub fn id(&self) -> EntryId {
        self.entry.id
    }

    /// Whose it is.
    pub fn session(&self) -> SessionId {
        self.entry.session
    }
}

impl Cell {
    fn text(self) -> Option<String> {
        if let Cell::Text(text) = self { Some(text.into_owned()) } else { None }
    }

    fn number(self) -> Option<i64> {
        if let Cell::Number(number) = self { Some(number) } else { None }
    }

    /// A number or nothing.
    fn maybe(self) -> Option<Option<i64>> {
        match self {
            Cell::Number(number) => Some(Some(number)),
            Cell::Null => Some(None),
            Cell::Text(_) => None,
        }
    }
}

fn length(cell: Cell) -> Option<Duration> {
    Some(Duration::from_micros(cell.number()?.try_into().ok()?))
}

fn token(number: i64) -> Option<Token> {
    number.try_into().ok().map(Token)
}

/// A moment of the database's clock, for the rule.
pub fn tick(micros: u64) -> Tick {
    Tick(micros.saturating_mul(1000))
}

fn micros_of(tick: Tick) -> u64 {
    tick.0 / 1000
}

/// A length in microseconds.
pub fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// What is too large for a column is as large as can be.
pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The error for what makes no sense.
pub fn unreadable(what: impl Into<String>) -> Error {
    Error::new(Kind::Store, what)
        .advice("look whether other programs write to the lock tables, or a newer version of this one does")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(grant: Option<Granted>, barges: bool, want: Want) -> Row {
        let entry = Entry {
            id: EntryId(7),
            session: SessionId(8),
            label: Label::new("host:1 program"),
            want,
            lease: Lease::Fixed(Duration::from_millis(1500)),
            place: Duration::from_secs(3),
            since: 1_700_000_000_000_000,
            ends: Some(tick(1_700_000_000_500_000)),
            grant,
        };
        Row { entry, barges, seq: 12, wake: "push".into() }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let tokens = TokenBlock { first: Token(30), len: 1024 };
        let grant = Granted { first: Token(20), tokens, at: 19, started: true, release_requested: true };
        for row in [
            row(Some(grant), false, Want::Shared),
            row(None, true, Want::Exclusive),
            row(None, false, Want::Permits { n: 3, of: 9 }),
        ] {
            assert_eq!(Row::read(row.cells().to_vec()).unwrap(), row);
        }
    }

    #[test]
    fn what_is_not_written_is_as_when_the_lock_was_taken() {
        let tokens = TokenBlock { first: Token(20), len: BLOCK };
        let since = 1_700_000_000_000_000;
        let grant = Granted { first: Token(20), tokens, at: since, started: true, release_requested: false };
        let row = row(Some(grant), false, Want::Exclusive);
        let mut cells = row.cells().to_vec();
        for (at, (column, _)) in COLUMNS.iter().enumerate() {
            if FRESH.contains(column) {
                cells[at] = Cell::Null;
            }
        }
        assert_eq!(Row::read(cells).unwrap(), row);
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let good = row(None, false, Want::Shared).cells().to_vec();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] = match &bad[at] {
                Cell::Text(_) => Cell::Number(-1),
                _ => Cell::Text("?".into()),
            };
            assert_eq!(Row::read(bad).unwrap_err().kind(), Kind::Store, "column {at}");
        }
        assert!(Row::read(Vec::new()).is_err());
    }
}
