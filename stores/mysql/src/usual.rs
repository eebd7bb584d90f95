//! The statements of the usual cases: a lock that is free is taken, and one that nobody waits for is given back. Each is one statement, which
//! does nothing if the case isn't the usual one.

use std::sync::Arc;

use leasehold_core::{Clock, EntryId, Result, Tick, Token};
use leasehold_sql::change::fresh_version;
use leasehold_sql::idle::{FREED, Idle, Left, Terms};
use leasehold_sql::row::{COLUMNS, micros};
use leasehold_sql::unwatched::Unwatched;
use leasehold_sql::{BLOCK, Departing, Entering, Step, Stepped};
use mysql_async::Value;

use crate::sql::{self, Outcome};
use crate::state::NOW;

/// The statements, and what is known of the locks.
pub(crate) struct Usual {
    /// Takes a free lock.
    enter: Forms,
    /// The same for one that has a row.
    enter_again: Forms,
    /// The same for one whose row is as an entry of this session left it.
    follow: Forms,
    /// Lets go of a lock that nobody waits for.
    depart: Forms,
    /// Locks that have a row, as far as is known here.
    idle: Idle,
    unwatched: Unwatched,
}

/// A statement in two forms: it does nothing if somebody watches.
struct Forms {
    /// Looks for those who watch.
    looks: Arc<str>,
    /// Nobody does until a time, which is its last value.
    knows: Arc<str>,
}

impl Forms {
    fn new(watch: &str, text: impl Fn(&str) -> String) -> Self {
        Forms { looks: text(&unwatched(watch)).into(), knows: text(&format!("{NOW} < ?")).into() }
    }
}

/// A statement to run for a step.
pub(crate) struct Call {
    pub(crate) statement: Arc<str>,
    pub(crate) values: Vec<Value>,
    pub(crate) basis: Basis,
}

/// What a call goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Basis {
    /// It looks for those who watch.
    looks: bool,
    /// It counts on a row that may not be there, or not be like that.
    guessed: bool,
}

impl Usual {
    pub(crate) fn new(locks: &str, watch: &str, retention: u64) -> Self {
        Usual {
            enter: Forms::new(watch, |unwatched| enter(locks, unwatched, retention)),
            enter_again: Forms::new(watch, |unwatched| enter_again(locks, unwatched, retention)),
            follow: Forms::new(watch, |unwatched| follow(locks, unwatched, retention)),
            depart: Forms::new(watch, |unwatched| depart(locks, unwatched, retention)),
            idle: Idle::default(),
            unwatched: Unwatched::new(Clock::system()),
        }
    }

    /// The time, for [`came_of`](Usual::came_of).
    pub(crate) fn now(&self) -> Tick {
        self.unwatched.now()
    }

    /// The statement for a step.
    pub(crate) fn call(&self, step: &Step) -> Result<Call> {
        match step {
            Step::Depart(Departing { name, id, used }) => {
                let used = used.map_or(Value::NULL, |token| Value::UInt(token.0));
                let (key, entry) = (Value::Bytes(name.as_str().into()), text(*id));
                Ok(self.form(&self.depart, vec![used.clone(), used, key, entry], false))
            }
            Step::Enter(entering) => {
                let version = Value::Int(fresh_version()?);
                Ok(match self.idle.left(&entering.name) {
                    None => self.enter(entering, version),
                    Some(Left::By(last, left)) if left == Terms::of(entering) && entering.limit.is_none() => {
                        self.follow(entering, version, last)
                    }
                    Some(_) => self.enter_again(entering, version),
                })
            }
        }
    }

