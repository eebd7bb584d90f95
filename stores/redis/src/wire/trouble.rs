//! From the errors of a server or a connection to ours.
//!
//! The contract of [`Retry`] decides: `Later` only where the command certainly had no effect, `SameId` where it may have.

use leasehold_core::{Error, Kind, Retry};
use redis::{RedisError, ServerError};

use crate::config::Address;

/// What a server's refusal asks for.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The script has to be sent in full.
    NoScript,
    /// The slot lives elsewhere, for good.
    Moved(Option<Address>),
    /// This one command goes elsewhere: the slot is being moved.
    Ask(Option<Address>),
    /// The same again, a little later: the server starts, or the cluster changes.
    Again(Error),
    /// The server became a replica. Nothing was changed.
    NotMaster(Error),
    /// It is the caller's to know.
    Failed(Error),
}

/// Reads a server's error. `from` is the server that sent it.
pub(crate) fn judge(error: &ServerError, from: &Address) -> Verdict {
    let details = error.details().unwrap_or("");
    match error.code() {
        "NOSCRIPT" => Verdict::NoScript,
        "MOVED" => Verdict::Moved(redirection(details, from)),
        "ASK" => Verdict::Ask(redirection(details, from)),
        "TRYAGAIN" => Verdict::Again(again(from, "is moving the slot", "try again in a moment", error)),
        "LOADING" => Verdict::Again(again(from, "is loading its data", "try again in a moment", error)),
        "MASTERDOWN" => {
            Verdict::Again(again(from, "is a replica without its master", "check the master", error))
        }
        "CLUSTERDOWN" => Verdict::Again(again(
            from,
            "says that the cluster is down",
            "check that every slot has a master that runs (redis-cli --cluster check)",
            error,
        )),
        "READONLY" => Verdict::NotMaster(again(
            from,
            "is a read-only replica",
            "give the address of the master, or use redis+sentinel:// to follow it",
            error,
        )),
        "UNBLOCKED" => Verdict::NotMaster(again(
            from,
            "stopped being the master while its replicas were waited for",
            "try again in a moment",
            error,
        )),
        _ if details.contains("attempted to access a non local key") => {
            Verdict::Again(again(from, "is moving the slot", "try again in a moment", error))
        }
        code => Verdict::Failed(failed(code, details, error, from)),
    }
}

fn again(from: &Address, what: &str, advice: &str, error: &ServerError) -> Error {
    Error::new(Kind::Unavailable, format!("the server {from} {what}"))
        .because(error.clone())
        .advice(advice)
        .retry(Retry::Later)
}

