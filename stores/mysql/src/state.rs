//! The statements that read and write a lock.
//!
//! Those that write more than one row are one text with a transaction in it. The row of the lock comes first and gets a random version;
//! all that follows asks for that version, so it does nothing if the first one found no row to change. Every lock of a row is by
//! its primary key, and READ COMMITTED locks no gaps.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::Waiting;
use leasehold_core::{EntryId, Name, Result, SessionId};
use leasehold_sql::backend::{waiting, watchers};
use leasehold_sql::change::fresh_version;
use leasehold_sql::idle::FREED;
use leasehold_sql::row::{COLUMNS, Sort, block, micros, unreadable};
use leasehold_sql::usual::{self, Usual, may_go};
use leasehold_sql::{Backend, Bell, Cell, Change, Ears, Kept, Letter, Loaded, Lock, Row, Step, Stepped};
use mysql_async::Value;

use crate::mailbox::{self, Mailbox};
use crate::sql::{self, Outcome, bytes, maybe, maybe_number, maybe_text, number, string, text};
use crate::usual::{Call, Statements, unwatched};
use crate::wake::{Doorbell, bell_of, ring};
use crate::wire::{Text, Wire};

/// The database's time when the statement began, the same wherever it stands in it; no time zone and no summer time in it.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

/// How many cells stand before those of an entry in what [`State::read`] reads.
const HEAD: usize = 10;

/// What the quick statements for those that wait ask of the lock: one holds it alone, and nobody gets anything by the change.
const HELD_ALONE: &str = "state = 'holds' AND want = 'exclusive'";

/// The locks of a database.
pub(crate) struct State {
    wire: Arc<Wire>,
    locks: String,
    entries: String,
    mail: String,
    watch: String,
    retention: u64,
    /// The columns of an entry, as a list.
    columns: String,
    usual: Usual,
    statements: Statements,
    mailbox: Arc<Mailbox>,
}

impl State {
    pub(crate) fn new(wire: Arc<Wire>) -> Self {
        let config = wire.config().clone();
        let table = |name| config.table(name);
        let (locks, watch) = (table("locks"), table("watch"));
        let retention = micros(config.options.retention);
        State {
            usual: Usual::default(),
            statements: Statements::new(&locks, &watch, retention),
            mailbox: Arc::default(),
            locks,
            entries: table("entries"),
            mail: table("mail"),
            watch,
            retention,
            columns: COLUMNS.map(|(name, _)| name).join(", "),
            wire,
        }
    }

    fn unwatched(&self) -> String {
        unwatched(&self.watch)
    }

    /// The condition that the row of the lock was changed by this text.
    fn done(&self, name: &str, version: i64) -> String {
        format!("EXISTS (SELECT 1 FROM {} l WHERE l.name = {name} AND l.version = {version})", self.locks)
    }

    async fn read(&self, names: &[Name], which: &str) -> Result<Loaded> {
        let State { locks, entries, watch, columns, .. } = self;
        let wanted: Vec<String> = names.iter().map(key).collect();
        let wanted = wanted.join(", ");
        let found = self
            .wire
            .run_one(&format!(
                "SELECT t.now, t.watchers, r.* FROM (SELECT {NOW} AS now, \
                   (SELECT GROUP_CONCAT(CONCAT(w.session, ':', w.wake)) FROM {watch} w WHERE w.until > {NOW}) AS watchers) t \
                 LEFT JOIN ( \
                   SELECT 1 AS head, name, version, last, permit_limit, line, rest, keep, {columns} FROM {locks} \
                     WHERE name IN ({wanted}) \
                   UNION ALL \
                   (SELECT 0, name, NULL, NULL, NULL, NULL, NULL, NULL, {columns} FROM {entries} \
                     WHERE name IN ({wanted}) {which}) \
                 ) r ON TRUE"
            ))
            .await?;
        let first = found.rows.first().ok_or_else(|| unreadable("the database told no time"))?;
        let now = number(first, 0)?.unsigned_abs();
        let watchers = watchers(&maybe_text(first, 1)?.unwrap_or_default());
        let mut locks: HashMap<String, (Option<Lock>, Vec<Row>)> = HashMap::new();
        for row in &found.rows {
            let Some(is_head) = maybe_number(row, 2)? else { continue };
            let lock = locks.entry(string(row, 3)?).or_default();
            if is_head == 1 {
                lock.0 = Some(head(row)?);
            }
            if is_head == 0 || has_front(row)? {
                lock.1.push(entry(row)?);
            }
        }
        // What somebody removed from outside is simply not there any more. Without its row, a lock starts anew.
        let whole = |(lock, rows): (Option<Lock>, Vec<Row>)| lock.map(|lock| Lock { rows, ..lock });
        let locks = names.iter().map(|name| locks.remove(name.as_str()).and_then(whole)).collect();
        Ok(Loaded { now, watchers, locks })
    }

