//! The statements of the usual cases: a lock that is free is taken, and one that nobody waits for is given back. Each is one statement, which
//! does nothing if the case isn't the usual one.

use leasehold_core::{Clock, EntryId, Error, Kind, Result, Retry, Tick, Token};
use leasehold_sql::change::fresh_version;
use leasehold_sql::idle::{FREED, Idle, Left, Terms};
use leasehold_sql::row::{COLUMNS, Sort, micros};
use leasehold_sql::unwatched::Unwatched;
use leasehold_sql::{BLOCK, Cell, Departing, Entering, Step, Stepped};

use crate::config::Config;
use crate::sql::{Place, Statement, Values};
use crate::state::{NOW, key, whole};

/// The statements, and what is known of the locks.
pub(crate) struct Usual {
    /// Takes a free lock. Tells its first token.
    enter: Forms,
    /// The same for one whose row is as an entry of this session left it.
    follow: Forms,
    /// Lets go of a lock that nobody waits for. Tells the time if it looked for those who watch.
    depart: Forms,
    /// Locks that have a row, as far as is known here.
    idle: Idle,
    unwatched: Unwatched,
}

/// A statement in two forms: it does nothing if somebody watches.
struct Forms {
    /// Looks for those who watch.
    looks: Statement,
    /// Nobody does until a time, which is its last value.
    knows: Statement,
}

/// A statement to run for a step, with its values.
pub(crate) struct Call<'a> {
    pub(crate) statement: &'a Statement,
    pub(crate) values: Values,
    /// It looks for those who watch.
    looks: bool,
    /// It counts on a row that may not be there, or not be like that.
    guessed: bool,
}

/// What a usual statement did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How many rows it changed.
    pub(crate) changed: u64,
    /// What it told of them.
    pub(crate) told: Option<i64>,
}

impl Usual {
    pub(crate) fn new(config: &Config) -> Self {
        Usual {
            enter: Forms { looks: enter(config, false), knows: enter(config, true) },
            follow: Forms { looks: follow(config, false), knows: follow(config, true) },
            depart: Forms { looks: depart(config, false), knows: depart(config, true) },
            idle: Idle::default(),
            unwatched: Unwatched::new(Clock::system()),
        }
    }

    /// The time, for [`came_of`](Usual::came_of).
    pub(crate) fn now(&self) -> Tick {
        self.unwatched.now()
    }

    /// The statement for a step.
    pub(crate) fn call(&self, step: &Step) -> Result<Call<'_>> {
        let (forms, mut values, guessed) = match step {
            Step::Enter(entering) => match self.idle.left(&entering.name) {
                Some(Left::By(last, terms)) if terms == Terms::of(entering) && entering.limit.is_none() => {
                    (&self.follow, to_follow(entering, last)?, true)
                }
                _ => (&self.enter, to_enter(entering)?, false),
            },
            Step::Depart(departing) => (&self.depart, to_depart(departing), false),
        };
        let known = self.unwatched.until();
        if let Some(until) = known {
            values.number(whole(until));
        }
        let statement = if known.is_some() { &forms.knows } else { &forms.looks };
        Ok(Call { statement, values, looks: known.is_none(), guessed })
    }

    /// What the outcome of a call that was sent then means for the step. `None` if the call counted on something that was not so; the next
    /// one won't.
    pub(crate) fn came_of(
        &self,
        step: &Step,
        call: &Call,
        sent: Tick,
        outcome: &Outcome,
    ) -> Result<Option<Stepped>> {
        let (done, told) = (outcome.changed > 0, outcome.told.map(i64::unsigned_abs));
        match step {
            Step::Enter(entering) if done => {
                self.idle.taken(&entering.name, entering.row.id(), Terms::of(entering));
                // It is asked again by its id, and then found.
                told.map(|first| Some(Stepped::Entered(Token(first)))).ok_or_else(|| {
                    Error::new(Kind::Unavailable, "the database did not tell the token").retry(Retry::SameId)
                })
            }
            Step::Enter(entering) if call.guessed => {
                // Somebody else has it or had it, or its row was removed.
                self.idle.forget(&entering.name);
                Ok(None)
            }
            Step::Depart(Departing { name, id, .. }) if done => {
                self.idle.note(name, *id);
                if let (true, Some(at)) = (call.looks, told) {
                    self.unwatched.seen(sent, at);
                }
                Ok(Some(Stepped::Departed))
            }
            Step::Enter(_) | Step::Depart(_) => Ok(Some(Stepped::Undone)),
        }
    }
}

/// The condition that nobody watches. In the other form the last value is known.
fn unwatched(config: &Config, now: &str, known: Option<Place>) -> String {
    match known {
        Some(until) => format!("{now} < {until}"),
        None => {
            let watch = config.table("watch");
            format!("NOT EXISTS (SELECT 1 FROM {watch} w WHERE w.until > {now})")
        }
    }
}

/// What [`enter`] writes into a column; `None` for what the claim says itself.
fn in_enter(column: &str) -> Option<&'static str> {
    Some(match column {
        "token" | "block" | "since" | "held_since" => "t.now",
        "block_end" => "t.now + @more",
        "ends" => "t.now + @lease",
        "lease" => "@lease",
        "state" => "'holds'",
        "started" | "seq" => "1",
        "asked" => "0",
        _ => return None,
    })
}

