//! What the store can find out about its database.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::wall_micros;
use leasehold_core::doctor::{Finding, Grade};
use leasehold_core::{Kind, Result};
use leasehold_sql::doctor::{Findings, TABLES, Table, clock_off};

use crate::config::Config;
use crate::sql::{maybe_text, number};
use crate::state::NOW;
use crate::wake::hears;
use crate::wire::Wire;

/// The settings and counters that are looked at. A server has some of them.
const NAMES: &str = "'version', 'read_only', 'super_read_only', 'innodb_flush_log_at_trx_commit', 'innodb_read_only', 'wsrep_on', \
                     'group_replication_group_name', 'binlog_format', 'log_bin', 'wsrep_cluster_size', 'innodb_deadlocks'";

/// What was seen.
#[derive(Debug, Clone, Default)]
struct Facts {
    /// Settings and counters, by their names in small letters.
    said: HashMap<String, String>,
    /// Which table has which engine.
    engines: Vec<(String, String)>,
    tables: Vec<Table>,
    rings: bool,
    clock_off: Duration,
}

impl Facts {
    fn on(&self, name: &str) -> bool {
        self.said
            .get(name)
            .is_some_and(|value| !["", "0", "OFF", "NO"].contains(&value.to_uppercase().as_str()))
    }

    fn text(&self, name: &str) -> &str {
        self.said.get(name).map_or("unknown", String::as_str)
    }
}

/// Looks at the database, and changes nothing.
pub(crate) async fn examine(config: Arc<Config>) -> Result<Vec<Finding>> {
    let wire = Wire::new(config);
    let facts = collect(&wire).await;
    wire.close().await;
    Ok(grade(&facts?))
}

async fn collect(wire: &Arc<Wire>) -> Result<Facts> {
    let mut facts = Facts::default();
    let before = wall_micros();
    let told = wire.run_one(&format!("SELECT {NOW}")).await?;
    facts.clock_off = clock_off(before, told.rows.first().map_or(Ok(0), |row| number(row, 0))?);
    for of in ["VARIABLES", "STATUS"] {
        let shown = wire.run_one(&format!("SHOW GLOBAL {of} WHERE Variable_name IN ({NAMES})")).await?;
        for row in &shown.rows {
            if let (Some(name), Some(value)) = (maybe_text(row, 0)?, maybe_text(row, 1)?) {
                facts.said.insert(name.to_lowercase(), value);
            }
        }
    }
    // The name differs from server to server, and some have both.
    let level = "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')";
    if let Some(row) = wire.run_one(level).await?.rows.first() {
        facts.said.insert("isolation".to_owned(), maybe_text(row, 1)?.unwrap_or_default());
    }
    facts.engines = engines(wire).await?;
    facts.tables = tables(wire, &facts.engines).await?;
    facts.rings = hears(wire).await;
    Ok(facts)
}

/// Which of the tables are there, and what engine each has.
async fn engines(wire: &Wire) -> Result<Vec<(String, String)>> {
    let names = TABLES.map(|name| format!("'{}'", wire.config().table(name))).join(", ");
    let found = wire
        .run_one(&format!(
            "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ({names})"
        ))
        .await?;
    let engine =
        |row: &Vec<_>| Ok((maybe_text(row, 0)?.unwrap_or_default(), maybe_text(row, 1)?.unwrap_or_default()));
    found.rows.iter().map(engine).collect()
}

