//! Where a session's commands go and its pushes come from, whatever the topology.
//!
//! This is the contract between the session (which knows locks) and the connections (which know servers):
//!
//! - **One multiplexed connection for commands and one for pushes per node**, made when the node is first used and kept up:
//!   reconnected with backoff, followed to a new master, subscribed again.
//! - **Bounded.** Every call ends within [`Config::timeout`](crate::Config) and a little, with an answer or an error.
//! - **Honest.** An error says whether the command may have had an effect: `Retry::Later` if it certainly had none,
//!   `Retry::SameId` if it may have had, `Retry::Never` if repeating it can't help.
//! - **Pushes may be lost**, and whoever waits is told so: [`Pushes::resumed`] after each time that the push connection was
//!   down.
//!
//! # Layout
//!
//! What is sent:
//! - [`call`]: a request. [`slot`]: which node it belongs to. [`channels`]: the names of channels and of a few keys.
//!
//! One connection:
//! - `dial`: opens it, `tls` encrypts it, `check` looks at what it leads to, `trouble` words what went wrong.
//! - [`link`]: one for commands, kept up. `push`: one for messages, kept up. `replicas`: one that waits for replicas.
//! - `ask`: one for a single question.
//!
//! The servers:
//! - `node`: one server and its connections. `target`: which one that is; `sentinel` follows a master.
//! - `cluster`: who owns which slot. `route`: where a call goes, and where next.
//!
//! Help: `context` (what all share), `task` (ends with its owner), `backoff`.
//!
//! # Rights
//!
//! A user of Redis (`ACL SETUSER`) needs these commands, on keys and channels that start with the prefix:
//!
//! | on | for | commands |
//! | --- | --- | --- |
//! | every server | the scripts | `evalsha eval`, and what the scripts call |
//! | every server | looking whether it answers | `ping` |
//! | a server with a database other than 0 | choosing it | `select` |
//! | a server without a cluster | being told | `subscribe unsubscribe` |
//! | a cluster | finding nodes and moving slots | `cluster\|slots asking` |
//! | a cluster | being told | `ssubscribe sunsubscribe` |
//! | a server with `replicas` above 0 | waiting for them | `set wait` |
//! | a Sentinel | finding the master | `sentinel\|get-master-addr-by-name` |
//!
//! Logging in, the version, the kind and the role of a server come with `HELLO`, which every user may use. Better with, but
//! not needed:
//!
//! | on | command | without it |
//! | --- | --- | --- |
//! | every server | `info` | that a server restarted between a grant and the answer of its replicas is known by its connection alone |
//! | a server | `subscribe`, or in a cluster `ssubscribe` | nobody is told: waiting means asking now and then |
//! | a master behind Sentinels | `role` | a master that is demoted without the Sentinels telling us is noticed by the next write |
//! | a Sentinel | `subscribe ping sentinel\|sentinels`, channel `+switch-master` | a failover is noticed by errors; other Sentinels are not learned of |
//! | a Sentinel | `sentinel\|master sentinel\|ckquorum` | `doctor` says that it can't be asked |

mod ask;
mod backoff;
pub mod call;
pub mod channels;
mod check;
mod cluster;
mod context;
mod dial;
pub mod link;
mod node;
mod push;
mod replicas;
mod route;
mod sentinel;
pub mod slot;
mod target;
mod task;
#[cfg(feature = "tls")]
mod tls;
mod trouble;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use leasehold_core::{Error, Kind, Result, Retry, SessionId};
use leasehold_net::probe::{First, Protocol};
use redis::Value;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use ask::ask;
pub use call::{Call, Script};
pub(crate) use check::Expected;
pub use link::Link;
pub use slot::Slot;
pub(crate) use target::Target;
pub(crate) use trouble::Verdict;

use crate::Config;
use crate::config::Place;
use cluster::Cluster;
use context::Context;
use link::closed;
use node::Node;
use route::Topology;
use sentinel::Follower;

/// What a session hears unasked.
pub trait Pushes: Send + Sync + 'static {
    /// A message on the session's own channel. Must not block.
    fn note(&self, payload: &[u8]);

    /// A message on a channel of events. Must not block.
    fn event(&self, payload: &[u8]);

    /// The push connection of the node that owns these slots is subscribed (again): what was published before it may
    /// have been missed.
    fn resumed(&self, node: u64);
}

/// What a script has to know of the node it runs on to reach sessions and watchers there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// A hash tag that belongs to the node (a cluster has sharded channels, which live where their slot lives), or empty.
    pub tag: Arc<str>,
    /// The number of the node: what [`Pushes::resumed`] says.
    pub node: u64,
}

/// Which connection a command was answered by: what [`Wire::replicated_since`] has to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    node: u64,
    generation: u64,
}

/// Connections to everything that one session needs.
pub struct Wire {
    context: Arc<Context>,
    events: watch::Sender<bool>,
    topology: Topology,
    closed: AtomicBool,
}

impl Wire {
    /// Connects and checks what it found: the version, the role, the kind of server.
    pub async fn open(config: Arc<Config>, session: SessionId, pushes: Arc<dyn Pushes>) -> Result<Arc<Wire>> {
        let (events, wanted) = watch::channel(false);
        let context = Arc::new(Context { config, session, pushes, events: wanted });
        let hosts = context.config.hosts();
        let first = First {
            expected: Protocol::Redis,
            encrypted: context.config.is_encrypted(),
            hosts: &hosts,
            limit: context.config.timeout(),
            explained: false,
        };
        let topology = first.connect(connect(&context), trouble::is_answer).await?;
        Ok(Arc::new(Wire { context, events, topology, closed: AtomicBool::new(false) }))
    }

