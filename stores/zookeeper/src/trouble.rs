//! What the errors of ZooKeeper and its client mean for locks.

use leasehold_core::{Error, Kind, Retry};
use zookeeper_client as zk;

/// Translates an error that the caller had no use for.
pub(crate) fn trouble(error: &zk::Error) -> Error {
    use zk::Error as E;
    let refused = |what: &str, advice: &str| Error::new(Kind::Refused, what).advice(advice);
    match error {
        E::NoAuth => refused(
            "the user may not do this with the nodes of the lock",
            "log in as the user who made them, or change their ACLs",
        ),
        E::InvalidAcl => {
            refused("the server refused the ACL", "log in with a user that the server knows, or use acl=open")
        }
        E::QuotaExceeded => refused("a quota of the server is used up", "raise it, or use another chroot"),
        E::Unimplemented => refused("the server is too old", "use ZooKeeper 3.6 or later"),
        E::NotReadOnly => later("the server is read-only: it has lost the others of its ensemble"),
        E::Throttled => later("the server is overloaded and put the request off"),
        E::BadArguments(what) => Error::new(Kind::Invalid, format!("the server would refuse this: {what}")),
        E::UnmarshalError { .. } | E::UnexpectedErrorCode(_) | E::MarshallingError => {
            Error::new(Kind::Store, "the server's answer was not understood").because(error.clone())
        }
        // The rest may or may not have had an effect: a lost connection, an ended session, also one that the server did not
        // let in again because the password is another now.
        _ => Error::new(Kind::Unavailable, "the connection to the server was lost").because(error.clone()),
    }
}

/// The server does not let us begin a session.
pub(crate) fn no_entry() -> Error {
    Error::new(Kind::Refused, "the server refused the login").advice("check user, password and auth=")
}

/// What certainly had no effect, and can be tried again.
pub(crate) fn later(what: impl Into<String>) -> Error {
    Error::new(Kind::Unavailable, what).retry(Retry::Later)
}

/// Whether a request with this answer may have had an effect.
pub(crate) fn is_unknown(error: &zk::Error) -> bool {
    trouble(error).retry_advice() == Retry::SameId
}
