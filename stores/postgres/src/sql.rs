//! Statements with their values, and what comes back.
//!
//! A statement is prepared once on a connection and executed by its name from then on, both as plain text: PREPARE and EXECUTE. The
//! protocol's own prepared statements have names that a driver counts up, and behind a pooler that lends connections for a transaction
//! at a time, somebody else's statement may have the same one. Ours are named after what they say, so whatever is found under
//! such a name is the statement that is meant. Where there is no pooler ([`direct`](crate::direct)), the usual statements are the protocol's: they
//! are cheaper.

use std::borrow::Cow;
use std::fmt;

use leasehold_core::Result;
use leasehold_core::name::stable_hash;
use leasehold_sql::Cell;
use leasehold_sql::row::{Sort, unreadable};
use tokio_postgres::SimpleQueryRow;
use tokio_postgres::types::{ToSql, Type};

/// How many values most statements have room for at once.
const ROOM: usize = 16;

/// The values of a statement, which is written meanwhile.
pub(crate) struct Values {
    values: Vec<Value>,
    sorts: Vec<Type>,
}

/// A value.
enum Value {
    Text(Option<Cow<'static, str>>),
    Number(Option<i64>),
    /// As a statement has it.
    Array(String),
}

/// Where a statement has a value.
#[derive(Clone, Copy)]
pub(crate) struct Place(usize);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", self.0)
    }
}

impl Default for Values {
    fn default() -> Self {
        Values { values: Vec::with_capacity(ROOM), sorts: Vec::with_capacity(ROOM) }
    }
}

impl Values {
    fn add(&mut self, value: Value, sort: Type) -> Place {
        self.values.push(value);
        self.sorts.push(sort);
        Place(self.sorts.len())
    }

    /// Takes a text; says how the statement names it.
    pub(crate) fn text(&mut self, text: impl Into<String>) -> Place {
        self.add(Value::Text(Some(Cow::Owned(text.into()))), Type::TEXT)
    }

    pub(crate) fn number(&mut self, number: i64) -> Place {
        self.maybe(Some(number))
    }

    pub(crate) fn maybe(&mut self, number: Option<i64>) -> Place {
        self.add(Value::Number(number), Type::INT8)
    }

    pub(crate) fn texts(&mut self, texts: Vec<String>) -> Place {
        let texts = array(texts.iter().map(|text| quoted(text)), "text[]");
        self.add(Value::Array(texts), Type::TEXT_ARRAY)
    }

    /// One value of a column.
    pub(crate) fn cell(&mut self, cell: Cell, sort: Sort) -> Place {
        let (text, number) = match cell {
            Cell::Text(text) => (Some(text), None),
            Cell::Number(number) => (None, Some(number)),
            Cell::Null => (None, None),
        };
        match sort {
            Sort::Text(_) => self.add(Value::Text(text), Type::TEXT),
            Sort::Number => self.maybe(number),
        }
    }

    /// The values of a column in many rows.
    pub(crate) fn column(&mut self, cells: &[Cell], sort: Sort) -> Place {
        let (sort, written_sort) = match sort {
            Sort::Number => (Type::INT8_ARRAY, "bigint[]"),
            Sort::Text(_) => (Type::TEXT_ARRAY, "text[]"),
        };
        self.add(Value::Array(array(cells.iter().map(written), written_sort)), sort)
    }

    /// A statement that has values like these.
    pub(crate) fn statement(&self, text: &str) -> Statement {
        let name = format!("leasehold_{:032x}", stable_hash(text.as_bytes()));
        let sorts: Vec<&str> = self.sorts.iter().map(said).collect();
        let sorts = if sorts.is_empty() { String::new() } else { format!(" ({})", sorts.join(", ")) };
        let prepare = format!("PREPARE {name}{sorts} AS {text}");
        Statement { name, prepare, text: text.to_owned(), sorts: self.sorts.clone() }
    }

    /// Has a connection that knows it run the statement with these values.
    pub(crate) fn execute(&self, statement: &Statement) -> String {
        let name = &statement.name;
        let written: Vec<String> = self.values.iter().map(Value::written).collect();
        if written.is_empty() {
            return format!("EXECUTE {name}");
        }
        format!("EXECUTE {name}({})", written.join(", "))
    }

    /// The values as the protocol has them, if there are no arrays among them.
    pub(crate) fn bound(&self) -> Option<Vec<&(dyn ToSql + Sync)>> {
        self.values.iter().map(Value::bound).collect()
    }
}

impl Value {
    fn bound(&self) -> Option<&(dyn ToSql + Sync)> {
        match self {
            Value::Text(text) => Some(text),
            Value::Number(number) => Some(number),
            Value::Array(_) => None,
        }
    }

    fn written(&self) -> String {
        match self {
            Value::Text(text) => text.as_deref().map_or_else(null, quoted),
            Value::Number(number) => number.map_or_else(null, |number| number.to_string()),
            Value::Array(written) => written.clone(),
        }
    }
}

/// A statement with its name.
pub(crate) struct Statement {
    /// Says what it means.
    pub(crate) name: String,
    /// Makes it known to a connection.
    pub(crate) prepare: String,
    /// The statement itself.
    pub(crate) text: String,
    /// The sorts of its values.
    pub(crate) sorts: Vec<Type>,
}

/// A sort of value as a statement has it.
fn said(sort: &Type) -> &'static str {
    match *sort {
        Type::INT8 => "bigint",
        Type::INT8_ARRAY => "bigint[]",
        Type::TEXT_ARRAY => "text[]",
        _ => "text",
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
