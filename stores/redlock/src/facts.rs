//! What can be known of the nodes and matters for a quorum of them: the facts behind `leasehold doctor`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold_core::clock::wall_micros;
use leasehold_core::{Kind, Result, SessionId};
use leasehold_redis::doctor;
use leasehold_redis::wire::Pushes;
use redis::Value;

use crate::node::Node;
use crate::protocol::Quorum;
use crate::protocol::standing::{Report, Standing, waiting_time};
use crate::store::Redlock;

/// What was found out about a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// How many nodes there are, and how many of them decide.
    pub quorum: Quorum,
    /// Each node, in the order of the configuration.
    pub nodes: Vec<NodeFacts>,
}

/// What was found out about one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Where it is, without a password.
    pub node: String,
    /// What it said, or why it said nothing.
    pub answer: Result<Answer, String>,
    /// Whose replica it is, if it is one. Then it can't be a node: locks are not asked of it.
    pub replica_of: Option<String>,
}

/// What a node said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// How it stands in the set.
    pub standing: Standing,
    /// The number of the set it belongs to; 0 if it is blank or in quarantine.
    pub set: u64,
    /// How long it is still not counted, at least; `None` if it counts.
    pub quarantined_for: Option<Duration>,
    /// The id of its process: two nodes with the same one are the same server.
    pub run_id: String,
    /// `master`, or `slave` if it is a replica of another server.
    pub role: String,
    /// How far its clock is ahead of ours (or behind), in microseconds. Known to half a round trip.
    pub clock: i64,
    /// How long it took to answer.
    pub round_trip: Duration,
    /// Its version.
    pub version: String,
    /// For how long it runs.
    pub uptime: Duration,
    /// What it does when its memory is full: anything but `noeviction` may throw locks away.
    pub eviction: String,
    /// Whether it writes every change to disk, so that a restart finds them again.
    pub append_only: bool,
}

impl Facts {
    /// Pairs of nodes that are not independent: the same server, or one a replica of the other. By their numbers.
    pub fn dependent(&self) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for (b, second) in self.nodes.iter().enumerate() {
            for (a, first) in self.nodes[..b].iter().enumerate() {
                let same = matches!((&first.answer, &second.answer), (Ok(a), Ok(b)) if a.run_id == b.run_id);
                let follows = |replica: &NodeFacts, master: &NodeFacts| {
                    replica.replica_of.as_ref() == Some(&master.node)
                };
                if same || follows(first, second) || follows(second, first) {
                    pairs.push((a, b));
                }
            }
        }
        pairs
    }

    /// How far the clocks of the nodes are apart.
    pub fn clock_spread(&self) -> Duration {
        let clocks = || self.nodes.iter().filter_map(|node| Some(node.answer.as_ref().ok()?.clock));
        match (clocks().min(), clocks().max()) {
            (Some(low), Some(high)) => Duration::from_micros(high.abs_diff(low)),
            _ => Duration::ZERO,
        }
    }

    /// How many nodes can be counted now.
    pub fn counted(&self) -> usize {
        let open =
            |node: &&NodeFacts| matches!(&node.answer, Ok(answer) if answer.standing == Standing::Open);
        self.nodes.iter().filter(open).count()
    }
}

struct Deaf;

impl Pushes for Deaf {
    fn note(&self, _: &[u8]) {}
    fn event(&self, _: &[u8]) {}
    fn resumed(&self, _: u64) {}
}

/// Asks every node about itself. Changes nothing, and takes no longer than a node may take to answer a few times. Nodes that don't
/// answer are part of the facts.
pub async fn facts(store: &Redlock) -> Result<Facts> {
    let config = &store.config;
    let session = SessionId::random()?;
    let start = |(n, server)| Node::start(n, server, config, store.scripts.clone(), session, Arc::new(Deaf));
    let nodes: Result<Vec<Arc<Node>>> = config.servers.iter().enumerate().map(start).collect();
    let nodes = nodes?;
    let answers = join_all(nodes.iter().zip(&config.servers).map(async |(node, server)| {
        let answer = ask(node).await;
        let replica_of = match &answer {
            Ok((_, master)) => master.clone(),
            // A connection for locks refuses a replica; here it matters whose it is.
            Err(e) if e.kind() == Kind::Refused => {
                let seen = doctor::facts_of(server, config.timeout()).await.ok();
                seen.and_then(|seen| seen.replication.replica_of)
            }
            Err(_) => None,
        };
        let answer = answer.map(|(answer, _)| answer).map_err(|e| e.what().to_owned());
        NodeFacts { node: node.place.clone(), answer, replica_of }
    }));
    let facts = Facts { quorum: Quorum::of(nodes.len()), nodes: answers.await };
    join_all(nodes.iter().map(|node| node.close())).await;
    Ok(facts)
}

/// What a node says, and whose replica it is if it became one.
async fn ask(node: &Node) -> Result<(Answer, Option<String>)> {
    // The first answer also waits for the connection; the second one is measured.
    node.ask(&["PING"]).await?;
    let began = (Instant::now(), wall_micros());
    let stand = node.stand("look", &[]).await?;
    let round_trip = began.0.elapsed();
    let ours = began.1 + u64::try_from(round_trip.as_micros()).unwrap_or(0) / 2;
    let info = match node.ask(&["INFO"]).await? {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    };
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or("").trim().to_owned()
    };
    let host = field("master_host");
    let Report { standing, set, age, longest, .. } = stand.report;
    let answer = Answer {
        standing,
        set,
        quarantined_for: (standing == Standing::Quarantined)
            .then(|| Duration::from_micros(waiting_time(longest).saturating_sub(age))),
        run_id: field("run_id"),
        role: field("role"),
        clock: stand.now.cast_signed() - ours.cast_signed(),
        round_trip,
        version: field("redis_version"),
        uptime: Duration::from_secs(field("uptime_in_seconds").parse().unwrap_or(0)),
        eviction: field("maxmemory_policy"),
        append_only: field("aof_enabled") == "1",
    };
    Ok((answer, (!host.is_empty()).then(|| format!("{host}:{}", field("master_port")))))
}
