//! What errors of the server mean.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Error, Kind, Retry};
use tokio_postgres::error::SqlState;

/// What to do about an error.
pub(crate) enum Trouble {
    /// The statement was rolled back because of others. Again.
    Again,
    /// The tables are not there.
    NoTables,
    /// The connection is of no use any more.
    Broken(Error),
    /// Nothing helps.
    Error(Error),
}

static RETRIED: AtomicU64 = AtomicU64::new(0);

/// How many statements of this process were tried again after a deadlock or a serialization failure.
pub fn deadlocks_retried() -> u64 {
    RETRIED.load(Ordering::Relaxed)
}

/// Judges an error of the driver.
pub(crate) fn judge(error: tokio_postgres::Error) -> Trouble {
    let Some(code) = error.code().cloned() else {
        let what = "the connection to the database failed";
        return Trouble::Broken(Error::new(Kind::Unavailable, what).because(error));
    };
    if [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE].contains(&code) {
        RETRIED.fetch_add(1, Ordering::Relaxed);
        return Trouble::Again;
    }
    if code == SqlState::UNDEFINED_TABLE || code == SqlState::INVALID_SCHEMA_NAME {
        return Trouble::NoTables;
    }
    let said = error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned());
    let told = |kind, what: &str| Error::new(kind, format!("{what}: {said}"));
    if code == SqlState::READ_ONLY_SQL_TRANSACTION {
        let error = told(Kind::Unavailable, "the database can only be read")
            .advice("connect to the primary, or name all hosts and add target_session_attrs=read-write")
            .retry(Retry::Later);
        return Trouble::Broken(error);
    }
    if code == SqlState::INSUFFICIENT_PRIVILEGE {
        let advice = "let the user create tables, or create them with what `leasehold schema postgres` prints and \
                      grant SELECT, INSERT, UPDATE and DELETE on them";
        return Trouble::Error(told(Kind::Refused, "the database refuses it").advice(advice));
    }
    if code == SqlState::UNDEFINED_COLUMN {
        return Trouble::Error(other_schema(&said));
    }
    match code.code().get(..2) {
        // Connections, resources, operators, and the system below.
        Some("08" | "53" | "57" | "58") => {
            Trouble::Broken(told(Kind::Unavailable, "the database is not available"))
        }
        Some("28" | "3D") => Trouble::Broken(told(Kind::Refused, "the database refuses the connection")),
        _ => Trouble::Error(told(Kind::Store, "the database reports an error")),
    }
}

/// The tables are of another version.
pub(crate) fn other_schema(said: &str) -> Error {
    Error::new(Kind::Mismatch, format!("the lock tables are of another version: {said}"))
        .advice("use another prefix, or drop the tables while nobody uses them: they are created anew")
}
