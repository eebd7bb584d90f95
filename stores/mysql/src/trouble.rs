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
        // A duplicate key: by its number, and by its name.
        1062 | 1586 => Trouble::taken(&said),
        // The login, the user's host (blocked after too many failed logins, too), the database, a locked account, an
        // old password.
        1045 | 1049 | 1129 | 1130 | 1698 | 1862 | 3118 | 4151 => Trouble::no_entry(&said),
        // Too many connections, threads, or transactions; no memory, no space, no room for row locks; a name server
        // that does not answer.
        1040 | 1203 | 1226 | 1135 | 1637 | 1041 | 1021 | 1114 | 1206 | 1042 => Trouble::unavailable(&said),
        // A shutdown, or offline mode; a connection or statement that was ended; a node of a cluster that is not ready.
        1053 | 1077 | 1079 | 1080 | 3032 | 1158..=1161 | 1317 | 1927 | 1047 => Trouble::unavailable(&said),
        // A statement that took longer than the server allows (`max_statement_time`, `max_execution_time`): it waited
        // for another one.
        1969 | 3024 => Trouble::unavailable(&said),
        _ => Trouble::said(&said),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Retry;
    use leasehold_sql::trouble::is_taken;

    use super::*;

    fn told(code: u16) -> Trouble {
        let error = mysql_async::ServerError { code, message: "words".to_owned(), state: "HY000".to_owned() };
        judge(mysql_async::Error::Server(error))
    }

    /// The kind and the advice of an error, and whether its connection is given up.
    fn judged(code: u16) -> (Kind, Retry, bool) {
        match told(code) {
            Trouble::Broken(error) => (error.kind(), error.retry_advice(), true),
            Trouble::Error(error) => (error.kind(), error.retry_advice(), false),
            other => panic!("{code}: {other:?}"),
        }
    }

    #[test]
    fn what_passes_by_itself_is_unavailable() {
        for code in [
            1021, 1040, 1041, 1042, 1047, 1053, 1077, 1079, 1080, 1114, 1135, 1158, 1161, 1203, 1206, 1226,
            1317, 1637, 1927, 1969, 3024, 3032,
        ] {
            assert_eq!(judged(code), (Kind::Unavailable, Retry::SameId, true), "{code}");
        }
        for code in [1290, 1792, 1836, 3100] {
            assert_eq!(judged(code), (Kind::Unavailable, Retry::Later, true), "{code}");
        }
        for code in [1020, 1205, 1213] {
            assert!(matches!(told(code), Trouble::Again), "{code}");
        }
    }

    #[test]
    fn a_row_that_is_there_is_told_apart_from_other_errors() {
        let told = |code| match told(code) {
            Trouble::Error(error) => is_taken(&error),
            other => panic!("{code}: {other:?}"),
        };
        assert!(told(1062) && told(1586));
        // A column that may not be empty, and a check.
        assert!(!told(1048) && !told(3819));
        // Final for all that don't look again: the statement would fail the same way.
        assert_eq!(judged(1062), (Kind::Store, Retry::Never, false));
    }

    #[test]
    fn what_can_never_work_is_final() {
        for code in [1045, 1049, 1129, 1130, 1698, 1862, 3118, 4151] {
            assert_eq!(judged(code), (Kind::Refused, Retry::Never, true), "{code}");
        }
        for code in [1044, 1142, 1143, 1227, 1370] {
            assert_eq!(judged(code), (Kind::Refused, Retry::Never, false), "{code}");
        }
        assert_eq!(judged(1054), (Kind::Mismatch, Retry::Never, false));
        // A syntax error, say.
        assert_eq!(judged(1064), (Kind::Store, Retry::Never, false));
        assert!(matches!(told(1146), Trouble::NoTables));
    }
}
