//! Locks that end with the user's own transaction: rows that are locked and never written.
//!
//! MySQL has no named lock that ends with a transaction, so it is the lock of a row. A row per name would have to be inserted and removed:
//! that locks gaps under REPEATABLE READ, the usual level, and transactions of different names would wait for each other or
//! deadlock. So there is a fixed number of rows, found by the hash of a name. An existing row that is looked up by its primary key is locked alone,
//! at every level, and nothing is written to any log.

use leasehold_sql::transaction::Dialect;
use leasehold_sql::{TransactionLock, TransactionLocks};

use crate::config::Config;
use crate::schema;

impl Config {
    /// Locks that end with a transaction of the user's own, in this database. They need a table of 16,384 small rows, which
    /// [`setup`](TransactionLocks::setup) and `leasehold schema mysql` create, and the rights SELECT and UPDATE on it.
    pub fn transaction_locks(&self) -> TransactionLocks {
        let table = self.qualified("slots");
        let setup = vec![schema::slots(&table)];
        TransactionLocks::new(
            &self.options.prefix,
            setup,
            Dialect { place: table, keys: Some(schema::SLOTS), statements },
        )
    }
}

fn statements(table: &str, key: i64) -> TransactionLock {
    let row = format!("SELECT 1 FROM {table} WHERE slot = {key} FOR UPDATE");
    TransactionLock { attempt: format!("{row} SKIP LOCKED"), wait: row, key }
}
