//! What errors of a database mean for whoever ran a statement.

use leasehold_core::{Error, Kind, Retry};

/// How a database that can't be written is told.
const READ_ONLY: &str = "the database can only be read";

/// How a row is told that was to be added and is there.
const TAKEN: &str = "the row is there already";

/// What to do about an error.
#[derive(Debug)]
pub enum Trouble {
    /// Everything was rolled back because of others. Again.
    Again,
    /// The tables are not there.
    NoTables,
    /// The connection is of no use any more.
    Broken(Error),
    /// Nothing helps.
    Error(Error),
}

impl Trouble {
    /// The database can't be written now. After a failover it may be.
    pub fn read_only(said: &str, advice: &str) -> Trouble {
        let error = Error::new(Kind::Unavailable, format!("{READ_ONLY}: {said}"));
        Trouble::Broken(error.advice(advice).retry(Retry::Later))
    }

    /// The user may not. `sort` is what `leasehold schema` calls the database.
    pub fn no_rights(said: &str, sort: &str) -> Trouble {
        let advice = format!(
            "let the user create tables, or create them with what `leasehold schema {sort}` prints and grant SELECT, INSERT, \
             UPDATE and DELETE on them"
        );
        Trouble::Error(Error::new(Kind::Refused, format!("the database refuses it: {said}")).advice(advice))
    }

    /// The user, the password or the database is not the right one.
    pub fn no_entry(said: &str) -> Trouble {
        Trouble::Broken(Error::new(Kind::Refused, format!("the database refuses the connection: {said}")))
    }

    /// The database is there and can't work now.
    pub fn unavailable(said: &str) -> Trouble {
        Trouble::Broken(Error::new(Kind::Unavailable, format!("the database is not available: {said}")))
    }

    /// A row with the same key is there. Whoever added an entry looks again: another request of the same entry was faster.
    /// For all others it is final: the same statement would fail the same way.
    pub fn taken(said: &str) -> Trouble {
        Trouble::Error(Error::new(Kind::Store, format!("{TAKEN}: {said}")))
    }

    /// Anything else that the database says.
    pub fn said(said: &str) -> Trouble {
        Trouble::Error(Error::new(Kind::Store, format!("the database reports an error: {said}")))
    }
}

impl From<Error> for Trouble {
    /// An error of a connection.
    fn from(error: Error) -> Trouble {
        Trouble::Broken(error)
    }
}

/// Whether the database could not be written, and all else was well.
pub fn is_read_only(error: &Error) -> bool {
    error.what().starts_with(READ_ONLY)
}

/// Whether a row could not be added because one with its key is there.
pub fn is_taken(error: &Error) -> bool {
    error.what().starts_with(TAKEN)
}

/// The tables are of another version.
pub fn other_schema(said: &str) -> Error {
    Error::new(Kind::Mismatch, format!("the lock tables are of another version: {said}"))
        .advice("use another prefix, or drop the tables while nobody uses them: they are created anew")
}
