//! What errors of the server mean.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Error, Kind};
pub(crate) use leasehold_sql::trouble::{Trouble, is_read_only, other_schema};

static RETRIED: AtomicU64 = AtomicU64::new(0);

/// How many statements of this process were tried again after a deadlock, or a lock that took too long.
pub fn deadlocks_retried() -> u64 {
    RETRIED.load(Ordering::Relaxed)
}

/// The number of an interrupted statement: somebody rang.
pub(crate) fn was_interrupted(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Server(error) if error.code == 1317)
}

/// Whether an error that the server did not word itself may be over soon: the way to it, and not what was agreed on.
fn may_pass(error: &mysql_async::Error) -> bool {
    use mysql_async::{DriverError, Error, IoError};
    match error {
        Error::Io(IoError::Io(io)) => io.kind() != std::io::ErrorKind::InvalidData,
        Error::Driver(e) => !matches!(
            e,
            DriverError::CantParseServerVersion { .. }
                | DriverError::UnknownAuthPlugin { .. }
                | DriverError::MysqlOldPasswordDisabled
                | DriverError::NoClientSslFlagFromServer
                | DriverError::CleartextPluginDisabled
        ),
        Error::Io(_) | Error::Url(_) => false,
        Error::Other(_) | Error::Server(_) => true,
    }
}

/// Judges an error of the driver.
pub(crate) fn judge(error: mysql_async::Error) -> Trouble {
    let server = match error {
        mysql_async::Error::Server(server) => server,
        error => {
            let kind = if may_pass(&error) { Kind::Unavailable } else { Kind::Refused };
            return Trouble::Broken(Error::new(kind, "the connection to the database failed").because(error));
        }
    };
    let said = format!("{} ({})", server.message, server.code);
    match server.code {
        // Deadlock; lock wait timeout; record changed since it was read.
        1213 | 1205 | 1020 => {
            RETRIED.fetch_add(1, Ordering::Relaxed);
            Trouble::Again
        }
        1146 => Trouble::NoTables,
        // Read only: by an option, as a replica, within a transaction.
        1290 | 1792 | 1836 | 3100 => Trouble::read_only(&said, "connect to the primary"),
        // No right to do this to a table, a database, a column.
        1142 | 1044 | 1143 | 1227 | 1370 => Trouble::no_rights(&said, "mysql"),
        1054 => Trouble::Error(other_schema(&server.message)),
        // The login, the user's host, the database.
        1045 | 1049 | 1130 | 1698 => Trouble::no_entry(&said),
        // Too many connections, a shutdown, a killed connection or statement, no space, a node of a cluster that is not ready.
        1040 | 1203 | 1226 | 1053 | 1077 | 1079 | 1080 | 1158..=1161 | 1317 | 1927 | 1021 | 1114 | 1047 => {
            Trouble::unavailable(&said)
        }
        _ => Trouble::said(&said),
    }
}
