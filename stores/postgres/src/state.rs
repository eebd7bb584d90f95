//! The statements that read and write a lock. Each is one transaction, and all of its conditions are on the row of the lock: under READ
//! COMMITTED that row alone is looked at again after waiting for somebody else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::Waiting;
use leasehold_core::{EntryId, Name, Result, SessionId};
use leasehold_sql::backend::{waiting, watchers};
use leasehold_sql::idle::FREED;
use leasehold_sql::row::{COLUMNS, Sort, block, micros, unreadable};
use leasehold_sql::usual::{Usual, may_go};
use leasehold_sql::{Backend, Bell, Cell, Change, Ears, Kept, Letter, Loaded, Lock, Row, Step, Stepped};
use tokio_postgres::SimpleQueryRow;

use crate::sql::{Values, maybe_number, maybe_text, number, text};
use crate::usual::Statements;
use crate::wake::{Listener, MAIL, PUSH, channel};
use crate::wire::Wire;

/// The database's time, at the moment at which it is asked. Counted in floating point, which has half of a microsecond to spare until the year
/// 2100: `extract` would count in decimal digits, for four times as long.
pub(crate) const NOW: &str = "(date_part('epoch', clock_timestamp()) * 1000000)::bigint";

/// How many cells stand before those of an entry in what [`State::load`] reads.
const HEAD: usize = 10;

/// The locks of a database.
pub(crate) struct State {
    wire: Arc<Wire>,
    locks: String,
    entries: String,
    mail: String,
    watch: String,
    retention: i64,
    /// The columns of an entry, as a list.
    columns: String,
    usual: Usual,
    statements: Statements,
}

impl State {
    pub(crate) fn new(wire: Arc<Wire>) -> Self {
        let config = wire.config().clone();
        let table = |name| config.table(name);
        State {
            locks: table("locks"),
            entries: table("entries"),
            mail: table("mail"),
            watch: table("watch"),
            retention: whole(micros(config.options.retention)),
            columns: COLUMNS.map(|(name, _)| name).join(", "),
            usual: Usual::default(),
            statements: Statements::new(&config),
            wire,
        }
    }

    async fn read(&self, names: &[Name], which: &str) -> Result<Loaded> {
        let State { locks, entries, watch, columns, .. } = self;
        let mut values = Values::default();
        let wanted = match names {
            // An array would keep the index for the order from being used.
            [name] => format!("= {}", values.text(key(name.as_str()))),
            names => {
                format!("= ANY({})", values.texts(names.iter().map(|name| key(name.as_str())).collect()))
            }
        };
        let statement = format!(
            "WITH t AS MATERIALIZED (SELECT {NOW} AS now) \
             SELECT t.now, (SELECT string_agg(w.session || ':' || w.wake, ',') FROM {watch} w WHERE w.until > t.now), r.* \
             FROM t LEFT JOIN ( \
               SELECT true, name, version, last, permit_limit, line, rest, keep, {columns} FROM {locks} WHERE name {wanted} \
               UNION ALL \
               (SELECT false, name, NULL, NULL, NULL, NULL, NULL, NULL, {columns} FROM {entries} WHERE name {wanted} {which}) \
             ) r ON true"
        );
        let rows = self.wire.run(&statement, &values).await?;
        let first = rows.first().ok_or_else(|| unreadable("the database told no time"))?;
        let now = number(first, 0)?;
        let watchers = watchers(maybe_text(first, 1)?.unwrap_or_default());
        let mut found: HashMap<&str, (Option<Lock>, Vec<Row>)> = HashMap::new();
        for row in &rows {
            let Some(is_head) = maybe_text(row, 2)?.map(|said| said == "t") else { continue };
            let lock = found.entry(text(row, 3)?).or_default();
            if is_head {
                lock.0 = Some(head(row)?);
            }
            if !is_head || has_front(row)? {
                lock.1.push(entry(row)?);
            }
        }
        // What somebody removed from outside is simply not there any more. Without its row, a lock starts anew.
        let whole = |(lock, rows): (Option<Lock>, Vec<Row>)| lock.map(|lock| Lock { rows, ..lock });
        let locks =
            names.iter().map(|name| found.remove(key(name.as_str()).as_str()).and_then(whole)).collect();
        Ok(Loaded { now: now.unsigned_abs(), watchers, locks })
    }

    /// What the quick statements for those that wait ask of the lock: one holds it alone, and nobody gets anything by the change.
    fn held_alone() -> &'static str {
        "l.state = 'holds' AND l.want = 'exclusive' AND l.ends > t.now"
    }
}

