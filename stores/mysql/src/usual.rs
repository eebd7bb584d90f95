//! The statements of the usual cases, in the words of MySQL and MariaDB: [`leasehold_sql::usual`] says which one it is.
//!
//! What they cost is the server's work, and most of that is for every condition and every column that they name: it plans a statement anew each
//! time that it runs, prepared or not.

use std::sync::Arc;

use leasehold_core::{Name, Result};
use leasehold_sql::idle::FREED;
use leasehold_sql::row::{COLUMNS, FRESH, block, micros};
use leasehold_sql::usual::{LastToken, Plan, Usual, Way};
use leasehold_sql::{BLOCK, Departing, Entering, Step};
use mysql_async::Value;

use crate::sql;
use crate::state::NOW;

/// The statements.
pub(crate) struct Statements {
    enter: Forms,
    enter_again: Forms,
    follow: Forms,
    depart: Forms,
    let_go: Forms,
}

/// A statement in two forms: it does nothing if somebody watches.
struct Forms {
    /// Looks for those who watch.
    looks: Arc<str>,
    /// Nobody does until a time, which is its last value.
    knows: Arc<str>,
}

/// How a statement sees that nobody watches.
struct Unwatched {
    condition: String,
    /// It looks, so it tells the time.
    looks: bool,
}

impl Forms {
    fn new(watch: &str, text: impl Fn(&Unwatched) -> String) -> Self {
        let looks = Unwatched { condition: unwatched(watch), looks: true };
        let knows = Unwatched { condition: format!("{NOW} < ?"), looks: false };
        Forms { looks: text(&looks).into(), knows: text(&knows).into() }
    }
}

/// A statement to run for a step.
pub(crate) struct Call {
    pub(crate) statement: Arc<str>,
    pub(crate) values: Vec<Value>,
    pub(crate) plan: Plan,
}

impl Statements {
    pub(crate) fn new(locks: &str, watch: &str, retention: u64) -> Self {
        let forms = |text: fn(&str, &Unwatched, u64) -> String| {
            Forms::new(watch, |unwatched| text(locks, unwatched, retention))
        };
        Statements {
            enter: forms(enter),
            enter_again: forms(enter_again),
            follow: forms(follow),
            depart: forms(depart),
            let_go: forms(let_go),
        }
    }

    /// The statement for a step, to be run now.
    pub(crate) fn call(&self, usual: &Usual, step: &Step) -> Result<Call> {
        let plan = usual.plan(step)?;
        let version = Value::Int(plan.version);
        let (forms, mut values) = match (step, plan.way) {
            (Step::Enter(e), Way::Follow(from)) => (&self.follow, to_follow(e, version, from)),
            (Step::Enter(e), Way::EnterAgain) => (&self.enter_again, to_enter_again(e, version)),
            (Step::Enter(e), _) => (&self.enter, to_enter(e, version)),
            (Step::Depart(d), Way::LetGo(from, last)) => (&self.let_go, to_let_go(d, version, from, last)),
            (Step::Depart(d), _) => (&self.depart, to_depart(d, version)),
        };
        values.extend(plan.until.map(Value::UInt));
        let statement = if plan.until.is_some() { &forms.knows } else { &forms.looks };
        Ok(Call { statement: statement.clone(), values, plan })
    }
}

fn to_enter(entering: &Entering, version: Value) -> Vec<Value> {
    with_row(entering, vec![key(&entering.name), version, limit(entering), lease(entering)])
}

fn to_enter_again(entering: &Entering, version: Value) -> Vec<Value> {
    let mut values = with_row(entering, vec![version, limit(entering), lease(entering)]);
    values.push(key(&entering.name));
    values
}

fn to_follow(entering: &Entering, version: Value, from: i64) -> Vec<Value> {
    let entry = sql::value(entering.row.cell("entry"));
    vec![version, entry, lease(entering), key(&entering.name), Value::Int(from)]
}

fn to_depart(departing: &Departing, version: Value) -> Vec<Value> {
    let used = departing.used.map_or(Value::NULL, |token| Value::UInt(token.0));
    let entry = Value::Bytes(departing.id.to_string().into());
    vec![used.clone(), used, version, key(&departing.name), entry]
}

fn to_let_go(departing: &Departing, version: Value, from: i64, last: LastToken) -> Vec<Value> {
    vec![Value::UInt(last.0), version, key(&departing.name), Value::Int(from)]
}

fn key(name: &Name) -> Value {
    Value::Bytes(name.as_str().into())
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
        "since" => "@now",
        "ends" => "@now + ?",
        "state" => "'holds'",
        "started" => "1",
        column if FRESH.contains(&column) => "NULL",
        _ => return None,
    })
}

