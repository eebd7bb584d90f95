//! Statements that refuse a late writer, for a column that remembers the highest token.
//!
//! A guarded table has a column for the token of its last writer, `BIGINT NOT NULL DEFAULT 0`. Every write of a holder sets it and
//! asks for it in the same statement, so the database itself refuses whoever comes late: the write changes no row.

use leasehold_core::{Error, Kind, Result, Token};

/// The parts that a guarded statement needs: `UPDATE t SET …, {set} WHERE id = … AND {when}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceSql {
    /// What is set besides: `fence = 123`.
    pub set: String,
    /// On what condition: `fence <= 123`.
    pub when: String,
}

/// Makes the parts for a column and a token. The column's name becomes part of the statement, so it must be a plain one; `t.fence` is fine.
///
/// A statement with them that changes no row was late (or there is no such row): the transaction should be rolled back.
pub fn fence_sql(column: &str, token: Token) -> Result<FenceSql> {
    let word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if column.is_empty() || !column.split('.').all(word) {
        return Err(Error::new(Kind::Invalid, format!("{column:?} is not a plain name of a column"))
            .advice("use letters, digits and _"));
    }
    let own = column.rsplit('.').next().unwrap_or(column);
    Ok(FenceSql { set: format!("{own} = {token}"), when: format!("{column} <= {token}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fit_a_statement() {
        let parts = fence_sql("t.fence", Token(7)).unwrap();
        assert_eq!((parts.set.as_str(), parts.when.as_str()), ("fence = 7", "t.fence <= 7"));
        for bad in ["", "a b", "a;b", "1a", "a.", "é"] {
            assert_eq!(fence_sql(bad, Token(7)).unwrap_err().kind(), Kind::Invalid, "{bad}");
        }
    }
}
