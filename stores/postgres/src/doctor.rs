//! What the store can find out about its database.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::clock::wall_micros;
use leasehold_core::doctor::{Finding, Grade, time};

use crate::config::Config;
use crate::sql::Values;
use crate::wake::hears;
use crate::wire::Wire;

/// A clock that is further off than this is worth a word: tokens come from it.
const CLOCK_OFF: Duration = Duration::from_secs(2);

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
    isolation: String,
    deadlocks: i64,
    tables: bool,
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
    let mut values = Values::default();
    let table = values.text(wire.config().table("locks"));
    let before = wall_micros();
    let rows = wire
        .run(
            &format!(
                "SELECT current_setting('server_version_num'), pg_is_in_recovery()::text, \
                 current_setting('transaction_read_only'), current_setting('fsync'), current_setting('synchronous_commit'), \
                 (SELECT count(*) FROM pg_stat_replication)::text, current_setting('default_transaction_isolation'), \
                 coalesce((SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()), 0)::text, \
                 (to_regclass({table}) IS NOT NULL)::text, \
                 (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text"
            ),
            &values,
        )
        .await?;
    let middle = before + (wall_micros() - before) / 2;
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
        isolation: text(6),
        deadlocks: number(7),
        tables: text(8) == "true",
        listens: hears(wire).await.unwrap_or(false),
        clock_off: Duration::from_micros(number(9).unsigned_abs().abs_diff(middle)),
    })
}

fn grade(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |good: bool, bad: Grade, check, what: String, why: &str, fix: &str| {
        let finding = Finding::new(if good { Grade::Good } else { bad }, check, what, why);
        found.push(if good { finding } else { finding.fix(fix) });
    };
    let (major, minor) = (facts.version / 10_000, facts.version % 10_000);
    say(
        facts.version >= OLDEST,
        Grade::Danger,
        "version",
        format!("PostgreSQL {major}.{minor}"),
        "the statements need PostgreSQL 12 or newer",
        "upgrade the server",
    );
    say(
        !facts.standby && !facts.read_only,
        Grade::Danger,
        "writable",
        if facts.standby {
            "a standby, which can only be read"
        } else if facts.read_only {
            "can only be read"
        } else {
            "can be written"
        }
        .to_owned(),
        "a lock is a row that is written",
        "connect to the primary, or name all hosts and add target_session_attrs=read-write",
    );
    say(
        facts.fsync,
        Grade::Danger,
        "fsync",
        format!("fsync is {}", if facts.fsync { "on" } else { "off" }),
        "without it a crash of the machine can lose or damage the tables",
        "set fsync = on",
    );
    say(
        facts.waits_for_disk,
        Grade::Warning,
        "synchronous commit",
        format!("synchronous_commit is {}", if facts.waits_for_disk { "on" } else { "off" }),
        "a crash can lose the newest grants, and a second holder gets in (its token is higher)",
        "ALTER ROLE … SET synchronous_commit = on for the user of the locks",
    );
    say(
        facts.standbys == 0 || facts.waits_for_disk,
        Grade::Note,
        "standbys",
        format!("{} standbys", facts.standbys),
        "one that takes over without the newest commits gives held locks away",
        "use synchronous replication, and fencing in any case",
    );
    say(
        facts.isolation == "read committed",
        Grade::Note,
        "isolation",
        format!("default isolation is {}", facts.isolation),
        "a stricter level makes the database roll statements back, which are then tried again",
        "ALTER ROLE … SET default_transaction_isolation = 'read committed' for the user of the locks",
    );
    say(
        facts.listens,
        Grade::Warning,
        "wake-up",
        if facts.listens {
            "LISTEN hears"
        } else {
            "LISTEN hears nothing: a pooler in transaction mode stands in between"
        }
        .to_owned(),
        "without it, clients look for letters every 10 to 100 ms while they wait",
        "connect past the pooler, or use its session mode for the locks",
    );
    say(
        facts.clock_off <= CLOCK_OFF,
        Grade::Warning,
        "clock",
        format!("the database's clock is {} from ours", time(facts.clock_off)),
        "tokens start from it: if it goes back by more than a day, they may too",
        "let both follow a time server",
    );
    say(
        facts.tables,
        Grade::Note,
        "tables",
        if facts.tables { "the tables are there" } else { "there are no tables yet" }.to_owned(),
        "they are created by the first client that may",
        "create them with what `leasehold schema postgres` prints, if no client may",
    );
    found.push(Finding::new(
        Grade::Good,
        "deadlocks",
        format!("{} deadlocks in this database since its statistics began", facts.deadlocks),
        "those of lock statements are tried again",
    ));
    found
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
        standbys: 1,
        isolation: String::new(),
        deadlocks: 3,
        tables: true,
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
        assert_eq!(worst(|f| f.isolation = "serializable".to_owned()), (Grade::Note, "isolation"));
        assert_eq!(worst(|f| f.tables = false), (Grade::Note, "tables"));
    }
}