/// The statement that takes a free lock. Its values: the name, a version, a limit, the lease, and what [`in_enter`] leaves open.
fn enter(locks: &str, unwatched: &Unwatched, retention: u64) -> String {
    let (columns, more) = (COLUMNS.map(|(name, _)| name).join(", "), BLOCK - 1);
    let inserted = COLUMNS.map(|(column, _)| in_enter(column).unwrap_or("?").replace("@now", NOW));
    // From left to right, and each sees what those before it set: the version comes first, and whether it is the new one, which is random,
    // says to the others whether the lock was free.
    let free = format!("({locks}.entry IS NULL OR {locks}.state = '{FREED}') AND {locks}.rest = 0");
    let taken = format!("{locks}.version = VALUES(version)");
    let mut updated = vec![
        format!("version = IF({free}, VALUES(version), {locks}.version)"),
        format!("token = IF({taken}, LAST_INSERT_ID(GREATEST({locks}.last + 1, VALUES(since))), token)"),
        format!("last = IF({taken}, token + {more}, last)"),
    ];
    let others = COLUMNS.map(|(column, _)| column).into_iter().filter(|column| *column != "token");
    for column in ["permit_limit", "line", "keep"].into_iter().chain(others) {
        updated.push(format!("{column} = IF({taken}, VALUES({column}), {locks}.{column})"));
    }
    format!(
        "INSERT INTO {locks} (name, version, last, permit_limit, line, rest, keep, {columns}) \
         SELECT ?, ?, {NOW} + {more}, ?, 1, 0, {NOW} + ? + {retention}, {} FROM DUAL WHERE {} ON DUPLICATE KEY UPDATE {}",
        inserted.join(", "),
        unwatched.condition,
        updated.join(", ")
    )
}

/// The same for a lock that has a row: an UPDATE costs the server much less than the above, which must be ready for both. The same
/// condition, and the same is written. Its values: a version, a limit, the lease, what [`in_enter`] leaves open, and the name.
fn enter_again(locks: &str, unwatched: &Unwatched, retention: u64) -> String {
    // From left to right, and each sees what those before it set: the time is computed once.
    let mut updated = vec![
        format!("since = {NOW}"),
        "version = ?".to_owned(),
        "permit_limit = ?".to_owned(),
        "line = 1".to_owned(),
        format!("keep = since + ? + {retention}"),
        "token = LAST_INSERT_ID(GREATEST(last + 1, since))".to_owned(),
        format!("last = token + {}", BLOCK - 1),
    ];
    let others = COLUMNS.map(|(column, _)| column).into_iter();
    for column in others.filter(|column| !["since", "token"].contains(column)) {
        updated.push(format!("{column} = {}", in_enter(column).unwrap_or("?").replace("@now", "since")));
    }
    format!(
        "UPDATE {locks} SET {} WHERE name = ? AND (entry IS NULL OR state = '{FREED}') AND rest = 0 AND {}",
        updated.join(", "),
        unwatched.condition
    )
}

/// The same for a lock that is as an entry of the same session left it: the version says so. What is in its row because of the session and the terms
/// is there, and only the rest is written. Its values: a version, the entry, the lease, the name, and the version that is expected.
fn follow(locks: &str, unwatched: &Unwatched, _: u64) -> String {
    format!(
        "UPDATE {locks} SET since = {NOW}, version = ?, token = LAST_INSERT_ID(GREATEST(last + 1, since)), last = token + {}, \
         entry = ?, state = 'holds', ends = since + ? WHERE name = ? AND version = ? AND {}",
        BLOCK - 1,
        unwatched.condition
    )
}

/// The statement that lets go of a lock that nobody waits for. Only the state of its entry changes, and by no byte in length: so the row stays
/// where it is in its page; one that shrinks and grows would make pages merge and split again and again. Its values: the last token that
/// was used, twice, a version, the name, the entry. Its id is the time.
fn depart(locks: &str, unwatched: &Unwatched, retention: u64) -> String {
    let (first, end) = block();
    format!(
        "UPDATE {locks} SET last = IF(? <= {end} AND last = {end}, GREATEST(?, {first} - 1), last), \
         state = '{FREED}', permit_limit = NULL, version = ?, keep = LAST_INSERT_ID({NOW}) + {retention} \
         WHERE name = ? AND entry = ? AND rest = 0 AND state = 'holds' AND {}",
        unwatched.condition
    )
}

/// The same for a lock that is as it was when its holder took it: the version says so. Its values: the last token that counts as given out, a
/// version, the name, and the version that is expected.
fn let_go(locks: &str, unwatched: &Unwatched, retention: u64) -> String {
    let told =
        if unwatched.looks { format!(", keep = LAST_INSERT_ID({NOW}) + {retention}") } else { String::new() };
    format!(
        "UPDATE {locks} SET last = ?, state = '{FREED}', version = ?{told} WHERE name = ? AND version = ? AND {}",
        unwatched.condition
    )
}