    /// Sends one command to the node that owns the slot, and waits for the answer. Follows redirections; loads the script
    /// if the server does not know it.
    pub async fn run(&self, call: Call) -> Result<Value> {
        self.run_marked(call).await.map(|(value, _)| value)
    }

    /// As [`run`](Wire::run), and tells which connection the answer came by.
    pub async fn run_marked(&self, call: Call) -> Result<(Value, Mark)> {
        self.check_open()?;
        let answer = self.topology.run(&call, self.context.config.timeout()).await;
        if answer.is_err() {
            // Whoever tries again at once must not keep the tasks from running that could make it succeed.
            tokio::task::yield_now().await;
        }
        answer
    }

    /// Sends many at once to one node (all of the same [`Post::node`]), pipelined. Each is answered on its own.
    pub async fn run_all(&self, calls: Vec<Call>) -> Vec<Result<Value>> {
        let answers = self.run_all_marked(calls).await;
        answers.into_iter().map(|answer| answer.map(|(value, _)| value)).collect()
    }

    /// As [`run_all`](Wire::run_all), and tells which connection each answer came by.
    pub async fn run_all_marked(&self, calls: Vec<Call>) -> Vec<Result<(Value, Mark)>> {
        if let Err(e) = self.check_open() {
            return calls.iter().map(|_| Err(e.clone())).collect();
        }
        self.topology.run_all(&calls, self.deadline()).await
    }

    /// Who owns a slot now. Cheap, and never waits.
    pub fn post(&self, slot: Slot) -> Post {
        match &self.topology {
            Topology::One(node) | Topology::Followed(node) => node.post(),
            Topology::Cluster(cluster) => cluster.post(slot),
        }
    }

    /// Waits until the pushes of a node arrive. `false` if they don't within the time of a command, or can't at all: then
    /// whoever waits has to ask now and then.
    pub async fn listening(&self, node: u64) -> bool {
        match self.topology.numbered(node) {
            Some(node) if self.check_open().is_ok() => node.push.listening(self.deadline()).await,
            _ => false,
        }
    }

    /// As many replicas as the configuration demands have all that the node that owns this slot had done before this call.
    /// Costs nothing if none are demanded. Calls at the same time share one round trip.
    ///
    /// What was done before a failover that came between is not meant: see [`replicated_since`](Wire::replicated_since).
    pub async fn replicated(&self, slot: Slot) -> Result<()> {
        if self.context.config.replicas() == 0 {
            return Ok(());
        }
        self.check_open()?;
        let node = self.topology.node(slot)?;
        let source = node.link.source().ok_or_else(|| {
            Error::new(Kind::Unavailable, "there is no connection to the master").retry(Retry::Later)
        })?;
        node.replicated(source.generation).await
    }

    /// As many replicas as the configuration demands have what was answered by this connection. It fails if the connection
    /// was lost since: then nobody can know whether the server that is connected to now had it at all. What is not known is
    /// [`Retry::SameId`]; too few replicas are [`Retry::Later`].
    pub async fn replicated_since(&self, mark: Mark) -> Result<()> {
        if self.context.config.replicas() == 0 {
            return Ok(());
        }
        self.check_open()?;
        let gone = || {
            Error::new(Kind::Unavailable, "the node is no longer part of the cluster").retry(Retry::SameId)
        };
        self.topology.numbered(mark.node).ok_or_else(gone)?.replicated(mark.generation).await
    }

    /// All masters: one slot of each, to send commands to each of them.
    pub async fn masters(&self) -> Result<Vec<Slot>> {
        match &self.topology {
            Topology::One(_) | Topology::Followed(_) => Ok(vec![Slot(0)]),
            Topology::Cluster(cluster) => Ok(cluster.masters()),
        }
    }

    /// Subscribes to the channel of events on every master, also on those that come later, or ends it. When it returns,
    /// events are heard.
    pub async fn watch_events(&self, on: bool) -> Result<()> {
        self.check_open()?;
        self.events.send_replace(on);
        let nodes = match &self.topology {
            Topology::One(node) | Topology::Followed(node) => vec![node.clone()],
            Topology::Cluster(cluster) => cluster.all(),
        };
        let until = self.deadline();
        let all = join_all(nodes.iter().map(|node| node.push.events_are(on, until))).await;
        all.into_iter().collect()
    }

    /// Closes all connections. Calls after it fail.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        match &self.topology {
            Topology::One(node) | Topology::Followed(node) => node.close(),
            Topology::Cluster(cluster) => cluster.close(),
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(closed()) } else { Ok(()) }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.context.config.timeout()
    }
}

/// Connects to what the configuration names.
async fn connect(context: &Arc<Context>) -> Result<Topology> {
    let until = Instant::now() + context.config.timeout();
    let one = |target| Arc::new(Node::start(0, target, "".into(), context.clone(), || {}));
    match context.config.place.clone() {
        Place::One(server) => {
            let node = one(Target::Fixed(Arc::new(server), Expected::Master));
            node.link.opened(until).await?;
            Ok(Topology::One(node))
        }
        Place::Sentinel { sentinels, master, server } => {
            let follower = Follower::start(sentinels, master, server, context.config.timeout());
            let node = one(Target::Followed(Arc::new(follower)));
            node.link.opened(until).await?;
            Ok(Topology::Followed(node))
        }
        Place::Cluster(seeds) => Ok(Topology::Cluster(Cluster::open(seeds, context.clone()).await?)),
    }
}