/// The tables, their keys, and what the user may do with them.
async fn tables(wire: &Wire, engines: &[(String, String)]) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for short in TABLES {
        let name = wire.config().table(short);
        let mut table = Table { there: engines.iter().any(|(there, _)| *there == name), ..Table::default() };
        if table.there {
            let shown = wire
                .run_one(&format!(
                    "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = DATABASE() \
                     AND table_name = '{name}'"
                ))
                .await?;
            let keys: Vec<String> =
                shown.rows.iter().filter_map(|row| maybe_text(row, 0).ok().flatten()).collect();
            let has = |key: &str| keys.iter().any(|there| there.eq_ignore_ascii_case(key));
            table.no_primary_key = !has("PRIMARY");
            let wanted = [("entries", "line"), ("mail", "session")]
                .into_iter()
                .filter(|(of, key)| *of == short && !has(key));
            table.missing_keys = wanted.map(|(_, key)| format!("{name}.{key}")).collect();
            table.missing_rights = match short {
                "locks" => denied(wire, &name, "version").await?,
                "entries" => denied(wire, &name, "seq").await?,
                "mail" => denied(wire, &name, "at").await?,
                "watch" => denied(wire, &name, "until").await?,
                // Nobody but the one who creates the tables writes their version.
                _ => Vec::new(),
            };
        }
        table.name = name;
        tables.push(table);
    }
    Ok(tables)
}

/// What the user may not do with a table. To have a statement explained needs the same rights as to run it.
async fn denied(wire: &Wire, table: &str, column: &str) -> Result<Vec<String>> {
    let mut denied = Vec::new();
    for (right, statement) in [
        ("SELECT", format!("SELECT {column} FROM {table}")),
        ("INSERT", format!("INSERT INTO {table} ({column}) VALUES (1)")),
        ("UPDATE", format!("UPDATE {table} SET {column} = 1")),
        ("DELETE", format!("DELETE FROM {table}")),
    ] {
        match wire.run_one(&format!("EXPLAIN {statement}")).await {
            Err(error) if error.kind() == Kind::Refused => denied.push(right.to_owned()),
            // What else is wrong with it is not a matter of rights.
            _ => {}
        }
    }
    Ok(denied)
}

fn grade(facts: &Facts) -> Vec<Finding> {
    let mut found = Findings::default();
    let read_only = ["read_only", "super_read_only", "innodb_read_only"].iter().any(|name| facts.on(name));
    found.say(
        !read_only,
        Grade::Danger,
        "writable",
        if read_only { "can only be read: a replica?" } else { "can be written" },
        "a lock is a row that is written",
        "connect to the primary",
    );
    let flush = facts.text("innodb_flush_log_at_trx_commit");
    found.say(
        flush == "1",
        Grade::Warning,
        "durability",
        format!("innodb_flush_log_at_trx_commit is {flush}"),
        "a crash can lose the newest grants, and a second holder gets in (its token is higher)",
        "set innodb_flush_log_at_trx_commit = 1",
    );
    found.say(
        !facts.on("wsrep_on") && !facts.on("group_replication_group_name"),
        Grade::Warning,
        "replication",
        if facts.on("wsrep_on") {
            "a Galera cluster"
        } else if facts.on("group_replication_group_name") {
            "group replication"
        } else {
            "no multi-primary replication"
        },
        "rows are locked on one node only, a commit can be refused late, and a doorbell is heard only on its own node",
        "let all clients of a lock use the same node",
    );
    let statement = facts.on("log_bin") && facts.text("binlog_format").eq_ignore_ascii_case("statement");
    found.say(
        !statement,
        Grade::Danger,
        "binary log",
        format!("binlog_format is {}", facts.text("binlog_format")),
        "READ COMMITTED can't be logged as statements: every write would be refused",
        "set binlog_format = ROW",
    );
    found.say(
        facts.rings,
        Grade::Warning,
        "wake-up",
        if facts.rings {
            "KILL QUERY wakes"
        } else {
            "KILL QUERY wakes nobody: a proxy stands in between, or the user may not"
        },
        "without it, clients look for letters every 10 to 100 ms while they wait",
        "connect past the proxy",
    );
    found.clock(facts.clock_off);
    let isolation = facts.text("isolation");
    found.say(
        isolation == "READ-COMMITTED",
        Grade::Danger,
        "isolation",
        format!("our connections are {isolation}"),
        "each of them asks for READ COMMITTED when it begins; another level locks gaps, and different locks deadlock",
        "let the proxy in between pass on what a connection sets",
    );
    let other: Vec<String> = facts
        .engines
        .iter()
        .filter(|(_, engine)| !engine.eq_ignore_ascii_case("innodb"))
        .map(|(table, engine)| format!("{table} is {engine}"))
        .collect();
    found.say(
        other.is_empty(),
        Grade::Danger,
        "engine",
        if other.is_empty() { "InnoDB".to_owned() } else { other.join(", ") },
        "only InnoDB has transactions and locks of rows",
        "ALTER TABLE … ENGINE=InnoDB while nobody uses the locks",
    );
    found.tables(&facts.tables, "mysql");
    let version = facts.text("version");
    found.say(
        new_enough(version),
        Grade::Danger,
        "version",
        version,
        "the statements need MySQL 8.0 or MariaDB 10.6, or newer",
        "upgrade the server",
    );
    let counted = facts.said.get("innodb_deadlocks");
    found.say(
        true,
        Grade::Good,
        "deadlocks",
        counted.map_or_else(
            || "this server does not count deadlocks".to_owned(),
            |count| format!("{count} deadlocks since the server started"),
        ),
        "those of lock statements are tried again",
        "",
    );
    found.list()
}

