//! The Lua scripts, put together from their files.
//!
//! Each does on a node what [`protocol::node::Node`](crate::protocol::node::Node) does in Rust; a test drives both with the same random
//! histories.

use leasehold_redis::wire::Script;

use crate::protocol::node::{BARGE, KEEP, TURN};

/// All scripts of a store.
#[derive(Debug)]
pub struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) confirm: Script,
    pub(crate) extend: Script,
    pub(crate) release: Script,
    pub(crate) revoke: Script,
    pub(crate) request: Script,
    pub(crate) look: Script,
    pub(crate) list: Script,
    pub(crate) standing: Script,
}

/// What is written into the scripts.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    /// What all keys and channels begin with.
    pub prefix: &'a str,
    /// The channel of events.
    pub events: &'a str,
    /// What the channels of sessions begin with.
    pub sessions: &'a str,
    /// An expression that gives the time as `TIME` does; another one lets a test set the clock.
    pub clock: &'a str,
    /// An expression that gives what `INFO` says of the process; another one lets a test restart the node.
    pub info: &'a str,
}

/// The server's own clock.
pub const CLOCK: &str = "redis.call('TIME')";

/// What the server says of itself.
pub const INFO: &str = "redis.call('INFO', 'server', 'replication')";

impl Scripts {
    /// The scripts of a store.
    pub fn new(setting: &Setting<'_>) -> Self {
        let script = |source| Script::new(assemble(source, setting));
        Scripts {
            acquire: script(include_str!("../scripts/acquire.lua")),
            confirm: script(include_str!("../scripts/confirm.lua")),
            extend: script(include_str!("../scripts/extend.lua")),
            release: script(include_str!("../scripts/release.lua")),
            revoke: script(include_str!("../scripts/revoke.lua")),
            request: script(include_str!("../scripts/request.lua")),
            look: script(include_str!("../scripts/look.lua")),
            list: script(include_str!("../scripts/list.lua")),
            standing: script(include_str!("../scripts/standing.lua")),
        }
    }
}

fn assemble(source: &str, setting: &Setting<'_>) -> String {
    let Setting { prefix, events, sessions, clock, info } = setting;
    let (locks, lines) = (quote(&format!("{prefix}l:")), quote(&format!("{prefix}q:")));
    let (events, sessions) = (quote(events), quote(sessions));
    let node = format!(
        "local KEEP, TURN, BARGE, LOCKS, LINES = {KEEP}, {TURN}, {BARGE}, {locks}, {lines}\n\
         local EVENTS, SESSIONS = {events}, {sessions}\n{}",
        include_str!("../scripts/node.lua")
    );
    source
        .replace("-- @node\n", &node)
        .replace("-- @lock\n", include_str!("../scripts/lock.lua"))
        .replace(CLOCK, clock)
        .replace(INFO, info)
}

/// A Lua string with this text.
fn quote(text: &str) -> String {
    let escaped: String = text.bytes().map(|b| format!("\\{b:03}")).collect();
    format!("'{escaped}'")
}

/// The keys of one lock on a node.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The node's marker.
    pub marker: String,
    /// Who owns the lock, and its counter.
    pub lock: String,
    /// Those that wait, in their order.
    pub line: String,
    /// What they said.
    pub slips: String,
}

impl Keys {
    /// The keys of the lock with this name. It is written into them as it is: keys may hold any bytes.
    pub fn of(prefix: &str, name: &str) -> Self {
        Keys {
            marker: marker(prefix),
            lock: format!("{prefix}l:{name}"),
            line: format!("{prefix}q:{name}"),
            slips: format!("{prefix}p:{name}"),
        }
    }

    pub(crate) fn all(&self) -> [&str; 4] {
        [&self.marker, &self.lock, &self.line, &self.slips]
    }
}

/// The key of a node's marker.
pub fn marker(prefix: &str) -> String {
    format!("{prefix}node")
}

/// A pattern that matches the keys of all locks whose names start with this.
pub(crate) fn pattern(prefix: &str, start: &str) -> String {
    let mut pattern = String::new();
    for c in format!("{prefix}l:{start}").chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "*"
}
