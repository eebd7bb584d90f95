//! What the store can find out about its database.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::clock::wall_micros;
use leasehold_core::doctor::{Finding, Grade};
use leasehold_sql::doctor::{Findings, TABLES, Table, clock_off};

use crate::config::Config;
use crate::sql::{Values, maybe_text};
use crate::wake::hears;
use crate::wire::Wire;

/// The oldest version that is tested for.
const OLDEST: i64 = 120_000;

/// What was seen.
#[derive(Debug, Clone)]
struct Facts {
    version: i64,
    standby: bool,
    read_only: bool,
    fsync: bool,
    waits_for_disk: bool,
    standbys: i64,
    waits_for_standbys: bool,
    isolation: String,
    deadlocks: i64,
    tables: Vec<Table>,
    listens: bool,
    clock_off: Duration,
}

/// Looks at the database, and changes nothing.
pub(crate) async fn examine(config: Arc<Config>) -> Result<Vec<Finding>> {
    let wire = Wire::new(config)?;
    let facts = collect(&wire).await;
    wire.close().await;
    Ok(grade(&facts?))
}

async fn collect(wire: &Arc<Wire>) -> Result<Facts> {
    let before = wall_micros();
    let rows = wire
        .run(
            "SELECT current_setting('server_version_num'), pg_is_in_recovery()::text, \
                 current_setting('transaction_read_only'), current_setting('fsync'), current_setting('synchronous_commit'), \
                 (SELECT count(*) FROM pg_stat_replication)::text, current_setting('default_transaction_isolation'), \
                 coalesce((SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()), 0)::text, \
                 (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text, \
                 current_setting('synchronous_standby_names')",
            &Values::default(),
        )
        .await?;
    let text = |at: usize| {
        let found = rows.first().and_then(|row| row.try_get(at).ok()).flatten();
        found.unwrap_or_default().to_owned()
    };
    let number = |at| text(at).parse::<i64>().unwrap_or(0);
    Ok(Facts {
        version: number(0),
        standby: text(1) == "true",
        read_only: text(2) == "on",
        fsync: text(3) == "on",
        waits_for_disk: text(4) != "off",
        standbys: number(5),
        waits_for_standbys: !text(9).is_empty(),
        isolation: text(6),
        deadlocks: number(7),
        clock_off: clock_off(before, number(8)),
        tables: tables(wire).await?,
        listens: hears(wire).await.unwrap_or(false),
    })
}

/// The tables, their keys, and what the user may do with them.
async fn tables(wire: &Wire) -> Result<Vec<Table>> {
    let config = wire.config();
    let mut tables = Vec::new();
    for name in TABLES {
        let key = match name {
            "entries" => "entries_line",
            "mail" => "mail_session",
            _ => "",
        };
        let mut values = Values::default();
        let whole = config.table(name);
        let (table, index) = (values.text(whole.clone()), values.text(config.table(key)));
        let rows = wire
            .run(
                &format!(
                    "SELECT r.id IS NOT NULL, \
                     NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = r.id AND i.indisprimary AND i.indisvalid), \
                     to_regclass({index}) IS NULL, \
                     (SELECT string_agg(w.what, ',') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) w(what) \
                       WHERE NOT has_table_privilege(r.id, w.what)) \
                     FROM (SELECT to_regclass({table})::oid AS id) r"
                ),
                &values,
            )
            .await?;
        let text = |at: usize| rows.first().and_then(|row| maybe_text(row, at).ok().flatten());
        let flag = |at| text(at) == Some("t");
        let there = flag(0);
        let denied = text(3).map(|all| all.split(',').map(str::to_owned).collect()).unwrap_or_default();
        tables.push(Table {
            name: whole,
            there,
            no_primary_key: there && flag(1),
            missing_keys: if there && !key.is_empty() && flag(2) {
                vec![config.table(key)]
            } else {
                Vec::new()
            },
            // Nobody but the one who creates the tables writes their version.
            missing_rights: if there && name != "schema" { denied } else { Vec::new() },
        });
    }
    Ok(tables)
}