    /// Runs statements as one transaction, in one text. The first outcome is that of the first statement.
    async fn together(&self, statements: &[String]) -> Result<Vec<Outcome>> {
        self.together_and_ring(statements, &[]).await
    }

    /// The same, and rings at those who have mail then. That is in the same text, so it is done when this returns.
    async fn together_and_ring(&self, statements: &[String], rings: &[String]) -> Result<Vec<Outcome>> {
        let mut text = format!("START TRANSACTION; {}; COMMIT", statements.join("; "));
        rings.iter().for_each(|ring| text.extend(["; ", ring]));
        let enough = statements.len() + 2;
        let mut outcomes = self.wire.send(Text::Plain { statements: text, enough }).await?;
        // One whose session is gone ended the text: the others are rung at one by one.
        let rung = outcomes.len().saturating_sub(enough);
        rings.iter().skip(rung + 1).for_each(|ring| self.wire.post(ring));
        outcomes.truncate(enough);
        outcomes.remove(0);
        Ok(outcomes)
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

    async fn save(&self, change: &Change) -> Result<bool> {
        let State { locks, entries, mail, columns, .. } = self;
        let name = key(&change.name);
        let done = self.done(&name, change.to);
        let Change { to, last, line, rest, keep, .. } = change;
        let limit = maybe(change.limit);
        let front = change.front.as_ref().map_or([const { Cell::Null }; COLUMNS.len()], Row::cells);
        let mut statements = vec![match change.from {
            None => format!(
                "INSERT IGNORE INTO {locks} (name, version, last, permit_limit, line, rest, keep, {columns}) \
                 VALUES ({name}, {to}, {last}, {limit}, {line}, {rest}, {keep}, {})",
                front.each_ref().map(sql::cell).join(", ")
            ),
            Some(from) => {
                let front: Vec<String> = COLUMNS
                    .iter()
                    .zip(&front)
                    .map(|((c, _), cell)| format!("{c} = {}", sql::cell(cell)))
                    .collect();
                format!(
                    "UPDATE {locks} SET version = {to}, last = {last}, permit_limit = {limit}, line = {line}, rest = {rest}, \
                     keep = {keep}, {} WHERE name = {name} AND version = {from}",
                    front.join(", ")
                )
            }
        }];
        if !change.gone.is_empty() {
            let gone: Vec<String> = change.gone.iter().map(|id| format!("'{id}'")).collect();
            statements.push(format!(
                "DELETE FROM {entries} WHERE name = {name} AND entry IN ({}) AND {done}",
                gone.join(", ")
            ));
        }
        if !change.put.is_empty() {
            let row = |row: &Row| {
                let cells = row.cells();
                let named =
                    cells.iter().zip(COLUMNS).map(|(cell, (c, _))| format!("{} AS {c}", sql::cell(cell)));
                format!("SELECT {name} AS name, {}", named.collect::<Vec<_>>().join(", "))
            };
            let rows: Vec<String> = change.put.iter().map(row).collect();
            statements.push(format!(
                "REPLACE INTO {entries} (name, {columns}) SELECT r.* FROM ({}) r WHERE {done}",
                rows.join(" UNION ALL ")
            ));
        }
        if !change.letters.is_empty() {
            let letter = |letter: &Letter| {
                format!("SELECT '{}' AS session, {} AS body", letter.to, text(&letter.text))
            };
            let letters: Vec<String> = change.letters.iter().map(letter).collect();
            statements.push(format!(
                "INSERT INTO {mail} (session, at, body) SELECT m.session, {NOW}, m.body FROM ({}) m WHERE {done}",
                letters.join(" UNION ALL ")
            ));
        }
        let saved = if let [one] = statements.as_slice() {
            self.wire.run_one(one).await?.changed
        } else {
            changed(&self.together_and_ring(&statements, &rings(&change.letters)).await?, 0)
        };
        Ok(saved > 0)
    }

    async fn step(&self, step: &Step) -> Result<Stepped> {
        loop {
            let Call { statement, values, plan } = self.statements.call(&self.usual, step)?;
            let outcome = self.wire.run_prepared(statement, values).await?;
            if let Some(stepped) = self.usual.came_of(step, &plan, told(&outcome))? {
                return Ok(stepped);
            }
        }
    }

    async fn steps(&self, steps: &[Step]) -> Result<Vec<Option<Stepped>>> {
        let call = |step| self.statements.call(&self.usual, step);
        let calls = steps.iter().map(call).collect::<Result<Vec<_>>>()?;
        let texts = calls.iter().map(|call| sql::written_out(&call.statement, &call.values));
        let outcomes = self.together(&texts.collect::<Vec<String>>()).await?;
        let each = steps.iter().zip(&calls).zip(&outcomes);
        each.map(|((step, call), outcome)| self.usual.came_of(step, &call.plan, told(outcome))).collect()
    }

    fn lanes(&self) -> usize {
        self.wire.config().options.pool
    }

    async fn append(&self, name: &Name, row: &Row) -> Result<Option<Waiting>> {
        let State { locks, entries, columns, retention, .. } = self;
        let (name, to) = (key(name), fresh_version()?);
        let place = micros(row.entry.place);
        // A request that comes late may find its own entry at the front: it must not wait for itself.
        let id = row.entry.id;
        let cells = row.cells();
        let cells = cells.iter().zip(COLUMNS).map(|(cell, (column, _))| match column {
            "since" => NOW.to_owned(),
            "ends" => format!("{NOW} + {place}"),
            "seq" => "l.line".to_owned(),
            _ => sql::cell(cell),
        });
        let cells = cells.collect::<Vec<_>>().join(", ");
        let outcomes = self
            .together(&[
                format!(
                    "UPDATE {locks} SET version = {to}, line = line + 1, rest = rest + 1, \
                     keep = GREATEST(keep, {NOW} + {place} + {retention}) \
                     WHERE name = {name} AND {HELD_ALONE} AND ends > {NOW} AND entry <> '{id}' AND {}",
                    self.unwatched()
                ),
                format!(
                    "INSERT INTO {entries} (name, {columns}) SELECT l.name, {cells} FROM {locks} l \
                     WHERE l.name = {name} AND l.version = {to}"
                ),
                format!(
                    "SELECT l.ends - {NOW}, (SELECT COUNT(*) - 1 FROM {entries} e WHERE e.name = {name} AND e.state = 'waits') \
                     FROM {locks} l WHERE l.name = {name} AND l.version = {to}"
                ),
            ])
            .await?;
        found(&outcomes, 2).map(|row| Ok(waiting(number(row, 0)?, number(row, 1)?))).transpose()
    }

    async fn stay(&self, name: &Name, id: EntryId) -> Result<Option<Waiting>> {
        let State { locks, entries, retention, .. } = self;
        let (name, to) = (key(name), fresh_version()?);
        let done = self.done(&name, to);
        let outcomes = self
            .together(&[
                format!(
                    "UPDATE {locks} SET version = {to} WHERE name = {name} AND {HELD_ALONE} AND ends > {NOW} \
                     AND keep >= {NOW} + {retention}"
                ),
                format!(
                    "UPDATE {entries} SET ends = {NOW} + place WHERE name = {name} AND entry = '{id}' AND state = 'waits' \
                     AND ends > {NOW} AND {done}"
                ),
                format!(
                    "SELECT l.ends - {NOW}, (SELECT COUNT(*) FROM {entries} e WHERE e.name = {name} AND e.state = 'waits' \
                       AND e.seq < m.seq) \
                     FROM {locks} l JOIN {entries} m ON m.name = l.name AND m.entry = '{id}' \
                     WHERE l.name = {name} AND l.version = {to}"
                ),
            ])
            .await?;
        if changed(&outcomes, 1) == 0 {
            return Ok(None);
        }
        found(&outcomes, 2).map(|row| Ok(waiting(number(row, 0)?, number(row, 1)?))).transpose()
    }

    async fn withdraw(&self, name: &Name, id: EntryId) -> Result<bool> {
        let State { locks, entries, .. } = self;
        let (name, to) = (key(name), fresh_version()?);
        let done = self.done(&name, to);
        let outcomes = self
            .together(&[
                format!(
                    "UPDATE {locks} SET version = {to} WHERE name = {name} AND {HELD_ALONE} AND ends > {NOW} AND {}",
                    self.unwatched()
                ),
                format!(
                    "DELETE FROM {entries} WHERE name = {name} AND entry = '{id}' AND state = 'waits' AND want <> 'permits' \
                     AND ends > {NOW} AND {done}"
                ),
                // As many as the statement before removed: one or none.
                format!("UPDATE {locks} SET rest = rest - ROW_COUNT() WHERE name = {name} AND version = {to}"),
            ])
            .await?;
        Ok(changed(&outcomes, 1) > 0)
    }

    async fn keep(&self, lines: &[(Name, EntryId)], wake: &str) -> Result<Vec<Option<Kept>>> {
        let (State { locks, retention, .. }, wake) = (self, text(wake));
        self.usual.renews(lines);
        // Everybody locks rows in the same order.
        let mut sorted: Vec<&(Name, EntryId)> = lines.iter().collect();
        sorted.sort();
        let mut statements: Vec<String> = sorted
            .iter()
            .map(|(name, id)| {
                format!(
                    "UPDATE {locks} SET ends = {NOW} + lease, keep = {NOW} + lease + {retention}, version = version + 1, wake = {wake} \
                     WHERE name = {} AND entry = '{id}' AND rest = 0 AND state = 'holds' AND lease_kind = 'kept' \
                     AND started = 1 AND ends > {NOW}",
                    key(name)
                )
            })
            .collect();
        let names: Vec<String> = lines.iter().map(|(name, _)| key(name)).collect();
        let (first, end) = block();
        statements.push(format!(
            "SELECT entry, lease, {first}, {end}, asked FROM {locks} WHERE name IN ({}) AND entry IS NOT NULL",
            names.join(", ")
        ));
        let outcomes = self.together(&statements).await?;
        let mut held = HashMap::new();
        for row in outcomes.get(lines.len()).map_or(&[][..], |outcome| &outcome.rows) {
            // What another holder's row says is not asked for.
            if let (Ok(id), Ok(kept)) = (string(row, 0), kept(row)) {
                held.insert(id, kept);
            }
        }
        let kept: HashMap<EntryId, Kept> = sorted
            .iter()
            .enumerate()
            .filter(|(at, _)| changed(&outcomes, *at) > 0)
            .filter_map(|(_, (_, id))| Some((*id, *held.get(&id.to_string())?)))
            .collect();
        Ok(lines.iter().map(|(_, id)| kept.get(id).copied()).collect())
    }

    async fn names(&self, prefix: &str, after: Option<&Name>, most: usize) -> Result<Vec<Name>> {
        let (len, prefix) = (prefix.len(), bytes(prefix.as_bytes()));
        let found = self
            .wire
            .run_one(&format!(
                "SELECT name FROM {} WHERE (entry IS NOT NULL AND state <> '{FREED}' OR rest > 0) AND name >= {prefix} AND LEFT(name, {len}) = {prefix} \
                 AND name > {} ORDER BY name LIMIT {most}",
                self.locks,
                after.map_or_else(|| "''".to_owned(), key)
            ))
            .await?;
        found.rows.iter().map(|row| Name::new(string(row, 0)?)).collect()
    }

    async fn mail(&self, session: SessionId) -> Result<Vec<String>> {
        let mut mailbox = self.mailbox.open().await;
        let found = self.wire.run_one(&mailbox::look(&self.mail, session)).await?;
        let letters = mailbox.new_ones(&found)?;
        if let Some(removal) = mailbox.removal(&self.mail, session) {
            self.wire.run_one(&removal).await?;
        }
        Ok(letters)
    }

    async fn watch(&self, session: SessionId, wake: &str, span: Duration) -> Result<()> {
        let statement = format!(
            "INSERT INTO {} (session, wake, until) VALUES ('{session}', {}, {NOW} + {}) \
             ON DUPLICATE KEY UPDATE wake = VALUES(wake), until = VALUES(until)",
            self.watch,
            text(wake),
            micros(span)
        );
        self.wire.run_one(&statement).await.map(drop)
    }

    async fn sweep(&self) -> Result<()> {
        let State { locks, entries, mail, watch, retention, .. } = self;
        for statement in [
            format!(
                "DELETE l, e FROM {locks} l LEFT JOIN {entries} e ON e.name = l.name WHERE {}",
                may_go(*retention, NOW)
            ),
            format!("DELETE FROM {mail} WHERE at < {NOW} - {retention}"),
            format!("DELETE FROM {watch} WHERE until < {NOW} - {retention}"),
        ] {
            self.wire.run_one(&statement).await?;
        }
        Ok(())
    }

    fn listen(&self, session: SessionId, ears: Arc<Ears>) -> Arc<dyn Bell> {
        Arc::new(Doorbell::begin(self.wire.clone(), session, ears, self.mailbox.clone()))
    }

    async fn close(&self) {
        self.wire.close().await;
    }
}

/// The statements that ring at those who get letters, at each once.
fn rings(letters: &[Letter]) -> Vec<String> {
    let mut rings: Vec<String> =
        letters.iter().filter_map(|letter| Some(ring(letter.to, bell_of(&letter.wake)?))).collect();
    rings.sort_unstable();
    rings.dedup();
    rings
}

/// A name, as a statement has it.
fn key(name: &Name) -> String {
    bytes(name.as_str().as_bytes())
}

/// What one of the usual statements did.
fn told(outcome: &Outcome) -> usual::Outcome {
    usual::Outcome { changed: outcome.changed, told: Some(outcome.id) }
}

fn changed(outcomes: &[Outcome], at: usize) -> u64 {
    outcomes.get(at).map_or(0, |outcome| outcome.changed)
}

fn found(outcomes: &[Outcome], at: usize) -> Option<&[Value]> {
    outcomes.get(at)?.rows.first().map(Vec::as_slice)
}

fn kept(row: &[Value]) -> Result<Kept> {
    Kept::read(number(row, 1)?, number(row, 2)?, number(row, 3)?, number(row, 4)?)
}

/// Whether somebody is at the front of the queue.
fn has_front(row: &[Value]) -> Result<bool> {
    let state = COLUMNS.iter().position(|(column, _)| *column == "state").unwrap_or_default();
    Ok(maybe_text(row, HEAD)?.is_some() && maybe_text(row, HEAD + state)?.as_deref() != Some(FREED))
}

/// What the row of a lock says besides its front.
fn head(row: &[Value]) -> Result<Lock> {
    let limit = maybe_number(row, 6)?.and_then(|limit| limit.try_into().ok());
    let (version, last) = (number(row, 4)?, number(row, 5)?.unsigned_abs());
    let (line, rest, keep) = (number(row, 7)?, number(row, 8)?, number(row, 9)?);
    Ok(Lock { version, last, limit, line, rest, keep, rows: Vec::new() })
}

fn entry(row: &[Value]) -> Result<Row> {
    let cells = COLUMNS.iter().enumerate().map(|(at, (_, sort))| {
        Ok(match sort {
            Sort::Text(_) => maybe_text(row, HEAD + at)?.map_or(Cell::Null, |text| Cell::Text(text.into())),
            Sort::Number => maybe_number(row, HEAD + at)?.map_or(Cell::Null, Cell::Number),
        })
    });
    Row::read(cells.collect::<Result<_>>()?)
}
