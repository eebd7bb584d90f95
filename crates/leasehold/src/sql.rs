//! What SQL databases offer besides leases: a late writer refused by its own statement, and locks in the user's own transactions.

use leasehold_core::url::{StoreUrl, redact};
use leasehold_core::{Error, Kind, Result};
pub use leasehold_sql::fence::{FenceSql, fence_sql};
pub use leasehold_sql::{TransactionLock, TransactionLocks};

/// Locks that end with a transaction of the user's own, in the SQL database at `url`. Nothing is connected: what comes out are statements to
/// run in a transaction, with any driver. See [`TransactionLocks`] for what they promise.
///
/// ```
/// # #[cfg(feature = "postgres")] {
/// let locks = leasehold::transaction_locks("postgres://bob@db.example/shop")?;
/// let lock = locks.named("orders/7")?;
/// assert!(lock.wait.starts_with("SELECT pg_advisory_xact_lock("));
/// // BEGIN; {lock.wait}; SELECT …; UPDATE …; COMMIT
/// # }
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn transaction_locks(url: &str) -> Result<TransactionLocks> {
    let parsed = StoreUrl::parse(url)?;
    #[cfg(feature = "mysql")]
    if leasehold_mysql::SCHEMES.contains(&parsed.scheme.as_str()) {
        return Ok(leasehold_mysql::Config::from_url(parsed)?.transaction_locks());
    }
    #[cfg(feature = "postgres")]
    if leasehold_postgres::SCHEMES.contains(&parsed.scheme.as_str()) {
        return Ok(leasehold_postgres::Config::from_url(parsed)?.transaction_locks());
    }
    drop(parsed);
    let what = format!("{} is no SQL store that this program was compiled with", redact(url));
    Err(Error::new(Kind::Invalid, what).advice("transactions are a matter of mysql: and postgres: stores"))
}
