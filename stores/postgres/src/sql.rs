//! Statements with their values, and what comes back.
//!
//! A statement is prepared once on a connection and executed by its name from then on, both as plain text: PREPARE and EXECUTE. The
//! protocol's own prepared statements have names that a driver counts up, and behind a pooler that lends connections for a transaction
//! at a time, somebody else's statement may have the same one. Ours are named after what they say, so whatever is found under
//! such a name is the statement that is meant.

use leasehold_core::Result;
use leasehold_core::name::stable_hash;
use leasehold_sql::Cell;
use leasehold_sql::row::{Sort, unreadable};
use tokio_postgres::SimpleQueryRow;

/// The values of a statement, which is written meanwhile.
#[derive(Default)]
pub(crate) struct Values {
    written: Vec<String>,
    sorts: Vec<&'static str>,
}

impl Values {
    fn add(&mut self, written: String, sort: &'static str) -> String {
        self.written.push(written);
        self.sorts.push(sort);
        format!("${}", self.sorts.len())
    }

    /// Takes a text; says how the statement names it.
    pub(crate) fn text(&mut self, text: impl AsRef<str>) -> String {
        self.add(quoted(text.as_ref()), "text")
    }

    pub(crate) fn number(&mut self, number: i64) -> String {
        self.add(number.to_string(), "bigint")
    }

    pub(crate) fn maybe(&mut self, number: Option<i64>) -> String {
        self.add(number.map_or_else(null, |number| number.to_string()), "bigint")
    }

    pub(crate) fn texts(&mut self, texts: Vec<String>) -> String {
        let texts = array(texts.iter().map(|text| quoted(text)), "text[]");
        self.add(texts, "text[]")
    }

    /// One value of a column.
    pub(crate) fn cell(&mut self, cell: &Cell, sort: Sort) -> String {
        self.add(written(cell), if sort == Sort::Number { "bigint" } else { "text" })
    }

    /// The values of a column in many rows.
    pub(crate) fn column(&mut self, cells: &[Cell], sort: Sort) -> String {
        let sort = if sort == Sort::Number { "bigint[]" } else { "text[]" };
        self.add(array(cells.iter().map(written), sort), sort)
    }

    /// A statement that has values like these.
    pub(crate) fn statement(&self, text: &str) -> Statement {
        let name = format!("leasehold_{:032x}", stable_hash(text.as_bytes()));
        let sorts =
            if self.sorts.is_empty() { String::new() } else { format!(" ({})", self.sorts.join(", ")) };
        Statement { prepare: format!("PREPARE {name}{sorts} AS {text}"), name }
    }

    /// Has a connection that knows it run the statement with these values.
    pub(crate) fn execute(&self, statement: &Statement) -> String {
        let name = &statement.name;
        if self.written.is_empty() {
            return format!("EXECUTE {name}");
        }
        format!("EXECUTE {name}({})", self.written.join(", "))
    }
}

/// A statement with its name.
pub(crate) struct Statement {
    /// Says what it means.
    pub(crate) name: String,
    /// Makes it known to a connection.
    pub(crate) prepare: String,
}

fn null() -> String {
    "NULL".to_owned()
}

fn written(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => quoted(text),
        Cell::Number(number) => number.to_string(),
        Cell::Null => null(),
    }
}

/// An array. Its sort can't be seen from what is in it if that is nothing.
fn array(values: impl Iterator<Item = String>, sort: &str) -> String {
    format!("ARRAY[{}]::{sort}", values.collect::<Vec<_>>().join(", "))
}

/// A text as a statement has it, whatever the server takes a backslash for in plain ones. Connections of this driver speak UTF-8, in
/// which no part of a character looks like a quote.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 3);
    quoted.push_str("E'");
    for c in text.chars() {
        if matches!(c, '\'' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('\'');
    quoted
}

/// A number in a row.
pub(crate) fn number(row: &SimpleQueryRow, at: usize) -> Result<i64> {
    maybe_number(row, at)?.ok_or_else(odd)
}

/// A number in a row, or nothing.
pub(crate) fn maybe_number(row: &SimpleQueryRow, at: usize) -> Result<Option<i64>> {
    maybe_text(row, at)?.map(|digits| digits.parse().map_err(|_| odd())).transpose()
}

/// Text in a row.
pub(crate) fn text(row: &SimpleQueryRow, at: usize) -> Result<&str> {
    maybe_text(row, at)?.ok_or_else(odd)
}

/// Text in a row, or nothing.
pub(crate) fn maybe_text(row: &SimpleQueryRow, at: usize) -> Result<Option<&str>> {
    row.try_get(at).map_err(|e| odd().because(e))
}

fn odd() -> leasehold_core::Error {
    unreadable("the lock tables hold something else")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_can_end_it() {
        assert_eq!(quoted("plain"), "E'plain'");
        assert_eq!(quoted("'; DROP TABLE x; --"), r"E'\'; DROP TABLE x; --'");
        assert_eq!(quoted(r"\'"), r"E'\\\''");
        assert_eq!(quoted("日本\u{1}$1"), "E'日本\u{1}$1'");
    }

    #[test]
    fn a_statement_is_named_after_what_it_says() {
        let mut values = Values::default();
        let (a, b) = (values.text("o'clock"), values.maybe(None));
        let c = values.column(&[Cell::Number(7), Cell::Null], Sort::Number);
        let text = format!("SELECT {a}, {b}, {c}");
        assert_eq!(text, "SELECT $1, $2, $3");
        let statement = values.statement(&text);
        let name = &statement.name;
        assert_ne!(*name, values.statement("SELECT $1, $2").name);
        assert_eq!(
            statement.prepare,
            format!("PREPARE {name} (text, bigint, bigint[]) AS SELECT $1, $2, $3")
        );
        assert_eq!(
            values.execute(&statement),
            format!(r"EXECUTE {name}(E'o\'clock', NULL, ARRAY[7, NULL]::bigint[])")
        );
        let none = Values::default();
        let statement = none.statement("SELECT 2");
        assert_eq!(none.execute(&statement), format!("EXECUTE {}", statement.name));
        assert_eq!(statement.prepare, format!("PREPARE {} AS SELECT 2", statement.name));
    }
}
