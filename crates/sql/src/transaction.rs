//! Locks that end with the user's own transaction.
//!
//! A lease is more than a transaction needs that lives in the same database as what it writes: there, a lock that is gone with the commit
//! can't outlive its writer, and a writer can't outlive its lock. So nothing is leased here, nothing is renewed, and no token is needed. What
//! comes out are statements. The user runs them in a transaction of his own, with his own driver.

use std::fmt;

use leasehold_core::name::stable_hash;
use leasehold_core::{Name, Result};

/// What every key is made from besides, so that no other use of the same hash gives the same keys.
const PURPOSE: &str = "leasehold transaction lock";

/// Locks that last as long as a transaction does.
///
/// - **Who excludes whom:** transactions that lock the same name in one database, with the same `prefix`. Names that differ only in case are two.
///   A name is known by its hash, so two names may share a lock: that costs waiting, and never exclusion.
/// - **Not the other locks:** a mutex of the same name, which is a lease in a table, is another lock. Neither waits for the other.
/// - **When it ends:** with COMMIT, with ROLLBACK, and with the connection. Nobody can forget to release it, and nobody can lose it while the
///   transaction can still commit: no fencing is needed for what this transaction writes, and none is there for anything else.
/// - **Cost:** one statement. Nothing is written, and nothing is left behind.
/// - **Read committed, or first:** on PostgreSQL use READ COMMITTED, the usual level. A stricter one looks at the data as they were before
///   it waited. On MySQL and MariaDB the lock must be the first statement of its transaction, for the same reason.
///
/// Nothing is connected by any of this.
#[derive(Clone)]
pub struct TransactionLocks {
    prefix: String,
    setup: Vec<String>,
    dialect: Dialect,
}

/// How a database locks until the end of a transaction.
#[derive(Clone)]
pub struct Dialect {
    /// What the statements lock in: a table, if they need one.
    pub place: String,
    /// How many keys there are; `None`: all numbers of 64 bits.
    pub keys: Option<u64>,
    /// The statements for a key.
    pub statements: fn(place: &str, key: i64) -> TransactionLock,
}

/// The statements for one lock. Run one of them inside a transaction: **a row means that the transaction has the lock**, and no row that
/// it has not.
///
/// Outside of a transaction the lock ends with the statement, and so guards nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionLock {
    /// Waits for the lock, as long as the database lets statements wait for locks (`lock_timeout`, `innodb_lock_wait_timeout`).
    pub wait: String,
    /// Takes the lock if it is free, and waits for nothing.
    pub attempt: String,
    /// The number that stands in both, for drivers that like values apart from statements.
    pub key: i64,
}

impl TransactionLocks {
    /// The locks of a prefix.
    pub fn new(prefix: impl Into<String>, setup: Vec<String>, dialect: Dialect) -> Self {
        TransactionLocks { prefix: prefix.into(), setup, dialect }
    }

    /// Statements that must have run once before the first lock, outside of a transaction, by a user who may create tables. Running them
    /// again does nothing. There are none on PostgreSQL.
    pub fn setup(&self) -> &[String] {
        &self.setup
    }

    /// The lock of a name: any text of 1 to 1024 bytes.
    pub fn named(&self, name: &str) -> Result<TransactionLock> {
        let name = Name::new(name)?;
        let text = [PURPOSE, &self.prefix, name.as_str()].join("\0");
        // The lower half of the hash; its highest bit becomes a sign.
        let hash = stable_hash(text.as_bytes()) as u64;
        let key = self.dialect.keys.map_or(hash, |keys| hash % keys).cast_signed();
        Ok((self.dialect.statements)(&self.dialect.place, key))
    }

    /// The locks of several names, each once, in an order that is the same for everybody. Transactions that take theirs in this order
    /// don't wait for each other in a circle.
    pub fn all<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Vec<TransactionLock>> {
        let mut locks: Vec<_> = names.into_iter().map(|name| self.named(name)).collect::<Result<_>>()?;
        locks.sort_by_key(|lock| lock.key);
        locks.dedup();
        Ok(locks)
    }
}

impl fmt::Debug for TransactionLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionLocks").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Kind;

    use super::*;

    fn locks(prefix: &str, keys: Option<u64>) -> TransactionLocks {
        let statements = |place: &str, key| TransactionLock {
            wait: format!("wait {place} {key}"),
            attempt: format!("try {place} {key}"),
            key,
        };
        TransactionLocks::new(prefix, Vec::new(), Dialect { place: "here".to_owned(), keys, statements })
    }

    #[test]
    fn a_key_is_the_same_for_ever() {
        // Two versions of a program that run side by side must exclude each other.
        assert_eq!(locks("leasehold_", None).named("orders/7").unwrap().key, 4_038_955_562_036_061_389);
        assert_eq!(locks("leasehold_", Some(16384)).named("orders/7").unwrap().key, 9421);
    }

    #[test]
    fn every_name_and_every_prefix_has_its_own() {
        let mut keys = Vec::new();
        for prefix in ["a_", "b_"] {
            for name in ["x", "X", "x ", "a_x", "\0", "\0x", &"x".repeat(1024)] {
                keys.push(locks(prefix, None).named(name).unwrap().key);
            }
        }
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
        for bad in ["", &"x".repeat(1025)] {
            assert_eq!(locks("a_", None).named(bad).unwrap_err().kind(), Kind::Invalid);
        }
    }

    #[test]
    fn several_come_in_one_order_and_each_once() {
        let locks = locks("a_", Some(4));
        let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let one = locks.all(names.iter().map(String::as_str)).unwrap();
        let other = locks.all(names.iter().rev().map(String::as_str)).unwrap();
        assert_eq!(one, other);
        assert_eq!(one.iter().map(|lock| lock.key).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}