    /// What the outcome of a call that was sent then means for the step. `None` if the call counted on something that was not so; the next
    /// one won't.
    pub(crate) fn came_of(
        &self,
        step: &Step,
        basis: Basis,
        sent: Tick,
        outcome: &Outcome,
    ) -> Option<Stepped> {
        let done = outcome.changed > 0;
        match step {
            Step::Enter(entering) if done => {
                self.idle.taken(&entering.name, entering.row.id(), Terms::of(entering));
                Some(Stepped::Entered(Token(outcome.id)))
            }
            Step::Enter(entering) if basis.guessed => {
                // Somebody else has it or had it, or its row was removed. It counts as idle when it is left so once more.
                self.idle.forget(&entering.name);
                None
            }
            Step::Depart(Departing { name, id, .. }) if done => {
                self.idle.note(name, *id);
                if basis.looks {
                    self.unwatched.seen(sent, outcome.id);
                }
                Some(Stepped::Departed)
            }
            Step::Enter(_) | Step::Depart(_) => Some(Stepped::Undone),
        }
    }

    fn enter(&self, entering: &Entering, version: Value) -> Call {
        let values = vec![key(entering), version, limit(entering), lease(entering)];
        self.form(&self.enter, with_row(entering, values), false)
    }

    fn enter_again(&self, entering: &Entering, version: Value) -> Call {
        let mut values = with_row(entering, vec![version, limit(entering), lease(entering)]);
        values.push(key(entering));
        self.form(&self.enter_again, values, true)
    }

    fn follow(&self, entering: &Entering, version: Value, last: EntryId) -> Call {
        let cell = |column| sql::value(entering.row.cell(column));
        let (entry, wake, want) = (cell("entry"), cell("wake"), cell("want"));
        let values = vec![version, entry, lease(entering), wake, key(entering), text(last), want];
        self.form(&self.follow, values, true)
    }

    /// A statement in the form that is enough now.
    fn form(&self, forms: &Forms, mut values: Vec<Value>, guessed: bool) -> Call {
        let known = self.unwatched.until();
        values.extend(known.map(Value::UInt));
        let statement = if known.is_some() { &forms.knows } else { &forms.looks };
        Call { statement: statement.clone(), values, basis: Basis { looks: known.is_none(), guessed } }
    }
}

fn key(entering: &Entering) -> Value {
    Value::Bytes(entering.name.as_str().into())
}

fn text(id: EntryId) -> Value {
    Value::Bytes(id.to_string().into())
}

fn limit(entering: &Entering) -> Value {
    entering.limit.map_or(Value::NULL, Value::from)
}

fn lease(entering: &Entering) -> Value {
    Value::UInt(micros(entering.row.entry.lease.length()))
}

/// These values, and those that the claim says itself.
fn with_row(entering: &Entering, mut values: Vec<Value>) -> Vec<Value> {
    for (column, _) in COLUMNS {
        match in_enter(column) {
            Some(written) => values.extend(written.contains('?').then(|| lease(entering))),
            None => values.push(sql::value(entering.row.cell(column))),
        }
    }
    values
}

/// The condition that nobody watches.
pub(crate) fn unwatched(watch: &str) -> String {
    format!("NOT EXISTS (SELECT 1 FROM {watch} w WHERE w.until > {NOW})")
}

/// What [`enter`] writes into a column; `None` for what the claim says itself.
fn in_enter(column: &str) -> Option<&'static str> {
    Some(match column {
        "token" => "LAST_INSERT_ID(@now)",
        "block" | "since" | "held_since" => "@now",
        "block_end" => "@now + @more",
        "ends" => "@now + ?",
        "state" => "'holds'",
        "started" => "1",
        _ => return None,
    })
}

