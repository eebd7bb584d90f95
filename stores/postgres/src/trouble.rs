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
    if [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE].contains(&code) {
        RETRIED.fetch_add(1, Ordering::Relaxed);
        return Trouble::Again;
    }
    if code == SqlState::UNDEFINED_TABLE || code == SqlState::INVALID_SCHEMA_NAME {
        return Trouble::NoTables;
    }
    let said = error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned());
    if code == SqlState::READ_ONLY_SQL_TRANSACTION {
        let advice = "connect to the primary, or name all hosts and add target_session_attrs=read-write";
        return Trouble::read_only(&said, advice);
    }
    if code == SqlState::INSUFFICIENT_PRIVILEGE {
        return Trouble::no_rights(&said, "postgres");
    }
    if code == SqlState::UNDEFINED_COLUMN {
        return Trouble::Error(other_schema(&said));
    }
    match code.code().get(..2) {
        // A pooler says so of what the server says with other numbers.
        Some("08")
            if ["authentication failed", "no such user", "no such database"]
                .iter()
                .any(|no| said.contains(no)) =>
        {
            Trouble::no_entry(&said)
        }
        // Connections, resources, operators, and the system below.
        Some("08" | "53" | "57" | "58") => Trouble::unavailable(&said),
        Some("28" | "3D") => Trouble::no_entry(&said),
        _ => Trouble::said(&said),
    }
}