fn grade(facts: &Facts) -> Vec<Finding> {
    let mut found = Findings::default();
    let (major, minor) = (facts.version / 10_000, facts.version % 10_000);
    found.say(
        facts.version >= OLDEST,
        Grade::Danger,
        "version",
        format!("PostgreSQL {major}.{minor}"),
        "the statements need PostgreSQL 12 or newer",
        "upgrade the server",
    );
    found.say(
        !facts.standby && !facts.read_only,
        Grade::Danger,
        "writable",
        if facts.standby {
            "a standby, which can only be read"
        } else if facts.read_only {
            "can only be read"
        } else {
            "can be written"
        },
        "a lock is a row that is written",
        "connect to the primary, or name all hosts and add target_session_attrs=read-write",
    );
    found.say(
        facts.fsync,
        Grade::Danger,
        "fsync",
        format!("fsync is {}", if facts.fsync { "on" } else { "off" }),
        "without it a crash of the machine can lose or damage the tables",
        "set fsync = on",
    );
    found.say(
        facts.waits_for_disk,
        Grade::Warning,
        "synchronous commit",
        format!("synchronous_commit is {}", if facts.waits_for_disk { "on" } else { "off" }),
        "a crash can lose the newest grants, and a second holder gets in (its token is higher)",
        "ALTER ROLE … SET synchronous_commit = on for the user of the locks",
    );
    found.say(
        facts.standbys == 0 || facts.waits_for_standbys,
        Grade::Note,
        "standbys",
        match (facts.standbys, facts.waits_for_standbys) {
            (0, _) => "no standbys".to_owned(),
            (count, true) => format!("{count} standbys; commits wait for them"),
            (count, false) => format!("{count} standbys; no commit waits for them"),
        },
        "one that takes over without the newest commits gives held locks away",
        "set synchronous_standby_names, and use fencing in any case",
    );
    found.say(
        facts.isolation == "read committed",
        Grade::Note,
        "isolation",
        format!("default isolation is {}", facts.isolation),
        "a stricter level makes the database roll statements back, which are then tried again",
        "ALTER ROLE … SET default_transaction_isolation = 'read committed' for the user of the locks",
    );
    // Nobody can listen on a standby, and nobody needs to.
    if !facts.standby {
        found.say(
            facts.listens,
            Grade::Warning,
            "wake-up",
            if facts.listens {
                "LISTEN hears"
            } else {
                "LISTEN hears nothing: a pooler in transaction mode stands in between"
            },
            "without it, clients look for letters every 10 to 100 ms while they wait",
            "connect past the pooler, or use its session mode for the locks",
        );
    }
    found.clock(facts.clock_off);
    found.tables(&facts.tables, "postgres");
    found.say(
        true,
        Grade::Good,
        "deadlocks",
        format!("{} deadlocks in this database since its statistics began", facts.deadlocks),
        "those of lock statements are tried again",
        "",
    );
    found.list()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Facts = Facts {
        version: 150_004,
        standby: false,
        read_only: false,
        fsync: true,
        waits_for_disk: true,
        standbys: 0,
        waits_for_standbys: false,
        isolation: String::new(),
        deadlocks: 3,
        tables: Vec::new(),
        listens: true,
        clock_off: Duration::from_millis(3),
    };

    fn worst(change: impl FnOnce(&mut Facts)) -> (Grade, &'static str) {
        let mut facts = Facts { isolation: "read committed".to_owned(), ..FINE };
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
        assert_eq!(worst(|_| {}).0, Grade::Good);
        assert_eq!(worst(|f| f.version = 110_000), (Grade::Danger, "version"));
        assert_eq!(worst(|f| f.standby = true), (Grade::Danger, "writable"));
        assert_eq!(worst(|f| f.read_only = true), (Grade::Danger, "writable"));
        assert_eq!(worst(|f| f.fsync = false), (Grade::Danger, "fsync"));
        assert_eq!(worst(|f| f.waits_for_disk = false), (Grade::Warning, "synchronous commit"));
        assert_eq!(worst(|f| f.listens = false), (Grade::Warning, "wake-up"));
        assert_eq!(worst(|f| f.clock_off = Duration::from_secs(60)), (Grade::Warning, "clock"));
        assert_eq!(worst(|f| f.standbys = 1), (Grade::Note, "standbys"));
        assert_eq!(worst(|f| (f.standbys, f.waits_for_standbys) = (1, true)).0, Grade::Good);
        assert_eq!(worst(|f| f.isolation = "serializable".to_owned()), (Grade::Note, "isolation"));
        assert_eq!(worst(|f| f.tables = vec![Table::default()]), (Grade::Note, "tables"));
    }
}
