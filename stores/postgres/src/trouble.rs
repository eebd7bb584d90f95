//! What errors of the server mean.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Error, Kind};
pub(crate) use leasehold_sql::trouble::{Trouble, is_read_only, other_schema};
use tokio_postgres::error::SqlState;

static RETRIED: AtomicU64 = AtomicU64::new(0);

/// How many statements of this process were tried again after a deadlock or a serialization failure.
pub fn deadlocks_retried() -> u64 {
    RETRIED.load(Ordering::Relaxed)
}

/// Whether an error that the server did not word itself may be over soon: the way to it, and not what was agreed on.
fn may_pass(error: &tokio_postgres::Error) -> bool {
    const WAY: [&str; 4] = [
        "error connecting to server",
        "error communicating with the server",
        "connection closed",
        "timeout waiting for server",
    ];
    let (text, source) = (error.to_string(), std::error::Error::source(error));
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    // What is wrong with a certificate comes as invalid data.
    let cut = text.starts_with("error performing TLS handshake")
        && io.is_some_and(|io| io.kind() != std::io::ErrorKind::InvalidData);
    cut || WAY.iter().any(|way| text.starts_with(way))
}

/// Judges an error of the driver.
pub(crate) fn judge(error: tokio_postgres::Error) -> Trouble {
    let Some(code) = error.code().cloned() else {
        let kind = if may_pass(&error) { Kind::Unavailable } else { Kind::Refused };
        return Trouble::Broken(Error::new(kind, "the connection to the database failed").because(error));
    };
    let said = error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned());
    of_server(&code, &said)
}

/// Judges what the server said.
fn of_server(code: &SqlState, said: &str) -> Trouble {
    if [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE].contains(code) {
        RETRIED.fetch_add(1, Ordering::Relaxed);
        return Trouble::Again;
    }
    if [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code) {
        return Trouble::NoTables;
    }
    if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        let advice = "connect to the primary, or name all hosts and add target_session_attrs=read-write";
        return Trouble::read_only(said, advice);
    }
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return Trouble::no_rights(said, "postgres");
    }
    if *code == SqlState::UNDEFINED_COLUMN {
        return Trouble::Error(other_schema(said));
    }
    if *code == SqlState::UNIQUE_VIOLATION {
        return Trouble::taken(said);
    }
    match code.code().get(..2) {
        // A pooler says so of what the server says with other numbers.
        Some("08")
            if ["authentication failed", "no such user", "no such database"]
                .iter()
                .any(|no| said.contains(no)) =>
        {
            Trouble::no_entry(said)
        }
        // Connections, resources, operators (one of them is `statement_timeout`), and the system below.
        Some("08" | "53" | "57" | "58") => Trouble::unavailable(said),
        Some("28" | "3D") => Trouble::no_entry(said),
        _ if CUT_SHORT.contains(&code.code()) => Trouble::unavailable(said),
        _ => Trouble::said(said),
    }
}

/// What took longer than the server allows, since it waited for another one: `lock_timeout`,
/// `idle_in_transaction_session_timeout`, `transaction_timeout`.
const CUT_SHORT: [&str; 3] = ["55P03", "25P03", "25P04"];

#[cfg(test)]
mod tests {
    use leasehold_core::Retry;
    use leasehold_sql::trouble::is_taken;

    use super::*;

    fn told(code: &str) -> Trouble {
        of_server(&SqlState::from_code(code), "words")
    }

    /// The kind and the advice of an error, and whether its connection is given up.
    fn judged(code: &str) -> (Kind, Retry, bool) {
        match told(code) {
            Trouble::Broken(error) => (error.kind(), error.retry_advice(), true),
            Trouble::Error(error) => (error.kind(), error.retry_advice(), false),
            other => panic!("{code}: {other:?}"),
        }
    }

    #[test]
    fn what_passes_by_itself_is_unavailable() {
        for code in [
            "08006", "08P01", "25P03", "25P04", "53100", "53200", "53300", "55P03", "57014", "57P01",
            "57P03", "57P05", "58030",
        ] {
            assert_eq!(judged(code), (Kind::Unavailable, Retry::SameId, true), "{code}");
        }
        assert_eq!(judged("25006"), (Kind::Unavailable, Retry::Later, true));
        for code in ["40001", "40P01"] {
            assert!(matches!(told(code), Trouble::Again), "{code}");
        }
    }

    #[test]
    fn a_row_that_is_there_is_told_apart_from_other_errors() {
        let told = |code| match told(code) {
            Trouble::Error(error) => is_taken(&error),
            other => panic!("{code}: {other:?}"),
        };
        assert!(told("23505"));
        // A check, and a value that is missing.
        assert!(!told("23514") && !told("23502"));
        // Final for all that don't look again: the statement would fail the same way.
        assert_eq!(judged("23505"), (Kind::Store, Retry::Never, false));
    }

    #[test]
    fn what_can_never_work_is_final() {
        for code in ["28000", "28P01", "3D000"] {
            assert_eq!(judged(code), (Kind::Refused, Retry::Never, true), "{code}");
        }
        for said in ["authentication failed", "no such user: bob", "no such database: locks"] {
            let pooler = of_server(&SqlState::from_code("08P01"), said);
            assert!(matches!(&pooler, Trouble::Broken(error) if error.kind() == Kind::Refused), "{pooler:?}");
        }
        assert_eq!(judged("42501"), (Kind::Refused, Retry::Never, false));
        assert_eq!(judged("42703"), (Kind::Mismatch, Retry::Never, false));
        // A syntax error, say.
        assert_eq!(judged("42601"), (Kind::Store, Retry::Never, false));
        for code in ["42P01", "3F000"] {
            assert!(matches!(told(code), Trouble::NoTables), "{code}");
        }
    }
}
