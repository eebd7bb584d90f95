//! The statements of the usual cases, in the words of PostgreSQL: [`leasehold_sql::usual`] says which one it is.

use leasehold_core::Result;
use leasehold_sql::idle::FREED;
use leasehold_sql::row::{COLUMNS, FRESH, block, micros};
use leasehold_sql::usual::{LastToken, Plan, Usual, Way};
use leasehold_sql::{BLOCK, Cell, Departing, Entering, Step};

use crate::config::Config;
use crate::sql::{Place, Statement, Values};
use crate::state::{NOW, key, whole};

/// The time at which the transaction began, the same wherever it stands in it: less work than to have the time computed beside a statement.
const BEGAN: &str = "(date_part('epoch', now()) * 1000000)::bigint";

/// The statements.
pub(crate) struct Statements {
    enter: Forms,
    follow: Forms,
    depart: Forms,
    let_go: Forms,
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
    pub(crate) plan: Plan,
}

impl Statements {
    pub(crate) fn new(config: &Config) -> Self {
        let forms = |statement: fn(&Config, bool) -> Statement| Forms {
            looks: statement(config, false),
            knows: statement(config, true),
        };
        Statements {
            enter: forms(enter),
            follow: forms(follow),
            depart: forms(depart),
            let_go: forms(let_go),
        }
    }

    /// The statement for a step, to be run now.
    pub(crate) fn call(&self, usual: &Usual, step: &Step) -> Result<Call<'_>> {
        let plan = usual.plan(step)?;
        let to = plan.version;
        let (forms, mut values) = match (step, plan.way) {
            (Step::Enter(e), Way::Follow(from)) => (&self.follow, to_follow(e, to, from)),
            // There is one statement for a lock that has a row, and for one that has none.
            (Step::Enter(e), _) => (&self.enter, to_enter(e, to)),
            (Step::Depart(d), Way::LetGo(from, last)) => (&self.let_go, to_let_go(d, to, from, last)),
            (Step::Depart(d), _) => (&self.depart, to_depart(d, to)),
        };
        if let Some(until) = plan.until {
            values.number(whole(until));
        }
        let statement = if plan.until.is_some() { &forms.knows } else { &forms.looks };
        Ok(Call { statement, values, plan })
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
        "token" | "since" => "t.now",
        "ends" => "t.now + @lease",
        "lease" => "@lease",
        "state" => "'holds'",
        "started" | "seq" => "1",
        "asked" => "0",
        column if FRESH.contains(&column) => "NULL",
        _ => return None,
    })
}

fn to_enter(entering: &Entering, to: i64) -> Values {
    let mut values = Values::default();
    values.text(key(entering.name.as_str()));
    values.number(to);
    values.maybe(entering.limit.map(i64::from));
    values.number(lease(entering));
    for (column, sort) in COLUMNS {
        if in_enter(column).is_none() {
            values.cell(entering.row.cell(column), sort);
        }
    }
    values
}

fn to_follow(entering: &Entering, to: i64, from: i64) -> Values {
    let mut values = Values::default();
    values.text(key(entering.name.as_str()));
    values.number(from);
    values.number(to);
    values.text(entering.row.id().to_string());
    values.number(lease(entering));
    values
}

fn to_depart(departing: &Departing, to: i64) -> Values {
    let mut values = Values::default();
    values.text(key(departing.name.as_str()));
    values.text(departing.id.to_string());
    values.number(to);
    values.maybe(departing.used.map(|token| whole(token.0)));
    values
}

fn to_let_go(departing: &Departing, to: i64, from: i64, last: LastToken) -> Values {
    let mut values = Values::default();
    values.text(key(departing.name.as_str()));
    values.number(from);
    values.number(to);
    values.number(whole(last.0));
    values
}

fn lease(entering: &Entering) -> i64 {
    whole(micros(entering.row.entry.lease.length()))
}

/// The statement that takes a free lock. It is written with values that mean nothing, of the same sorts as those of [`to_enter`].
fn enter(config: &Config, knows: bool) -> Statement {
    let (locks, retention) = (config.table("locks"), micros(config.options.retention));
    let (columns, more) = (COLUMNS.map(|(name, _)| name).join(", "), BLOCK - 1);
    let mut values = Values::default();
    let v = &mut values;
    let (name, to, limit, lease) = (v.text(""), v.number(0), v.maybe(None), v.number(0));
    let inserted = COLUMNS.map(|(column, sort)| match in_enter(column) {
        Some(written) => written.replace("@lease", &lease.to_string()),
        None => v.cell(Cell::Null, sort).to_string(),
    });
    let fresh = "GREATEST(l.last + 1, EXCLUDED.since)";
    let updated = COLUMNS.map(|(column, _)| match column {
        "token" => format!("{column} = {fresh}"),
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

/// The statement that takes a lock that is as an entry of the same session left it: the version says so. What is in its row because of the session
/// and the terms is there, and only the rest is written. It has values like those of [`to_follow`].
///
/// Its time may be some time ago if it had to wait for its turn. Then the lease ends earlier, but not before the holder thinks that it does: that
/// one counts from before it asked.
fn follow(config: &Config, knows: bool) -> Statement {
    let (locks, more) = (config.table("locks"), BLOCK - 1);
    let mut v = Values::default();
    let (name, from, to, entry, lease) = (v.text(""), v.number(0), v.number(0), v.text(""), v.number(0));
    let unwatched = unwatched(config, NOW, knows.then(|| v.number(0)));
    let fresh = format!("GREATEST(l.last + 1, {BEGAN})");
    v.statement(&format!(
        "UPDATE {locks} l SET version = {to}, last = {fresh} + {more}, entry = {entry}, state = 'holds', token = {fresh}, \
         ends = {BEGAN} + {lease}, since = {BEGAN} WHERE l.name = {name} AND l.version = {from} AND {unwatched} RETURNING l.token"
    ))
}

/// The statement that lets go of a lock that nobody waits for, with values like those of [`to_depart`].
fn depart(config: &Config, knows: bool) -> Statement {
    let (locks, retention) = (config.table("locks"), micros(config.options.retention));
    let (first, end) = block();
    let mut v = Values::default();
    let (name, id, to, used) = (v.text(""), v.text(""), v.number(0), v.maybe(None));
    let (unwatched, told) = (unwatched(config, NOW, knows.then(|| v.number(0))), told(knows));
    v.statement(&format!(
        "UPDATE {locks} l SET state = '{FREED}', permit_limit = NULL, version = {to}, keep = {NOW} + {retention}, \
         last = CASE WHEN {used} <= {end} AND l.last = {end} THEN GREATEST({used}, {first} - 1) ELSE l.last END \
         WHERE l.name = {name} AND l.entry = {id} AND l.rest = 0 AND l.state = 'holds' AND {unwatched}{told}"
    ))
}

/// The same for a lock that is as it was when its holder took it: the version says so. It has values like those of [`to_let_go`].
fn let_go(config: &Config, knows: bool) -> Statement {
    let locks = config.table("locks");
    let mut v = Values::default();
    let (name, from, to, last) = (v.text(""), v.number(0), v.number(0), v.number(0));
    let (unwatched, told) = (unwatched(config, NOW, knows.then(|| v.number(0))), told(knows));
    v.statement(&format!(
        "UPDATE {locks} l SET state = '{FREED}', version = {to}, last = {last} \
         WHERE l.name = {name} AND l.version = {from} AND {unwatched}{told}"
    ))
}

/// A statement that looks for those who watch tells when it did.
fn told(knows: bool) -> String {
    if knows { String::new() } else { format!(" RETURNING {NOW}") }
}
