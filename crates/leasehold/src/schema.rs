//! The tables of SQL stores, for those who create them by hand.

use leasehold_core::url::{StoreUrl, redact};
use leasehold_core::{Error, Kind, Result};

/// The statements that create the tables of the SQL store at `url`. Nothing is connected.
///
/// The stores create them by themselves on first use, unless their user may not (or the URL says `create=no`).
pub fn schema(url: &str) -> Result<String> {
    let parsed = StoreUrl::parse(url)?;
    #[cfg(feature = "mysql")]
    if leasehold_mysql::SCHEMES.contains(&parsed.scheme.as_str()) {
        return leasehold_mysql::schema::ddl(parsed);
    }
    #[cfg(feature = "postgres")]
    if leasehold_postgres::SCHEMES.contains(&parsed.scheme.as_str()) {
        return leasehold_postgres::schema::ddl(parsed);
    }
    drop(parsed);
    let what = format!("{} is no SQL store that this program was compiled with", redact(url));
    Err(Error::new(Kind::Invalid, what).advice("tables are a matter of mysql: and postgres: stores"))
}