/// The statement that takes a free lock. Its values: the name, a version, a limit, the lease, and what [`in_enter`] leaves open.
fn enter(locks: &str, unwatched: &str, retention: u64) -> String {
    let (columns, more) = (COLUMNS.map(|(name, _)| name).join(", "), (BLOCK - 1).to_string());
    let written = |column| in_enter(column).unwrap_or("?").replace("@more", &more).replace("@now", NOW);
    let inserted = COLUMNS.map(|(column, _)| written(column));
    // From left to right, and each sees what those before it set: the version comes first, and whether it is the new one, which is random,
    // says to the others whether the lock was free.
    let free = format!("({locks}.entry IS NULL OR {locks}.state = '{FREED}') AND {locks}.rest = 0");
    let taken = format!("{locks}.version = VALUES(version)");
    let mut updated = vec![
        format!("version = IF({free}, VALUES(version), {locks}.version)"),
        format!("token = IF({taken}, LAST_INSERT_ID(GREATEST({locks}.last + 1, VALUES(since))), token)"),
        format!("block = IF({taken}, token, block)"),
        format!("block_end = IF({taken}, token + {more}, block_end)"),
        format!("last = IF({taken}, token + {more}, last)"),
    ];
    let others = COLUMNS.map(|(column, _)| column).into_iter();
    let others = others.filter(|column| !["token", "block", "block_end"].contains(column));
    for column in ["permit_limit", "line", "keep"].into_iter().chain(others) {
        updated.push(format!("{column} = IF({taken}, VALUES({column}), {locks}.{column})"));
    }
    format!(
        "INSERT INTO {locks} (name, version, last, permit_limit, line, rest, keep, {columns}) \
         SELECT ?, ?, {NOW} + {more}, ?, 1, 0, {NOW} + ? + {retention}, {} FROM DUAL WHERE {} ON DUPLICATE KEY UPDATE {}",
        inserted.join(", "),
        unwatched,
        updated.join(", ")
    )
}

/// The same for a lock that has a row: an UPDATE costs the server much less than the above, which must be ready for both. The same
/// condition, and the same is written. Its values: a version, a limit, the lease, what [`in_enter`] leaves open, and the name.
fn enter_again(locks: &str, unwatched: &str, retention: u64) -> String {
    let more = (BLOCK - 1).to_string();
    // From left to right, and each sees what those before it set: the time is computed once.
    let mut updated = vec![
        format!("since = {NOW}"),
        "version = ?".to_owned(),
        "permit_limit = ?".to_owned(),
        "line = 1".to_owned(),
        format!("keep = since + ? + {retention}"),
        "token = LAST_INSERT_ID(GREATEST(last + 1, since))".to_owned(),
        "block = token".to_owned(),
        format!("block_end = token + {more}"),
        "last = block_end".to_owned(),
    ];
    let others = COLUMNS.map(|(column, _)| column).into_iter();
    for column in others.filter(|column| !["since", "token", "block", "block_end"].contains(column)) {
        updated.push(format!("{column} = {}", in_enter(column).unwrap_or("?").replace("@now", "since")));
    }
    format!(
        "UPDATE {locks} SET {} WHERE name = ? AND (entry IS NULL OR state = '{FREED}') AND rest = 0 AND {unwatched}",
        updated.join(", ")
    )
}

/// The same for a lock that an entry of the same session took, on the same terms and in one statement, and left: what is in its row because of the
/// session and the terms is there, and only the rest is written. Of an entry only what it wants can change (by a downgrade), so that
/// is asked for. Its values: a version, the entry, the lease, how the session is told, the name, the entry before, and what is wanted.
fn follow(locks: &str, unwatched: &str, retention: u64) -> String {
    let more = BLOCK - 1;
    // From left to right, and each sees what those before it set: the time is computed once.
    format!(
        "UPDATE {locks} SET since = {NOW}, version = ?, token = LAST_INSERT_ID(GREATEST(last + 1, since)), block = token, \
         block_end = token + {more}, last = block_end, entry = ?, state = 'holds', ends = since + ?, keep = ends + {retention}, \
         held_since = since, asked = 0, wake = ? \
         WHERE name = ? AND entry = ? AND state = '{FREED}' AND want = ? AND rest = 0 AND {unwatched}"
    )
}

/// The statement that lets go of a lock that nobody waits for. Only the state of its entry changes, and by no byte in length: so the row stays
/// where it is in its page; one that shrinks and grows would make pages merge and split again and again. Its values: the last token that was used, twice, the name, the entry. Its
/// id is the time.
fn depart(locks: &str, unwatched: &str, retention: u64) -> String {
    format!(
        "UPDATE {locks} SET last = IF(? <= block_end AND last = block_end, GREATEST(?, block - 1), last), \
         state = '{FREED}', permit_limit = NULL, version = version + 1, keep = LAST_INSERT_ID({NOW}) + {retention} \
         WHERE name = ? AND entry = ? AND rest = 0 AND state = 'holds' AND {unwatched}"
    )
}
