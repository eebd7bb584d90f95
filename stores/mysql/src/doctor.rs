//! What the store can find out about its database.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::clock::wall_micros;
use leasehold_core::doctor::{Finding, Grade, time};

use crate::config::Config;
use crate::sql::{maybe_text, number};
use crate::state::NOW;
use crate::wake::hears;
use crate::wire::Wire;

/// A clock that is further off than this is worth a word: tokens come from it.
const CLOCK_OFF: Duration = Duration::from_secs(2);

/// The settings and counters that are looked at. A server has some of them.
const NAMES: &str = "'version', 'read_only', 'super_read_only', 'innodb_flush_log_at_trx_commit', 'innodb_read_only', 'wsrep_on', \
                     'group_replication_group_name', 'binlog_format', 'log_bin', 'wsrep_cluster_size', 'innodb_deadlocks'";

/// What was seen.
#[derive(Debug, Clone, Default)]
struct Facts {
    /// Settings and counters, by their names in small letters.
    said: HashMap<String, String>,
    /// The engine of the tables, if they are there.
    engine: Option<String>,
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
    let middle = before + (wall_micros() - before) / 2;
    let now = told.rows.first().map_or(Ok(0), |row| number(row, 0))?;
    facts.clock_off = Duration::from_micros(now.unsigned_abs().abs_diff(middle));
    for of in ["VARIABLES", "STATUS"] {
        let shown = wire.run_one(&format!("SHOW GLOBAL {of} WHERE Variable_name IN ({NAMES})")).await?;
        for row in &shown.rows {
            if let (Some(name), Some(value)) = (maybe_text(row, 0)?, maybe_text(row, 1)?) {
                facts.said.insert(name.to_lowercase(), value);
            }
        }
    }
    let table = wire.config().table("locks");
    let found = wire
        .run_one(&format!(
            "SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{table}'"
        ))
        .await?;
    facts.engine = found.rows.first().and_then(|row| maybe_text(row, 0).ok()).flatten();
    facts.rings = hears(wire).await;
    Ok(facts)
}

fn grade(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |good: bool, bad: Grade, check, what: String, why: &str, fix: &str| {
        let finding = Finding::new(if good { Grade::Good } else { bad }, check, what, why);
        found.push(if good { finding } else { finding.fix(fix) });
    };
    let read_only = ["read_only", "super_read_only", "innodb_read_only"].iter().any(|name| facts.on(name));
    say(
        !read_only,
        Grade::Danger,
        "writable",
        if read_only { "can only be read: a replica?" } else { "can be written" }.to_owned(),
        "a lock is a row that is written",
        "connect to the primary",
    );
    let flush = facts.text("innodb_flush_log_at_trx_commit");
    say(
        flush == "1",
        Grade::Warning,
        "durability",
        format!("innodb_flush_log_at_trx_commit is {flush}"),
        "a crash can lose the newest grants, and a second holder gets in (its token is higher)",
        "set innodb_flush_log_at_trx_commit = 1",
    );
    say(
        !facts.on("wsrep_on") && !facts.on("group_replication_group_name"),
        Grade::Warning,
        "replication",
        if facts.on("wsrep_on") {
            "a Galera cluster"
        } else if facts.on("group_replication_group_name") {
            "group replication"
        } else {
            "no multi-primary replication"
        }
        .to_owned(),
        "rows are locked on one node only, a commit can be refused late, and a doorbell is heard only on its own node",
        "let all clients of a lock use the same node",
    );
    let statement = facts.on("log_bin") && facts.text("binlog_format").eq_ignore_ascii_case("statement");
    say(
        !statement,
        Grade::Danger,
        "binary log",
        format!("binlog_format is {}", facts.text("binlog_format")),
        "READ COMMITTED can't be logged as statements: every write would be refused",
        "set binlog_format = ROW",
    );
    say(
        facts.rings,
        Grade::Warning,
        "wake-up",
        if facts.rings {
            "KILL QUERY wakes"
        } else {
            "KILL QUERY wakes nobody: a proxy stands in between, or the user may not"
        }
        .to_owned(),
        "without it, clients look for letters every 10 to 100 ms while they wait",
        "connect past the proxy",
    );
    say(
        facts.clock_off <= CLOCK_OFF,
        Grade::Warning,
        "clock",
        format!("the database's clock is {} from ours", time(facts.clock_off)),
        "tokens start from it: if it goes back by more than a day, they may too",
        "let both follow a time server",
    );
    let engine = facts.engine.as_deref();
    say(
        engine.is_none_or(|engine| engine.eq_ignore_ascii_case("innodb")),
        Grade::Danger,
        "engine",
        engine.map_or_else(
            || "there are no tables yet".to_owned(),
            |engine| format!("the tables are {engine}"),
        ),
        "only InnoDB has transactions and locks of rows",
        "ALTER TABLE … ENGINE=InnoDB while nobody uses the locks",
    );
    found.push(Finding::new(
        Grade::Good,
        "server",
        format!(
            "version {}, {} deadlocks since it started",
            facts.text("version"),
            facts.text("innodb_deadlocks")
        ),
        "deadlocks of lock statements are tried again",
    ));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(said: &[(&str, &str)], change: impl FnOnce(&mut Facts)) -> (Grade, &'static str) {
        let usual = [("innodb_flush_log_at_trx_commit", "1"), ("read_only", "OFF"), ("wsrep_on", "OFF")];
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
        assert_eq!(worst(&[], |f| f.engine = Some("Aria".to_owned())), (Grade::Danger, "engine"));
    }
}
