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

    /// The name of a statement that has these values.
    pub(crate) fn name_of(&self, statement: &str) -> u128 {
        stable_hash(statement.as_bytes())
    }

    /// Makes the statement known to a connection.
    pub(crate) fn prepare(&self, name: u128, statement: &str) -> String {
        let sorts =
            if self.sorts.is_empty() { String::new() } else { format!(" ({})", self.sorts.join(", ")) };
        format!("PREPARE leasehold_{name:032x}{sorts} AS {statement}")
    }

    /// Has a connection that knows it run the statement.
    pub(crate) fn execute(&self, name: u128) -> String {
        let values =
            if self.written.is_empty() { String::new() } else { format!("({})", self.written.join(", ")) };
        format!("EXECUTE leasehold_{name:032x}{values}")
    }
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
        let statement = format!("SELECT {a}, {b}, {c}");
        assert_eq!(statement, "SELECT $1, $2, $3");
        let name = values.name_of(&statement);
        assert_ne!(name, values.name_of("SELECT $1, $2"));
        assert_eq!(
            values.prepare(name, &statement),
            format!("PREPARE leasehold_{name:032x} (text, bigint, bigint[]) AS SELECT $1, $2, $3")
        );
        assert_eq!(
            values.execute(name),
            format!(r"EXECUTE leasehold_{name:032x}(E'o\'clock', NULL, ARRAY[7, NULL]::bigint[])")
        );
        let none = Values::default();
        assert_eq!(none.execute(1), "EXECUTE leasehold_00000000000000000000000000000001");
        assert_eq!(
            none.prepare(1, "SELECT 2"),
            "PREPARE leasehold_00000000000000000000000000000001 AS SELECT 2"
        );
    }
}