/// Whether this is a version that the statements work on. One that can't be read is given the benefit of the doubt.
fn new_enough(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let oldest = if version.to_lowercase().contains("mariadb") { (10, 6) } else { (8, 0) };
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) >= oldest,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(said: &[(&str, &str)], change: impl FnOnce(&mut Facts)) -> (Grade, &'static str) {
        let usual = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("read_only", "OFF"),
            ("wsrep_on", "OFF"),
            ("isolation", "READ-COMMITTED"),
        ];
        let said = usual.iter().chain(said).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut facts = Facts { said: said.collect(), rings: true, ..Facts::default() };
        change(&mut facts);
        let found = grade(&facts);
        found
            .iter()
            .max_by_key(|finding| finding.grade)
            .map(|finding| (finding.grade, finding.check))
            .unwrap()
    }

    #[test]
    fn every_fact_that_matters_is_found() {
        assert_eq!(worst(&[], |_| {}).0, Grade::Good);
        assert_eq!(worst(&[("read_only", "ON")], |_| {}), (Grade::Danger, "writable"));
        assert_eq!(worst(&[("innodb_flush_log_at_trx_commit", "2")], |_| {}), (Grade::Warning, "durability"));
        assert_eq!(worst(&[("wsrep_on", "ON")], |_| {}), (Grade::Warning, "replication"));
        assert_eq!(
            worst(&[("log_bin", "ON"), ("binlog_format", "STATEMENT")], |_| {}),
            (Grade::Danger, "binary log")
        );
        assert_eq!(worst(&[], |f| f.rings = false), (Grade::Warning, "wake-up"));
        assert_eq!(worst(&[], |f| f.clock_off = Duration::from_secs(9)), (Grade::Warning, "clock"));
        assert_eq!(
            worst(&[], |f| f.engines.push(("locks".to_owned(), "Aria".to_owned()))),
            (Grade::Danger, "engine")
        );
        assert_eq!(
            worst(&[("group_replication_group_name", "ab-cd")], |_| {}),
            (Grade::Warning, "replication")
        );
        assert_eq!(worst(&[("isolation", "REPEATABLE-READ")], |_| {}), (Grade::Danger, "isolation"));
        assert_eq!(worst(&[("version", "10.5.9-MariaDB-log")], |_| {}), (Grade::Danger, "version"));
        assert_eq!(worst(&[("version", "5.7.44")], |_| {}), (Grade::Danger, "version"));
        for fine in ["10.11.6-MariaDB-0+deb12u1", "11.4.2-MariaDB", "8.0.36", "9.1.0", "?"] {
            assert_eq!(worst(&[("version", fine)], |_| {}).0, Grade::Good, "{fine}");
        }
    }
}
