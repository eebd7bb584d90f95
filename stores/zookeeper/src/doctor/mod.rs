//! What the store can find out about its servers, for `leasehold doctor`.
//!
//! # Layout
//!
//! - this file: collects facts, from the servers' own words and by sessions of its own. Nothing is changed, but for a node that
//!   lives a moment and tells the time.
//! - [`facts`]: what is known, and how a server's words are read.
//! - [`rules`]: what to think of it, without any server.
//! - [`shortest`]: how short a session may be.

mod facts;
mod rules;
mod shortest;

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::clock::wall_micros;
use leasehold_core::doctor::Finding;
use leasehold_core::{Clock, EntryId, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zookeeper_client::{Acls, CreateMode};

use crate::Config;
use crate::link::{Life, connect, connect_for};
use crate::path::unescape;
use facts::{Facts, Server, Words};
use shortest::shortest_session;

/// Longer than a server lets a session be, unless it lets it be as long as one likes.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// How often a round trip through the leader is timed.
const ROUNDS: usize = 7;

/// How many locks are looked at to find the longest queue.
const LOCKS: usize = 20_000;

/// How many of them together.
const TOGETHER: usize = 256;

/// Looks at the servers. Fails only if none can be reached at all.
pub(crate) async fn examine(config: &Config) -> Result<Vec<Finding>> {
    let clock = Clock::system();
    let servers = join_all(config.hosts().iter().map(|(host, port)| ask_server(config, host, *port))).await;
    let life = match connect(config, &clock).await {
        Ok(life) => life,
        // Whoever can't be let in still hears what the servers say of themselves, if they do.
        Err(error) if servers.iter().any(|server| matches!(server.words, Words::Said(_))) => {
            let facts = Facts { servers, login: Some(error.to_string()), ..Facts::new(config.session()) };
            return Ok(rules::judge(&facts));
        }
        Err(error) => return Err(error),
    };
    let mut facts = Facts { servers, given: Some(life.timeout), ..Facts::new(config.session()) };
    facts.shortest = shortest_session(config, &clock).await;
    facts.longest = longest_session(config, &clock).await;
    facts.round_trip = round_trip(config, &life, &clock).await;
    facts.ahead = ahead(config, &life).await;
    (facts.locks, facts.longest_queue) = queues(config, &life).await;
    Ok(rules::judge(&facts))
}

/// What the server makes of a session that is longer than anybody needs.
async fn longest_session(config: &Config, clock: &Clock) -> Option<Duration> {
    connect_for(config, LONG, clock).await.ok().map(|life| life.timeout)
}

async fn round_trip(config: &Config, life: &Life, clock: &Clock) -> Option<Duration> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = clock.now();
        let answer = tokio::time::timeout(config.timeout(), life.client.sync("/")).await;
        if matches!(answer, Ok(Ok(()))) {
            times.push(clock.now().since(begun));
        }
    }
    times.sort();
    times.get(times.len() / 2).copied()
}

/// How far the leader's clock is ahead of ours, in milliseconds. Only a write shows it: a node knows when it was created.
async fn ahead(config: &Config, life: &Life) -> Option<i64> {
    let path = format!("/leasehold-doctor-{}", EntryId::random().ok()?);
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let before = millis();
    let created = tokio::time::timeout(config.timeout(), life.client.create(&path, b"", &ephemeral)).await;
    let (stat, _) = created.ok()?.ok()?;
    let ours = i64::midpoint(before, millis());
    // If this fails, it goes with the session.
    let _ = tokio::time::timeout(config.timeout(), life.client.delete(&path, None)).await;
    Some(stat.ctime - ours)
}

fn millis() -> i64 {
    i64::try_from(wall_micros() / 1000).unwrap_or(i64::MAX)
}

/// How many locks have a node, and how many entries the longest queue has.
async fn queues(config: &Config, life: &Life) -> (Option<usize>, Option<(String, usize)>) {
    let root = config.root();
    let listed = tokio::time::timeout(config.timeout(), life.client.list_children(&root)).await;
    let nodes = match listed {
        Ok(Ok(nodes)) => nodes,
        Ok(Err(zookeeper_client::Error::NoNode)) => return (Some(0), None),
        _ => return (None, None),
    };
    let mut longest: Option<(String, usize)> = None;
    for some in nodes[..nodes.len().min(LOCKS)].chunks(TOGETHER) {
        let looking = join_all(
            some.iter().map(|node| life.client.check_stat(&format!("{root}/{node}"))).collect::<Vec<_>>(),
        );
        let Ok(stats) = tokio::time::timeout(config.timeout(), looking).await else { break };
        for (node, stat) in some.iter().zip(stats) {
            let count = stat.ok().flatten().map_or(0, |stat| usize::try_from(stat.num_children).unwrap_or(0));
            if count > longest.as_ref().map_or(0, |(_, most)| *most) {
                let name = unescape(node).map_or_else(|| node.clone(), |name| name.as_str().to_owned());
                longest = Some((name, count));
            }
        }
    }
    (Some(nodes.len()), longest)
}

async fn ask_server(config: &Config, host: &str, port: u16) -> Server {
    let address = format!("{host}:{port}");
    // A port for encrypted connections has no ear for the four letter words.
    let words = if config.tls().is_some() {
        Words::Silent
    } else {
        tokio::time::timeout(config.timeout(), four_letters(host, port, "srvr"))
            .await
            .unwrap_or(Words::Unreachable)
    };
    Server { address, words }
}

async fn four_letters(host: &str, port: u16, word: &str) -> Words {
    let Ok(mut stream) = TcpStream::connect((host, port)).await else { return Words::Unreachable };
    let mut answer = String::new();
    if stream.write_all(word.as_bytes()).await.is_err() || stream.read_to_string(&mut answer).await.is_err() {
        return Words::Silent;
    }
    Words::read(&answer)
}
