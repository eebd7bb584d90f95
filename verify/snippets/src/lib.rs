//! Every piece of Rust in the README and in docs, compiled. Nothing is run.
//!
//! A snippet is the body of a function. What it takes for given, as a reader does, is in [`Given`] and in the functions
//! beside it: a new name that a page uses is added here.
#![forbid(unsafe_code)]

use leasehold::{Client, Guard, Token};
use mysql_async::TxOpts;
use mysql_async::prelude::Queryable as _;

/// What a snippet returns.
pub type Done = Result<(), Box<dyn std::error::Error>>;

/// What a snippet finds.
#[allow(missing_docs)]
pub struct Given {
    pub client: Client,
    pub guard: Guard,
    pub ledger: Ledger,
    pub change: Change,
    /// The reader's own PostgreSQL driver.
    pub db: tokio_postgres::Client,
    /// The reader's own MySQL driver.
    pub conn: mysql_async::Conn,
}

/// Something that a lock guards.
pub struct Ledger;

/// Something to write to it.
pub struct Change;

impl Ledger {
    /// Writes, unless a later holder was here before.
    pub fn write(&self, _: Token, _: Change) -> leasehold::Result<()> {
        Ok(())
    }
}

/// Some work.
pub async fn report() {}

include!(concat!(env!("OUT_DIR"), "/snippets.rs"));

#[cfg(test)]
mod tests {
    /// Should none be found, nothing would be compiled, and nobody would notice.
    #[test]
    fn snippets_are_found() {
        let count = super::COUNT;
        assert!(count >= 5, "{count} snippets");
    }
}
