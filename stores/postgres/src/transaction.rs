//! Locks that end with the user's own transaction: advisory locks.
//!
//! The schema of the tables is no part of a key. `schema=public` and the search path may mean the same place, and two programs that write it
//! differently must still exclude each other; that they wait for each other where they need not is the lesser evil.

use leasehold_sql::transaction::Dialect;
use leasehold_sql::{TransactionLock, TransactionLocks};

use crate::config::Config;

impl Config {
    /// Locks that end with a transaction of the user's own, in this database. They need no tables and no rights.
    pub fn transaction_locks(&self) -> TransactionLocks {
        let dialect = Dialect { place: String::new(), keys: None, statements };
        TransactionLocks::new(&self.options.prefix, Vec::new(), dialect)
    }
}

fn statements(_: &str, key: i64) -> TransactionLock {
    TransactionLock {
        wait: format!("SELECT pg_advisory_xact_lock({key})"),
        attempt: format!("SELECT 1 WHERE pg_try_advisory_xact_lock({key})"),
        key,
    }
}