impl Backend for State {
    /// One statement: what it says of locks, entries and watchers is of one moment.
    async fn load(&self, names: &[Name]) -> Result<Loaded> {
        self.read(names, "").await
    }

    /// The same with the first few behind the front.
    async fn peek(&self, name: &Name) -> Result<Loaded> {
        self.read(std::slice::from_ref(name), "AND state <> 'barges' ORDER BY seq LIMIT 3").await
    }

    /// Writes everything of a change, or nothing: all parts ask whether the first one found its version.
    async fn save(&self, change: &Change) -> Result<bool> {
        let State { locks, entries, mail, columns, .. } = self;
        let mut values = Values::default();
        let v = &mut values;
        let name = v.text(key(change.name.as_str()));
        let (to, last, limit) = (v.number(change.to), v.number(change.last), v.maybe(change.limit));
        let (line, rest, keep) = (v.number(change.line), v.number(change.rest), v.number(change.keep));
        let front = change.front.as_ref().map_or([const { Cell::Null }; COLUMNS.len()], Row::cells);
        let front: Vec<String> =
            front.into_iter().zip(COLUMNS).map(|(cell, (_, sort))| v.cell(cell, sort).to_string()).collect();
        let front = front.join(", ");
        let head = match change.from {
            None => format!(
                "INSERT INTO {locks} (name, version, last, permit_limit, line, rest, keep, {columns}) \
                 VALUES ({name}, {to}, {last}, {limit}, {line}, {rest}, {keep}, {front}) ON CONFLICT DO NOTHING RETURNING 1"
            ),
            Some(from) => format!(
                "UPDATE {locks} SET (version, last, permit_limit, line, rest, keep, {columns}) = \
                 ({to}, {last}, {limit}, {line}, {rest}, {keep}, {front}) WHERE name = {name} AND version = {} RETURNING 1",
                v.number(from)
            ),
        };
        let mut parts = vec![format!("head AS ({head})")];
        let done = "EXISTS (SELECT 1 FROM head)";
        if !change.gone.is_empty() {
            let gone = v.texts(change.gone.iter().map(EntryId::to_string).collect());
            parts.push(format!(
                "gone AS (DELETE FROM {entries} WHERE name = {name} AND entry = ANY({gone}) AND {done})"
            ));
        }
        if !change.put.is_empty() {
            let arrays = arrays(&change.put, v);
            let renewed: Vec<String> = COLUMNS.iter().map(|(c, _)| format!("{c} = EXCLUDED.{c}")).collect();
            parts.push(format!(
                "put AS (INSERT INTO {entries} (name, {columns}) SELECT {name}, r.* FROM unnest({arrays}) r WHERE {done} \
                 ON CONFLICT (name, entry) DO UPDATE SET {})",
                renewed.join(", ")
            ));
        }
        let (posted, rung) = sorted_out(&change.letters);
        if !posted.is_empty() {
            let (to, text): (Vec<String>, Vec<String>) = posted.into_iter().unzip();
            let (to, text) = (v.texts(to), v.texts(text));
            parts.push(format!(
                "post AS (INSERT INTO {mail} (session, at, body) SELECT m.session, {NOW}, m.body \
                 FROM unnest({to}, {text}) WITH ORDINALITY m(session, body, at) WHERE {done} ORDER BY m.at)"
            ));
        }
        let mut told = "0".to_owned();
        if !rung.is_empty() {
            let (channels, texts): (Vec<String>, Vec<String>) = rung.into_iter().unzip();
            let (channels, texts) = (v.texts(channels), v.texts(texts));
            parts.push(format!(
                "told AS MATERIALIZED (SELECT pg_notify(n.channel, n.body)::text AS done \
                 FROM unnest({channels}, {texts}) n(channel, body) WHERE {done})"
            ));
            told = "(SELECT count(done) FROM told)".to_owned();
        }
        let statement = format!("WITH {} SELECT (SELECT count(*) FROM head), {told}", parts.join(", "));
        let rows = self.wire.run(&statement, &values).await?;
        Ok(rows.first().map(|row| number(row, 0)).transpose()? == Some(1))
    }

    async fn step(&self, step: &Step) -> Result<Stepped> {
        loop {
            let call = self.statements.call(&self.usual, step)?;
            let outcome = self.wire.run_usual(&call).await?;
            if let Some(stepped) = self.usual.came_of(step, &call.plan, outcome)? {
                return Ok(stepped);
            }
        }
    }