/// The errors that no other try can help, or only one by the caller.
fn failed(code: &str, details: &str, error: &ServerError, from: &Address) -> Error {
    let made = |kind, what: String, advice: &str, retry| {
        Error::new(kind, what).because(error.clone()).advice(advice).retry(retry)
    };
    match code {
        "OOM" => made(
            Kind::Refused,
            format!("the server {from} is out of memory, and nothing was changed"),
            "raise maxmemory or free some; don't let it evict keys: that would end locks (maxmemory-policy noeviction)",
            Retry::Later,
        ),
        "BUSY" => made(
            Kind::Unavailable,
            format!("the server {from} is busy with a script, and nothing was changed"),
            "find who runs such a long script; SCRIPT KILL ends it",
            Retry::Later,
        ),
        "MISCONF" => made(
            Kind::Refused,
            format!(
                "the server {from} takes no writes because it can't save to its disk; nothing was changed"
            ),
            "check its disk and its log",
            Retry::Later,
        ),
        "NOREPLICAS" => made(
            Kind::Unavailable,
            format!(
                "the server {from} takes no writes because too few of its replicas answer; nothing was changed"
            ),
            "check the replicas, or min-replicas-to-write of the server",
            Retry::Later,
        ),
        "WRONGTYPE" => made(
            Kind::Mismatch,
            format!("the server {from} has a key of another type under our name"),
            "somebody else uses this prefix: choose another with ?prefix=…",
            Retry::Never,
        ),
        "NOAUTH" => made(
            Kind::Refused,
            format!("the server {from} wants a password, and none was given"),
            "write redis://user:password@host, or ?password-file=PATH",
            Retry::Never,
        ),
        "WRONGPASS" => made(
            Kind::Refused,
            format!("the server {from} does not know this user and password"),
            "check both; without a user it is `default`",
            Retry::Never,
        ),
        "NOPERM" => made(
            Kind::Refused,
            format!("the server {from} does not allow that to our user: {details}"),
            "give it the rights that docs/redis-acl.md lists",
            Retry::Never,
        ),
        "CROSSSLOT" => made(
            Kind::Store,
            format!("the server {from} says that the keys of one lock are in different slots"),
            "please report this",
            Retry::Never,
        ),
        // A server of a cluster counts the others in: "max number of clients + cluster connections reached".
        _ if details.contains("max number of clients") => made(
            Kind::Unavailable,
            format!("the server {from} has as many clients as it takes"),
            "raise `maxclients` of the server, or find who keeps so many connections",
            Retry::Later,
        ),
        _ if details.contains("DB index is out of range") => made(
            Kind::Invalid,
            format!("the server {from} has no database of this number"),
            "choose a lower number, or raise `databases` of the server (it is 16 by default)",
            Retry::Never,
        ),
        _ if refused_inside_a_script(details) => made(
            Kind::Refused,
            format!("the server {from} does not allow our user what the scripts of locks do"),
            "`leasehold doctor` names the missing right, and docs/redis-acl.md lists all",
            Retry::Never,
        ),
        _ if own_words(details).is_some() => made(
            Kind::Mismatch,
            format!("at the server {from} {}", own_words(details).unwrap_or_default()),
            "somebody else uses this prefix: choose another with ?prefix=…",
            Retry::Never,
        ),
        _ => {
            made(Kind::Store, format!("the server {from} refused the command"), "see its words", Retry::Never)
        }
    }
}

/// How Redis 7.0 and later ones say it.
fn refused_inside_a_script(details: &str) -> bool {
    ["can't run this command or subcommand", "can't access at least one of the", "ACL failure in script"]
        .iter()
        .any(|words| details.contains(words))
}

/// What our own scripts say when they give up, without the words that the server puts around it.
fn own_words(details: &str) -> Option<&str> {
    let (_, words) = details.split_once("LEASEHOLD ")?;
    Some(words.split_once(" script: ").map_or(words, |(words, _)| words))
}

/// `1234 10.0.0.1:6379`. An empty host means the one that was asked, a `?` that the server does not know.
fn redirection(details: &str, from: &Address) -> Option<Address> {
    let place = details.split_ascii_whitespace().nth(1)?;
    let (host, port) = place.rsplit_once(':')?;
    let port = port.parse().ok()?;
    match host.trim_matches(['[', ']']) {
        "" => Some(Address::tcp(from.host()?, port)),
        "?" => None,
        host => Some(Address::tcp(host, port)),
    }
}

/// A connection that failed while a command was on its way: the server may have done it.
pub(crate) fn on_the_way(what: &str, error: &RedisError) -> Error {
    Error::new(Kind::Unavailable, what)
        .because(error.clone())
        .advice("the command may have been done or not")
        .retry(Retry::SameId)
}

/// A connection that failed before the first command.
pub(crate) fn on_connect(to: &Address, error: &RedisError) -> Error {
    if let Some(refusal) = error.clone().into_server_errors().and_then(|all| all.first().cloned()) {
        return match judge(&refusal.1, to) {
            Verdict::Again(e) | Verdict::NotMaster(e) | Verdict::Failed(e) => e,
            Verdict::NoScript | Verdict::Moved(_) | Verdict::Ask(_) => foreign(to, error),
        };
    }
    match error.kind() {
        redis::ErrorKind::Parse => foreign(to, error),
        _ if error.is_timeout() => no_answer(to),
        // With TLS 1.3 the server judges our certificate after the handshake.
        _ if error.to_string().contains("fatal alert") => {
            Error::new(Kind::Refused, format!("the server {to} does not accept our certificate"))
                .because(error.clone())
                .advice("give one that it knows, with ?cert=PATH&key=PATH")
                .retry(Retry::Never)
        }
        _ => Error::new(Kind::Unavailable, format!("the server {to} closed the connection"))
            .because(error.clone())
            .advice("is it a Redis server, and does it want TLS (rediss://)?")
            .retry(Retry::Later),
    }
}

