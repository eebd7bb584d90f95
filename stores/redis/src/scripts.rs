//! The Lua scripts, put together from their files.
//!
//! Each script is a quick path for the usual case, and behind it the whole rule (`kept.lua`, `state.lua`), which only runs when it is
//! needed. What is the same for all calls of a store (prefix, retention) is written into the text, so that it does not
//! travel with every command.

use std::time::Duration;

use crate::wire::Script;

/// How many tokens a grant reserves.
pub const BLOCK: u32 = 1024;

/// How many entries of a lock are kept in one string, if they are plain; more are spread over keys.
const FEW: u32 = 8;

/// What the first number of an answer says. The scripts have the same.
pub(crate) mod code {
    pub(crate) const HELD: i64 = 1;
    pub(crate) const CONTENDED: i64 = 2;
    pub(crate) const NOT_STARTED: i64 = 4;
    pub(crate) const WAITING: i64 = 8;
    pub(crate) const GONE: i64 = 16;
    pub(crate) const BUSY: i64 = 32;
    pub(crate) const MISMATCH: i64 = 64;
    /// With [`HELD`]: somebody asked for the lock back.
    pub(crate) const ASKED: i64 = 128;

    pub(crate) const EXPIRED: i64 = 1;
    pub(crate) const REVOKED: i64 = 2;
    pub(crate) const WIPED: i64 = 3;
}

/// All scripts of a store.
#[derive(Debug)]
pub struct Scripts {
    pub(crate) join: Script,
    pub(crate) many: Script,
    pub(crate) renew: Script,
    pub(crate) leave: Script,
    pub(crate) downgrade: Script,
    pub(crate) limit: Script,
    pub(crate) revoke: Script,
    pub(crate) inspect: Script,
}

/// What is written into the scripts.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    /// What all keys and channels begin with.
    pub prefix: &'a str,
    /// The number of the database: channels are the same in all of them.
    pub db: i64,
    /// Whether the keys are spread over the nodes of a cluster.
    pub cluster: bool,
    /// How long the last token of an idle lock is kept.
    pub retention: Duration,
    /// An expression that gives the time as `TIME` does; another one lets a test set the clock.
    pub clock: &'a str,
}

impl Scripts {
    /// The scripts of a store.
    pub fn new(setting: &Setting<'_>) -> Self {
        let script = |source| Script::new(assemble(source, setting));
        Scripts {
            join: script(include_str!("../scripts/join.lua")),
            many: script(include_str!("../scripts/many.lua")),
            renew: script(include_str!("../scripts/renew.lua")),
            leave: script(include_str!("../scripts/leave.lua")),
            downgrade: script(include_str!("../scripts/downgrade.lua")),
            limit: script(include_str!("../scripts/limit.lua")),
            revoke: script(include_str!("../scripts/revoke.lua")),
            inspect: script(include_str!("../scripts/inspect.lua")),
        }
    }

    /// All of them, with a name for people.
    pub fn all(&self) -> [(&'static str, &Script); 8] {
        [
            ("join", &self.join),
            ("many", &self.many),
            ("renew", &self.renew),
            ("leave", &self.leave),
            ("downgrade", &self.downgrade),
            ("limit", &self.limit),
            ("revoke", &self.revoke),
            ("inspect", &self.inspect),
        ]
    }
}

fn assemble(source: &str, setting: &Setting<'_>) -> String {
    let Setting { prefix, db, retention, clock, cluster } = setting;
    let watched = if *cluster {
        // The key lives where the node's tag leads. While slots move that may be elsewhere: then nobody watches.
        format!("redis.pcall('EXISTS', {} .. TAG .. '}}:w') == 1", quote(&format!("{prefix}{{")))
    } else {
        format!("redis.call('EXISTS', {}) == 1", quote(&format!("{prefix}w")))
    };
    let prefix = quote(prefix);
    let retention = retention.as_millis();
    let constants = format!(
        "local PREFIX, DB, RETENTION, BLOCK, FEW = {prefix}, {db}, '{retention}', {BLOCK}, {FEW}\n\
         local HELD, CONTENDED, NOT_STARTED, WAITING, GONE, BUSY, MISMATCH, ASKED = {}, {}, {}, {}, {}, {}, {}, {}\n\
         local EXPIRED, REVOKED, WIPED = {}, {}, {}\n",
        code::HELD,
        code::CONTENDED,
        code::NOT_STARTED,
        code::WAITING,
        code::GONE,
        code::BUSY,
        code::MISMATCH,
        code::ASKED,
        code::EXPIRED,
        code::REVOKED,
        code::WIPED,
    );
    source
        .replace("-- @constants\n", &constants)
        .replace("@watched", &watched)
        .replace("@cluster", if *cluster { "true" } else { "false" })
        .replace("-- @expand\n", include_str!("../scripts/expand.lua"))
        .replace(
            "-- @state\n",
            concat!(include_str!("../scripts/kept.lua"), include_str!("../scripts/state.lua")),
        )
        .replace("-- @show\n", include_str!("../scripts/show.lua"))
        .replace("@time", clock)
}

/// A Lua string with this text.
fn quote(text: &str) -> String {
    let escaped: String = text.bytes().map(|b| format!("\\{b:03}")).collect();
    format!("'{escaped}'")
}

/// The server's own clock.
pub const SERVER_CLOCK: &str = "redis.call('TIME')";
