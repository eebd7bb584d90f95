//! Asking a server. What our user may not ask is left out; that a server does not answer is an error.

use std::future::Future;
use std::time::{Duration, Instant};

use leasehold_core::clock::wall_micros;
use leasehold_core::{Kind, Result};
use redis::{Cmd, Value};

use super::facts::{Cache, Facts, Reading, Seen};
use super::fields::{Fields, text};
use super::rights::{self, Scope};
use crate::store::Redis;
use crate::wire::{Call, Link, Slot, Wire};

/// The settings that matter.
const SETTINGS: [&str; 7] = [
    "maxmemory",
    "maxmemory-policy",
    "save",
    "appendonly",
    "appendfsync",
    "min-replicas-to-write",
    "timeout",
];

/// How often the clock is read: the quickest answer says it best.
const READINGS: usize = 5;

/// How many locks are looked at for their tokens.
const LOCKS: usize = 200;

/// Somebody who answers commands.
pub(crate) trait Ask: Sync {
    /// Sends a command.
    fn ask(&self, cmd: Cmd) -> impl Future<Output = Result<Value>> + Send;

    /// Sends a command that our user may not be allowed to run, or that the server may not know.
    fn may_ask(&self, cmd: Cmd) -> impl Future<Output = Result<Option<Value>>> + Send {
        async move {
            match self.ask(cmd).await {
                Ok(answer) => Ok(Some(answer)),
                Err(e) if e.kind() == Kind::Unavailable => Err(e),
                Err(_) => Ok(None),
            }
        }
    }
}

/// One of the masters that a store uses.
#[derive(Clone, Copy)]
pub(crate) struct Master<'a> {
    pub(crate) wire: &'a Wire,
    pub(crate) slot: Slot,
}

impl Ask for Master<'_> {
    async fn ask(&self, cmd: Cmd) -> Result<Value> {
        self.wire.run(Call::command(self.slot, cmd)).await
    }
}

/// One server, with the time that an answer may take.
pub(crate) struct Alone<'a>(pub(crate) &'a Link, pub(crate) Duration);

impl Ask for Alone<'_> {
    async fn ask(&self, cmd: Cmd) -> Result<Value> {
        self.0.run(&Call::command(Slot(0), cmd), self.1).await
    }
}

/// What can be seen of any server.
pub(crate) async fn facts(to: &impl Ask) -> Result<Facts> {
    let (facts, _) = facts_and_info(to).await?;
    Ok(facts)
}

async fn facts_and_info(to: &impl Ask) -> Result<(Facts, Fields)> {
    // Without a section it is what every version shows by default.
    let info = to.may_ask(redis::cmd("INFO")).await?;
    let info = info.as_ref().map_or_else(Fields::default, |answer| Fields::of_lines(&text(answer)));
    let mut settings = redis::cmd("CONFIG");
    settings.arg("GET").arg(&SETTINGS[..]);
    let config = to.may_ask(settings).await?;
    let config = config.as_ref().map_or_else(Fields::default, Fields::of_list);
    let clock = clock(to).await?;
    Ok((Facts { clock, ..Facts::of(&info, &config) }, info))
}

/// The server's clock against ours.
async fn clock(to: &impl Ask) -> Result<Option<Reading>> {
    let mut best: Option<Reading> = None;
    for _ in 0..READINGS {
        let (before, begun) = (wall_micros(), Instant::now());
        let Some(answer) = to.may_ask(redis::cmd("TIME")).await? else { break };
        let error = begun.elapsed() / 2;
        let Some(server) = micros(&answer) else { break };
        let ours = before.saturating_add(u64::try_from(error.as_micros()).unwrap_or(0));
        let ahead = i64::try_from(i128::from(server) - i128::from(ours)).unwrap_or(i64::MAX);
        if best.is_none_or(|best| error < best.error) {
            best = Some(Reading { ahead, error });
        }
    }
    Ok(best)
}