/// Whether a Redis server has answered, and this is what it said.
pub(crate) fn is_answer(error: &Error) -> bool {
    let said = std::error::Error::source(error).is_some_and(|source| source.is::<ServerError>());
    said || error.kind() == Kind::Refused
}

/// It accepts connections, and says nothing.
pub(crate) fn no_answer(to: &Address) -> Error {
    Error::new(Kind::Unavailable, format!("the server {to} accepts connections, but does not answer"))
        .advice("does it hang? is it a Redis server? does it want TLS (rediss://)?")
        .retry(Retry::Later)
}

/// It answers, but not as a Redis server does.
pub(crate) fn foreign(to: &Address, error: &RedisError) -> Error {
    Error::new(Kind::Invalid, format!("what answers at {to} is not a Redis server"))
        .because(error.clone())
        .advice("check the port; if the server wants TLS, write rediss://")
        .retry(Retry::Never)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> ServerError {
        match redis::parse_redis_value(format!("-{text}\r\n").as_bytes()) {
            Ok(redis::Value::ServerError(e)) => e,
            other => panic!("{other:?}"),
        }
    }

    fn here() -> Address {
        Address::tcp("10.0.0.9", 7000)
    }

    #[test]
    fn redirections_name_a_place() {
        let place = |text: &str| match judge(&said(text), &here()) {
            Verdict::Moved(place) | Verdict::Ask(place) => place.map(|place| place.to_string()),
            other => panic!("{other:?}"),
        };
        assert_eq!(place("MOVED 5 10.0.0.1:6379").as_deref(), Some("10.0.0.1:6379"));
        assert_eq!(place("ASK 5 fe80::1:6379").as_deref(), Some("[fe80::1]:6379"));
        assert_eq!(place("MOVED 5 :7001").as_deref(), Some("10.0.0.9:7001"));
        for broken in ["MOVED 5 ?:7001", "MOVED 5", "MOVED", "MOVED 5 x:y", "ASK 5 h:99999999"] {
            assert_eq!(place(broken), None, "{broken}");
        }
    }

    #[test]
    fn what_was_not_done_may_be_tried_later() {
        for text in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "BUSY Redis is busy running a script.",
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
            "LOADING Redis is loading the dataset in memory",
            "CLUSTERDOWN The cluster is down",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "READONLY You can't write against a read only replica.",
            "ERR max number of clients reached",
            "ERR max number of clients + cluster connections reached",
        ] {
            match judge(&said(text), &here()) {
                Verdict::Again(e) | Verdict::NotMaster(e) | Verdict::Failed(e) => {
                    assert_eq!(e.retry_advice(), Retry::Later, "{e}");
                    assert!(e.advice_text().is_some(), "{e}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_can_never_work_says_so() {
        for (text, kind) in [
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Kind::Mismatch),
            ("NOAUTH Authentication required.", Kind::Refused),
            ("WRONGPASS invalid username-password pair or user is disabled.", Kind::Refused),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Kind::Refused),
            ("ERR DB index is out of range", Kind::Invalid),
            ("ERR something else", Kind::Store),
            (
                "ERR The user executing the script can't run this command or subcommand script: 1f, on @user_script:1.",
                Kind::Refused,
            ),
            (
                "ERR user_script:9: LEASEHOLD the key k holds something that is not a lock script: 1f, on @user_script:9.",
                Kind::Mismatch,
            ),
        ] {
            match judge(&said(text), &here()) {
                Verdict::Failed(e) => {
                    assert_eq!((e.kind(), e.retry_advice()), (kind, Retry::Never), "{e}");
                    assert!(e.to_string().contains("10.0.0.9:7000"), "{e}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