    async fn steps(&self, steps: &[Step]) -> Result<Vec<Option<Stepped>>> {
        let call = |step| self.statements.call(&self.usual, step);
        let calls = steps.iter().map(call).collect::<Result<Vec<_>>>()?;
        let outcomes = self.wire.run_together(&calls).await?;
        let each = steps.iter().zip(&calls).zip(outcomes);
        each.map(|((step, call), outcome)| self.usual.came_of(step, &call.plan, outcome)).collect()
    }

    fn lanes(&self) -> usize {
        self.wire.config().options.pool
    }

    async fn append(&self, name: &Name, row: &Row) -> Result<Option<Waiting>> {
        let State { locks, entries, watch, columns, retention, .. } = self;
        let mut values = Values::default();
        let v = &mut values;
        let name = v.text(key(name.as_str()));
        let place = v.number(whole(micros(row.entry.place)));
        // A request that comes late may find its own entry at the front: it must not wait for itself.
        let id = v.text(row.entry.id.to_string());
        let cells = row.cells().into_iter().zip(COLUMNS).map(|(cell, (column, sort))| match column {
            "since" => "t.now".to_owned(),
            "ends" => format!("t.now + {place}"),
            "seq" => "head.line".to_owned(),
            _ => v.cell(cell, sort).to_string(),
        });
        let cells = cells.collect::<Vec<_>>().join(", ");
        let statement = format!(
            "WITH t AS MATERIALIZED (SELECT {NOW} AS now), \
             head AS (UPDATE {locks} l SET version = l.version + 1, line = l.line + 1, rest = l.rest + 1, \
               keep = GREATEST(l.keep, t.now + {place} + {retention}) FROM t \
               WHERE l.name = {name} AND {} AND l.entry <> {id} \
                 AND NOT EXISTS (SELECT 1 FROM {watch} w WHERE w.until > t.now) \
               RETURNING l.name, l.line, l.ends), \
             put AS (INSERT INTO {entries} (name, {columns}) SELECT head.name, {cells} FROM head, t) \
             SELECT head.ends - t.now, \
               (SELECT count(*) FROM {entries} e WHERE e.name = {name} AND e.state = 'waits') FROM head, t",
            Self::held_alone()
        );
        let rows = self.wire.run(&statement, &values).await?;
        rows.first().map(|row| Ok(waiting(number(row, 0)?, number(row, 1)?))).transpose()
    }

    async fn stay(&self, name: &Name, id: EntryId) -> Result<Option<Waiting>> {
        let State { locks, entries, retention, .. } = self;
        let mut v = Values::default();
        let (name, id) = (v.text(key(name.as_str())), v.text(id.to_string()));
        let statement = format!(
            "WITH t AS MATERIALIZED (SELECT {NOW} AS now), \
             head AS (UPDATE {locks} l SET version = l.version + 1 FROM t WHERE l.name = {name} AND {} \
               AND l.keep >= t.now + {retention} RETURNING l.name, l.ends), \
             mine AS (UPDATE {entries} e SET ends = t.now + e.place FROM head, t WHERE e.name = head.name AND e.entry = {id} \
               AND e.state = 'waits' AND e.ends > t.now RETURNING e.seq) \
             SELECT head.ends - t.now, \
               (SELECT count(*) FROM {entries} e WHERE e.name = {name} AND e.state = 'waits' AND e.seq < mine.seq) \
             FROM head, t, mine",
            Self::held_alone()
        );
        let rows = self.wire.run(&statement, &v).await?;
        rows.first().map(|row| Ok(waiting(number(row, 0)?, number(row, 1)?))).transpose()
    }

    async fn withdraw(&self, name: &Name, id: EntryId) -> Result<bool> {
        let State { locks, entries, watch, .. } = self;
        let mut v = Values::default();
        let (name, id) = (v.text(key(name.as_str())), v.text(id.to_string()));
        let statement = format!(
            "WITH t AS MATERIALIZED (SELECT {NOW} AS now), \
             head AS (SELECT l.name FROM {locks} l, t WHERE l.name = {name} AND {} \
               AND NOT EXISTS (SELECT 1 FROM {watch} w WHERE w.until > t.now) FOR UPDATE OF l), \
             gone AS (DELETE FROM {entries} e USING head, t WHERE e.name = head.name AND e.entry = {id} \
               AND e.state = 'waits' AND e.want <> 'permits' AND e.ends > t.now RETURNING e.name), \
             fewer AS (UPDATE {locks} l SET version = l.version + 1, rest = l.rest - 1 FROM gone WHERE l.name = gone.name) \
             SELECT 1 FROM gone",
            Self::held_alone()
        );
        Ok(!self.wire.run(&statement, &v).await?.is_empty())
    }