fn micros(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let part = |at: usize| text(parts.get(at)?).parse::<u64>().ok();
    part(0)?.checked_mul(1_000_000)?.checked_add(part(1)?)
}

/// What the store can see of one of its masters.
pub(crate) async fn master(store: &Redis, to: Master<'_>) -> Result<Seen> {
    let (facts, info) = facts_and_info(&to).await?;
    Ok(Seen {
        facts,
        cache: cache(store, to, &info).await?,
        denied: denied(store, to).await?,
        sentinels: sentinels(to).await?,
        highest: highest_token(store, to).await?,
        now: wall_micros(),
    })
}

async fn cache(store: &Redis, to: Master<'_>, info: &Fields) -> Result<Cache> {
    let scripts = store.scripts.all();
    let mut exists = redis::cmd("SCRIPT");
    exists.arg("EXISTS");
    for (_, script) in &scripts {
        exists.arg(script.digest());
    }
    let ours = match to.may_ask(exists).await? {
        Some(Value::Array(known)) => Some(known.iter().filter(|known| **known == Value::Int(1)).count()),
        _ => None,
    };
    Ok(Cache { ours, of: scripts.len(), all: info.number("number_of_cached_scripts") })
}

async fn denied(store: &Redis, to: Master<'_>) -> Result<Option<Vec<rights::Right>>> {
    let post = to.wire.post(to.slot);
    let config = &store.config;
    let needed = rights::needed(&Scope {
        prefix: config.prefix(),
        db: config.db(),
        tag: &post.tag,
        waits_for_replicas: config.replicas() > 0,
    });
    let answer = to.may_ask(rights::question(&needed)).await?;
    Ok(answer.map(|answer| rights::denied(&needed, &answer)))
}

/// How many Sentinels listen to a server: each of them has subscribed to their common channel on it.
async fn sentinels(to: Master<'_>) -> Result<Option<u64>> {
    let mut listening = redis::cmd("PUBSUB");
    listening.arg("NUMSUB").arg("__sentinel__:hello");
    let answer = to.may_ask(listening).await?;
    Ok(answer.and_then(|answer| Fields::of_list(&answer).number("__sentinel__:hello")))
}

/// The highest token among some of the locks that this server has.
async fn highest_token(store: &Redis, to: Master<'_>) -> Result<u64> {
    let [pattern, _] = store.keys.patterns("");
    let mut scan = redis::cmd("SCAN");
    scan.arg(0).arg("MATCH").arg(pattern).arg("COUNT").arg(1_000);
    let Some(Value::Array(answer)) = to.may_ask(scan).await? else { return Ok(0) };
    let Some(Value::Array(keys)) = answer.get(1) else { return Ok(0) };
    let looks = keys.iter().take(LOCKS).map(|key| {
        let key = text(key);
        let mut get = redis::cmd("GET");
        get.arg(&key);
        Call::command(Slot::of(key.as_bytes()), get)
    });
    let answers = to.wire.run_all(looks.collect()).await;
    Ok(answers.iter().filter_map(|answer| last_token(&text(answer.as_ref().ok()?))).max().unwrap_or(0))
}

/// The state of a lock begins with a letter and the highest token that it gave out, in 16 digits.
fn last_token(state: &str) -> Option<u64> {
    state.get(2..18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_server_is_read_in_microseconds() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        assert_eq!(
            micros(&Value::Array(vec![bulk("1800000000"), bulk("250000")])),
            Some(1_800_000_000_250_000)
        );
        assert_eq!(micros(&Value::Array(vec![bulk("18446744073709551615"), bulk("0")])), None);
        assert_eq!(micros(&Value::Nil), None);
    }

    #[test]
    fn the_last_token_stands_at_the_same_place_in_every_state() {
        assert_eq!(last_token("f 1800000000000000"), Some(1_800_000_000_000_000));
        assert_eq!(last_token("h 0000000000000007 abc"), Some(7));
        assert_eq!(last_token("something else, of another program"), None);
        assert_eq!(last_token(""), None);
    }
}
