//! Values as they are written in statements, and what comes back.
//!
//! Several statements go in one text, which has no place for values of its own: so they are written out. Whatever anybody else chose
//! (names, labels) is written in hex, which can't be mistaken for anything else. Single statements that are run most are prepared instead.

use leasehold_core::Result;
use leasehold_sql::Cell;
use leasehold_sql::letter::hex;
use leasehold_sql::row::unreadable;
use mysql_async::Value;

/// Bytes.
pub(crate) fn bytes(bytes: &[u8]) -> String {
    if bytes.is_empty() { "''".to_owned() } else { format!("x'{}'", hex(bytes)) }
}

/// Text.
pub(crate) fn text(text: &str) -> String {
    if text.is_empty() { "''".to_owned() } else { format!("_utf8mb4 x'{}'", hex(text.as_bytes())) }
}

/// A number, or nothing.
pub(crate) fn maybe(number: Option<i64>) -> String {
    number.map_or_else(|| "NULL".to_owned(), |number| number.to_string())
}

/// The value of a column.
pub(crate) fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(value) => text(value),
        Cell::Number(number) => number.to_string(),
        Cell::Null => "NULL".to_owned(),
    }
}

/// The same for a statement that is prepared.
pub(crate) fn value(cell: Cell) -> Value {
    match cell {
        Cell::Text(value) => Value::Bytes(value.into_owned().into_bytes()),
        Cell::Number(number) => Value::Int(number),
        Cell::Null => Value::NULL,
    }
}

/// A statement that can't be prepared, with its values in their places. It has no question marks but those.
pub(crate) fn written_out(statement: &str, values: &[Value]) -> String {
    let mut parts = statement.split('?');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (value, part) in values.iter().zip(parts) {
        text += &match value {
            Value::Bytes(value) => bytes(value),
            other => other.as_sql(true),
        };
        text += part;
    }
    text
}

/// What one statement did or found.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How many rows it changed.
    pub(crate) changed: u64,
    /// What `LAST_INSERT_ID` was set to.
    pub(crate) id: u64,
    /// The rows it found.
    pub(crate) rows: Vec<Vec<Value>>,
}

/// A number in a row.
pub(crate) fn number(row: &[Value], at: usize) -> Result<i64> {
    maybe_number(row, at)?.ok_or_else(odd)
}

/// A number in a row, or nothing. Answers in text have numbers as digits.
pub(crate) fn maybe_number(row: &[Value], at: usize) -> Result<Option<i64>> {
    match row.get(at) {
        Some(Value::NULL) => Ok(None),
        Some(Value::Int(number)) => Ok(Some(*number)),
        Some(Value::UInt(number)) => i64::try_from(*number).map(Some).map_err(|_| odd()),
        Some(Value::Bytes(digits)) => {
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            number.map(Some).ok_or_else(odd)
        }
        _ => Err(odd()),
    }
}

/// Text in a row, or nothing.
pub(crate) fn maybe_text(row: &[Value], at: usize) -> Result<Option<String>> {
    match row.get(at) {
        Some(Value::NULL) => Ok(None),
        Some(Value::Bytes(text)) => String::from_utf8(text.clone()).map(Some).map_err(|_| odd()),
        _ => Err(odd()),
    }
}

/// Text in a row.
pub(crate) fn string(row: &[Value], at: usize) -> Result<String> {
    maybe_text(row, at)?.ok_or_else(odd)
}

fn odd() -> leasehold_core::Error {
    unreadable("the lock tables hold something else")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_where_their_marks_are() {
        let values = [Value::UInt(7), Value::Bytes(b"a'?".to_vec()), Value::NULL];
        let text = written_out("SET a = ?, b = ? WHERE c = ? AND d", &values);
        assert_eq!(text, "SET a = 7, b = x'61273f' WHERE c = NULL AND d");
    }
}
