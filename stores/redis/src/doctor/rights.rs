//! What our user must be allowed to do. A script asks the server about each, and does none of it: that needs no more rights
//! than every lock does.

use leasehold_core::SessionId;
use redis::{Cmd, Value};

use crate::wire::channels;

/// What a right is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum For {
    /// Taking, keeping and giving back locks.
    Locks,
    /// Being told when it is one's turn.
    Messages,
    /// `ls` and `watch`.
    Views,
}

/// One thing that our user has to be allowed to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) needed_for: For,
    /// The command, with a key or channel of the kind that it is run on.
    words: Vec<String>,
}

impl Right {
    fn new(needed_for: For, words: &[&str]) -> Self {
        Right { needed_for, words: words.iter().map(|word| (*word).to_owned()).collect() }
    }

    /// The command that is needed.
    pub(crate) fn command(&self) -> &str {
        &self.words[0]
    }
}

/// Where rights are needed.
#[derive(Debug, Clone)]
pub(crate) struct Scope<'a> {
    /// What all keys and channels begin with.
    pub(crate) prefix: &'a str,
    pub(crate) db: i64,
    /// The tag of the node in a cluster, else empty.
    pub(crate) tag: &'a str,
    /// Whether grants wait for replicas.
    pub(crate) waits_for_replicas: bool,
}

/// The commands that the scripts run on a lock's keys, and what follows the key.
const IN_SCRIPTS: &[(&str, &[&str])] = &[
    ("GET", &[]),
    ("SET", &["x"]),
    ("DEL", &[]),
    ("EXISTS", &[]),
    ("PEXPIREAT", &["1"]),
    ("HGET", &["x"]),
    ("HLEN", &[]),
    ("HMGET", &["x"]),
    ("HSET", &["x", "y"]),
    ("HDEL", &["x"]),
    ("ZADD", &["1", "x"]),
    ("ZREM", &["x"]),
    ("ZCARD", &[]),
    ("ZRANGE", &["0", "0"]),
    ("ZRANGEBYSCORE", &["0", "0"]),
    ("ZRANK", &["x"]),
    ("ZSCORE", &["x"]),
];

/// Everything that is needed.
pub(crate) fn needed(scope: &Scope<'_>) -> Vec<Right> {
    let Scope { prefix, db, tag, waits_for_replicas } = scope;
    let key = format!("{prefix}n:{{{tag}}}");
    let (channel, events) =
        (channels::session(prefix, tag, SessionId(0)), channels::events(prefix, tag, *db));
    let (publish, subscribe) =
        if tag.is_empty() { ("PUBLISH", "SUBSCRIBE") } else { ("SPUBLISH", "SSUBSCRIBE") };

    let mut rights = vec![
        Right::new(For::Locks, &["EVALSHA", "x", "1", &key]),
        Right::new(For::Locks, &["EVAL", "x", "1", &key]),
        Right::new(For::Locks, &["TIME"]),
    ];
    for (name, rest) in IN_SCRIPTS {
        let words: Vec<&str> = [*name, &key].into_iter().chain(rest.iter().copied()).collect();
        rights.push(Right::new(For::Locks, &words));
    }
    if *waits_for_replicas {
        rights.push(Right::new(For::Locks, &["WAIT", "1", "1"]));
    }
    rights.extend([
        Right::new(For::Messages, &[publish, &channel, "x"]),
        Right::new(For::Messages, &[subscribe, &channel]),
        Right::new(For::Views, &[subscribe, &events]),
        Right::new(For::Views, &["SCAN", "0"]),
    ]);
    rights
}

/// Asks which of them our user has not.
pub(crate) fn question(rights: &[Right]) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(include_str!("rights.lua")).arg(0);
    for right in rights {
        cmd.arg(right.words.len()).arg(&right.words);
    }
    cmd
}

/// Those that our user has not, by the answer to the question.
pub(crate) fn denied(rights: &[Right], answer: &Value) -> Vec<Right> {
    let Value::Array(places) = answer else { return Vec::new() };
    let place = |value: &Value| match value {
        Value::Int(place) => usize::try_from(*place).ok()?.checked_sub(1),
        _ => None,
    };
    places.iter().filter_map(place).filter_map(|place| rights.get(place)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SCRIPTS: [&str; 12] = [
        include_str!("../../scripts/downgrade.lua"),
        include_str!("../../scripts/inspect.lua"),
        include_str!("../../scripts/join.lua"),
        include_str!("../../scripts/kept.lua"),
        include_str!("../../scripts/leave.lua"),
        include_str!("../scripts.rs"),
        include_str!("../../scripts/limit.lua"),
        include_str!("../../scripts/many.lua"),
        include_str!("../../scripts/renew.lua"),
        include_str!("../../scripts/revoke.lua"),
        include_str!("../../scripts/show.lua"),
        include_str!("../../scripts/state.lua"),
    ];

    #[test]
    fn every_command_of_the_scripts_is_asked_about() {
        let calls = SCRIPTS.iter().flat_map(|script| script.split("call('").skip(1));
        let used: BTreeSet<&str> = calls.filter_map(|rest| rest.split('\'').next()).collect();
        let asked: BTreeSet<&str> =
            IN_SCRIPTS.iter().map(|(name, _)| *name).chain(["TIME", "PUBLISH", "SPUBLISH"]).collect();
        assert_eq!(used, asked);
    }

    #[test]
    fn a_cluster_needs_sharded_channels_and_replicas_need_waiting() {
        let scope = Scope { prefix: "p:", db: 0, tag: "3x", waits_for_replicas: true };
        let all = needed(&scope);
        let words = |command: &str| &all.iter().find(|right| right.command() == command).unwrap().words;
        assert!(words("SSUBSCRIBE")[1].starts_with("p:{3x}:s:"), "{all:#?}");
        assert_eq!(words("GET")[1], "p:n:{3x}");
        assert_eq!(words("WAIT").len(), 3);
        let plain = needed(&Scope { tag: "", waits_for_replicas: false, ..scope });
        assert!(plain.iter().all(|right| !["WAIT", "SSUBSCRIBE"].contains(&right.command())));
    }

    #[test]
    fn the_answer_counts_from_one() {
        let all = needed(&Scope { prefix: "p:", db: 0, tag: "", waits_for_replicas: false });
        let answer = Value::Array(vec![Value::Int(1), Value::Int(3), Value::Int(0), Value::Int(999)]);
        let commands: Vec<String> =
            denied(&all, &answer).iter().map(|right| right.command().to_owned()).collect();
        assert_eq!(commands, ["EVALSHA", "TIME"]);
        assert!(denied(&all, &Value::Nil).is_empty());
    }
}
