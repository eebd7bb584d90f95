//! What the doctors of SQL stores say alike.

use std::time::Duration;

use leasehold_core::clock::wall_micros;
use leasehold_core::doctor::{Finding, Grade, time};

/// A clock that is further off than this is worth a word: tokens come from it.
const CLOCK_OFF: Duration = Duration::from_secs(2);

/// The names of the tables, without their prefix.
pub const TABLES: [&str; 5] = ["locks", "entries", "mail", "watch", "schema"];

/// Collects findings.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

/// A table as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Its whole name.
    pub name: String,
    /// Whether it is there.
    pub there: bool,
    /// Whether a name or an entry could be in it twice.
    pub no_primary_key: bool,
    /// Other keys that are missing.
    pub missing_keys: Vec<String>,
    /// What the user may not do with it.
    pub missing_rights: Vec<String>,
}

impl Findings {
    /// Says what was found. What is good needs no remedy.
    pub fn say(
        &mut self,
        good: bool,
        bad: Grade,
        check: &'static str,
        what: impl Into<String>,
        why: &str,
        fix: &str,
    ) {
        let finding = Finding::new(if good { Grade::Good } else { bad }, check, what, why);
        self.0.push(if good { finding } else { finding.fix(fix) });
    }

    /// How far the database's clock is from ours.
    pub fn clock(&mut self, off: Duration) {
        self.say(
            off <= CLOCK_OFF,
            Grade::Warning,
            "clock",
            format!("the database's clock is {} from ours", time(off)),
            "tokens start from it: if it goes back by more than a day, they may too",
            "let both follow a time server",
        );
    }

    /// Whether the tables are there, with their keys, and may be used. `sort` is what `leasehold schema` calls the database.
    pub fn tables(&mut self, tables: &[Table], sort: &str) {
        let names = |wrong: &dyn Fn(&Table) -> bool| {
            let names: Vec<&str> = tables.iter().filter(|t| wrong(t)).map(|t| t.name.as_str()).collect();
            names.join(", ")
        };
        let missing = names(&|table| !table.there);
        let complete = tables.iter().all(|table| table.there);
        let none = !complete && tables.iter().all(|table| !table.there);
        self.say(
            complete,
            if none { Grade::Note } else { Grade::Danger },
            "tables",
            match (none, complete) {
                (true, _) => "there are no tables yet".to_owned(),
                (_, true) => "the tables are there".to_owned(),
                (_, false) => format!("tables are missing: {missing}"),
            },
            if none {
                "they are created by the first client that may"
            } else {
                "no lock can be taken without them"
            },
            &format!("create them with what `leasehold schema {sort}` prints, if no client may"),
        );
        if none {
            return;
        }
        let open = names(&|table| table.there && table.no_primary_key);
        let keys: Vec<&str> =
            tables.iter().flat_map(|table| &table.missing_keys).map(String::as_str).collect();
        self.say(
            open.is_empty() && keys.is_empty(),
            if open.is_empty() { Grade::Warning } else { Grade::Danger },
            "indexes",
            match (open.is_empty(), keys.is_empty()) {
                (true, true) => "the indexes are there".to_owned(),
                (false, _) => format!("no primary key: {open}"),
                (true, false) => format!("indexes are missing: {}", keys.join(", ")),
            },
            if open.is_empty() {
                "without them every look at a long queue or a full mailbox reads all of it"
            } else {
                "a lock could be in its table twice"
            },
            &format!("create them as in what `leasehold schema {sort}` prints"),
        );
        let denied: Vec<String> = tables
            .iter()
            .filter(|table| !table.missing_rights.is_empty())
            .map(|table| format!("{} on {}", table.missing_rights.join(", "), table.name))
            .collect();
        self.say(
            denied.is_empty(),
            Grade::Danger,
            "rights",
            if denied.is_empty() {
                "the user may use the tables".to_owned()
            } else {
                format!("the user may not: {}", denied.join("; "))
            },
            "every lock is written, and read by those who wait",
            "GRANT SELECT, INSERT, UPDATE, DELETE on the tables to the user of the locks",
        );
    }

    /// All of them.
    pub fn list(self) -> Vec<Finding> {
        self.0
    }
}

/// How far a clock is from ours that told this time (microseconds since 1970) to a question asked at `asked` and answered now.
pub fn clock_off(asked: u64, told: i64) -> Duration {
    let middle = asked + wall_micros().saturating_sub(asked) / 2;
    Duration::from_micros(told.unsigned_abs().abs_diff(middle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(change: impl Fn(&mut Table)) -> Vec<(Grade, &'static str)> {
        let mut tables = TABLES.map(|name| Table { name: name.to_owned(), there: true, ..Table::default() });
        change(&mut tables[1]);
        let mut findings = Findings::default();
        findings.tables(&tables, "x");
        findings.clock(Duration::ZERO);
        let bad = findings.list().into_iter().filter(|finding| finding.grade != Grade::Good);
        bad.map(|finding| (finding.grade, finding.check)).collect()
    }

    #[test]
    fn what_is_missing_is_found() {
        assert_eq!(found(|_| {}), []);
        assert_eq!(found(|table| table.there = false), [(Grade::Danger, "tables")]);
        assert_eq!(found(|table| table.no_primary_key = true), [(Grade::Danger, "indexes")]);
        assert_eq!(found(|table| table.missing_keys.push("line".to_owned())), [(Grade::Warning, "indexes")]);
        assert_eq!(
            found(|table| table.missing_rights.push("INSERT".to_owned())),
            [(Grade::Danger, "rights")]
        );
        let mut findings = Findings::default();
        findings.tables(&[Table::default()], "x");
        assert_eq!(findings.list()[0].grade, Grade::Note);
    }

    #[test]
    fn a_clock_is_compared_with_the_middle_of_the_question() {
        let now = wall_micros();
        assert!(clock_off(now, now.cast_signed()) < Duration::from_secs(1));
        let mut findings = Findings::default();
        findings.clock(clock_off(now, (now + 60_000_000).cast_signed()));
        assert_eq!(findings.list()[0].grade, Grade::Warning);
    }
}