    async fn keep(&self, lines: &[(Name, EntryId)], wake: &str) -> Result<Vec<Option<Kept>>> {
        let State { locks, retention, .. } = self;
        self.usual.renews(lines);
        let (first, end) = block();
        let mut v = Values::default();
        let names = v.texts(lines.iter().map(|(name, _)| key(name.as_str())).collect());
        let ids = v.texts(lines.iter().map(|(_, id)| id.to_string()).collect());
        let wake = v.text(wake);
        // Everybody locks rows in the same order.
        let statement = format!(
            "WITH t AS MATERIALIZED (SELECT {NOW} AS now), \
             r AS MATERIALIZED (SELECT l.name, l.entry FROM {locks} l, unnest({names}, {ids}) r(name, entry) \
               WHERE l.name = r.name AND l.entry = r.entry ORDER BY l.name FOR UPDATE OF l) \
             UPDATE {locks} l SET ends = t.now + l.lease, keep = t.now + l.lease + {retention}, version = l.version + 1, wake = {wake} \
             FROM t, r WHERE l.name = r.name AND l.entry = r.entry AND l.rest = 0 AND l.state = 'holds' AND l.lease_kind = 'kept' \
             AND l.started = 1 AND l.ends > t.now RETURNING l.entry, l.lease, {first}, {end}, l.asked"
        );
        let rows = self.wire.run(&statement, &v).await?;
        let mut kept = HashMap::new();
        for row in &rows {
            let found = Kept::read(number(row, 1)?, number(row, 2)?, number(row, 3)?, number(row, 4)?)?;
            kept.insert(text(row, 0)?, found);
        }
        Ok(lines.iter().map(|(_, id)| kept.remove(id.to_string().as_str())).collect())
    }

    async fn names(&self, prefix: &str, after: Option<&Name>, most: usize) -> Result<Vec<Name>> {
        let mut v = Values::default();
        let prefix = v.text(key(prefix));
        let after = v.text(after.map(|name| key(name.as_str())).unwrap_or_default());
        let statement = format!(
            "SELECT name FROM {} WHERE (entry IS NOT NULL AND state <> '{FREED}' OR rest > 0) AND name >= {prefix} AND starts_with(name, {prefix}) \
             AND name > {after} ORDER BY name LIMIT {}",
            self.locks,
            v.number(i64::try_from(most).unwrap_or(i64::MAX))
        );
        let rows = self.wire.run(&statement, &v).await?;
        rows.iter().map(|row| Name::new(unkey(text(row, 0)?))).collect()
    }

    async fn mail(&self, session: SessionId) -> Result<Vec<String>> {
        let mut v = Values::default();
        let session = v.text(session.to_string());
        let statement = format!(
            "WITH taken AS (DELETE FROM {} WHERE session = {session} RETURNING id, body) SELECT body FROM taken ORDER BY id",
            self.mail
        );
        let rows = self.wire.run(&statement, &v).await?;
        rows.iter().map(|row| Ok(text(row, 0)?.to_owned())).collect()
    }

    async fn watch(&self, session: SessionId, wake: &str, span: Duration) -> Result<()> {
        let mut v = Values::default();
        let (session, wake) = (v.text(session.to_string()), v.text(wake));
        let span = v.number(whole(micros(span)));
        let statement = format!(
            "INSERT INTO {} (session, wake, until) VALUES ({session}, {wake}, {NOW} + {span}) \
             ON CONFLICT (session) DO UPDATE SET wake = EXCLUDED.wake, until = EXCLUDED.until",
            self.watch
        );
        self.wire.run(&statement, &v).await.map(drop)
    }