fn to_enter(entering: &Entering) -> Result<Values> {
    let mut values = Values::default();
    values.text(key(entering.name.as_str()));
    values.number(fresh_version()?);
    values.maybe(entering.limit.map(i64::from));
    values.number(whole(micros(entering.row.entry.lease.length())));
    for (column, sort) in COLUMNS {
        if in_enter(column).is_none() {
            values.cell(entering.row.cell(column), sort);
        }
    }
    Ok(values)
}

fn to_follow(entering: &Entering, last: EntryId) -> Result<Values> {
    let mut values = Values::default();
    values.text(key(entering.name.as_str()));
    values.text(last.to_string());
    values.text(entering.row.id().to_string());
    values.number(fresh_version()?);
    values.number(whole(micros(entering.row.entry.lease.length())));
    values.cell(entering.row.cell("wake"), Sort::Text(0));
    values.cell(entering.row.cell("want"), Sort::Text(0));
    Ok(values)
}

fn to_depart(departing: &Departing) -> Values {
    let mut values = Values::default();
    values.text(key(departing.name.as_str()));
    values.text(departing.id.to_string());
    values.maybe(departing.used.map(|token| whole(token.0)));
    values
}

/// The statement that takes a free lock. It is written with values that mean nothing, of the same sorts as those of [`to_enter`].
fn enter(config: &Config, knows: bool) -> Statement {
    let (locks, retention) = (config.table("locks"), micros(config.options.retention));
    let (columns, more) = (COLUMNS.map(|(name, _)| name).join(", "), BLOCK - 1);
    let mut values = Values::default();
    let v = &mut values;
    let (name, to, limit, lease) = (v.text(""), v.number(0), v.maybe(None), v.number(0));
    let inserted = COLUMNS.map(|(column, sort)| match in_enter(column) {
        Some(written) => written.replace("@more", &more.to_string()).replace("@lease", &lease.to_string()),
        None => v.cell(Cell::Null, sort).to_string(),
    });
    let fresh = "GREATEST(l.last + 1, EXCLUDED.since)";
    let updated = COLUMNS.map(|(column, _)| match column {
        "token" | "block" => format!("{column} = {fresh}"),
        "block_end" => format!("{column} = {fresh} + {more}"),
        _ => format!("{column} = EXCLUDED.{column}"),
    });
    let unwatched = unwatched(config, "t.now", knows.then(|| v.number(0)));
    values.statement(&format!(
        "WITH t AS MATERIALIZED (SELECT {NOW} AS now) \
         INSERT INTO {locks} AS l (name, version, last, permit_limit, line, rest, keep, {columns}) \
         SELECT {name}, {to}, t.now + {more}, {limit}, 1, 0, t.now + {lease} + {retention}, {} FROM t WHERE {unwatched} \
         ON CONFLICT (name) DO UPDATE SET version = EXCLUDED.version, last = {fresh} + {more}, \
         permit_limit = EXCLUDED.permit_limit, line = 1, keep = EXCLUDED.keep, {} \
         WHERE (l.entry IS NULL OR l.state = '{FREED}') AND l.rest = 0 RETURNING l.token",
        inserted.join(", "),
        updated.join(", ")
    ))
}

/// The statement that takes a lock that an entry of the same session took, on the same terms and in one statement, and left: what is in its row
/// because of the session and the terms is there, and only the rest is written. Of an entry only what it wants can change (by a
/// downgrade), so that is asked for. It has values like those of [`to_follow`].
fn follow(config: &Config, knows: bool) -> Statement {
    let (locks, retention, more) = (config.table("locks"), micros(config.options.retention), BLOCK - 1);
    let mut v = Values::default();
    let (name, last, entry, to, lease) = (v.text(""), v.text(""), v.text(""), v.number(0), v.number(0));
    let (wake, want) = (v.text(""), v.text(""));
    let unwatched = unwatched(config, "t.now", knows.then(|| v.number(0)));
    let fresh = "GREATEST(l.last + 1, t.now)";
    v.statement(&format!(
        "UPDATE {locks} l SET version = {to}, last = {fresh} + {more}, keep = t.now + {lease} + {retention}, entry = {entry}, \
         state = 'holds', token = {fresh}, ends = t.now + {lease}, since = t.now, held_since = t.now, block = {fresh}, \
         block_end = {fresh} + {more}, asked = 0, wake = {wake} FROM (SELECT {NOW} AS now OFFSET 0) t \
         WHERE l.name = {name} AND l.entry = {last} AND l.state = '{FREED}' AND l.want = {want} AND l.rest = 0 AND {unwatched} \
         RETURNING l.token"
    ))
}

/// The statement that lets go of a lock that nobody waits for, with values like those of [`to_depart`].
fn depart(config: &Config, knows: bool) -> Statement {
    let (locks, retention) = (config.table("locks"), micros(config.options.retention));
    let mut v = Values::default();
    let (name, id, used) = (v.text(""), v.text(""), v.maybe(None));
    let unwatched = unwatched(config, NOW, knows.then(|| v.number(0)));
    let told = if knows { String::new() } else { format!(" RETURNING {NOW}") };
    v.statement(&format!(
        "UPDATE {locks} l SET state = '{FREED}', permit_limit = NULL, version = l.version + 1, keep = {NOW} + {retention}, \
         last = CASE WHEN {used} <= l.block_end AND l.last = l.block_end THEN GREATEST({used}, l.block - 1) ELSE l.last END \
         WHERE l.name = {name} AND l.entry = {id} AND l.rest = 0 AND l.state = 'holds' AND {unwatched}{told}"
    ))
}