    async fn sweep(&self) -> Result<()> {
        let State { locks, entries, mail, watch, retention, .. } = self;
        // It waits for nobody's rows, in whatever order it finds them. What is in use is not idle.
        let statement = format!(
            "WITH t AS MATERIALIZED (SELECT {NOW} AS now), \
             idle AS (DELETE FROM {locks} l USING \
               (SELECT l.name FROM {locks} l, t WHERE {} FOR UPDATE OF l SKIP LOCKED) i \
               WHERE l.name = i.name RETURNING l.name), \
             left_over AS (DELETE FROM {entries} e USING idle WHERE e.name = idle.name), \
             unread AS (DELETE FROM {mail} m USING t WHERE m.at < t.now - {retention}) \
             DELETE FROM {watch} w USING t WHERE w.until < t.now - {retention}",
            may_go(retention.unsigned_abs(), "t.now")
        );
        self.wire.run(&statement, &Values::default()).await.map(drop)
    }

    fn listen(&self, session: SessionId, ears: Arc<Ears>) -> Arc<dyn Bell> {
        Arc::new(Listener::begin(self.wire.clone(), session, ears))
    }

    async fn close(&self) {
        self.wire.close().await;
    }
}

/// Whether somebody is at the front of the queue.
fn has_front(row: &SimpleQueryRow) -> Result<bool> {
    let state = COLUMNS.iter().position(|(column, _)| *column == "state").unwrap_or_default();
    Ok(maybe_text(row, HEAD)?.is_some() && maybe_text(row, HEAD + state)? != Some(FREED))
}

/// What the row of a lock says besides its front.
fn head(row: &SimpleQueryRow) -> Result<Lock> {
    let limit = maybe_number(row, 6)?.and_then(|limit| limit.try_into().ok());
    let (version, last) = (number(row, 4)?, number(row, 5)?.unsigned_abs());
    let (line, rest, keep) = (number(row, 7)?, number(row, 8)?, number(row, 9)?);
    Ok(Lock { version, last, limit, line, rest, keep, rows: Vec::new() })
}

fn entry(row: &SimpleQueryRow) -> Result<Row> {
    let cells = COLUMNS.iter().enumerate().map(|(at, (_, sort))| {
        Ok(match sort {
            Sort::Text(_) => {
                maybe_text(row, HEAD + at)?.map_or(Cell::Null, |text| Cell::Text(text.to_owned().into()))
            }
            Sort::Number => maybe_number(row, HEAD + at)?.map_or(Cell::Null, Cell::Number),
        })
    });
    Row::read(cells.collect::<Result<_>>()?)
}

/// The rows as one array for each column.
fn arrays(rows: &[Row], v: &mut Values) -> String {
    let mut columns: Vec<Vec<Cell>> = COLUMNS.iter().map(|_| Vec::with_capacity(rows.len())).collect();
    for row in rows {
        columns.iter_mut().zip(row.cells()).for_each(|(column, cell)| column.push(cell));
    }
    let arrays = columns.iter().zip(COLUMNS).map(|(cells, (_, sort))| v.column(cells, sort).to_string());
    arrays.collect::<Vec<_>>().join(", ")
}

/// For whom, and what.
type Addressed = (String, String);

/// What is left in the mail for whom, and what is told on which channel.
fn sorted_out(letters: &[Letter]) -> (Vec<Addressed>, Vec<Addressed>) {
    let (mut posted, mut rung) = (Vec::new(), Vec::new());
    for letter in letters {
        if letter.wake == PUSH && !letter.event {
            rung.push((channel(letter.to), letter.text.clone()));
        } else {
            posted.push((letter.to.to_string(), letter.text.clone()));
            // It may listen meanwhile.
            rung.push((channel(letter.to), MAIL.to_owned()));
        }
    }
    (posted, rung)
}

/// A name as a column can hold it: PostgreSQL's text has every character but one. The order stays the same.
pub(crate) fn key(name: &str) -> String {
    if !name.contains(['\0', '\u{1}']) {
        return name.to_owned();
    }
    name.replace('\u{1}', "\u{1}\u{2}").replace('\0', "\u{1}\u{1}")
}

fn unkey(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    let mut chars = key.chars();
    while let Some(c) = chars.next() {
        name.push(match c {
            '\u{1}' if chars.next() == Some('\u{1}') => '\0',
            c => c,
        });
    }
    name
}

pub(crate) fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_key_of_its_own_in_the_same_order() {
        let names =
            ["\0", "\0\0", "\0\u{1}", "\u{1}", "\u{1}\0", "\u{1}\u{1}", "\u{1}\u{2}", "\u{2}", "a\0b", "ab"];
        assert!(names.is_sorted());
        let keys = names.map(key);
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        assert_eq!(keys.each_ref().map(|key| unkey(key)), names);
        assert!(keys.iter().all(|key| !key.contains('\0')));
    }
}
