//! A cluster: the map of its slots, kept up to date, and a node for each master that is used.
//!
//! The map is asked for when something shows that it is old: a redirection, a node that can't be reached, a subscription that
//! the server ended. Until the new one is there, redirections are followed one by one.

mod map;
mod table;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{Error, Kind, Result, Retry};
use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Post;
use super::ask::ask;
use super::backoff::Backoff;
use super::call::Call;
use super::check::Expected;
use super::context::Context;
use super::node::Node;
use super::slot::Slot;
use super::task::Task;
use crate::config::{Address, Server};
use table::{Member, Table};

/// After this time without a doubt, the next question is not one of a series.
const LULL: Duration = Duration::from_secs(1);

/// How often the map is asked for when nothing shows that it is old.
const CALM: Duration = Duration::from_secs(60);

/// How long one node has to answer before the next one is asked as well.
const HEAD_START: Duration = Duration::from_millis(100);

/// A cluster.
pub(crate) struct Cluster {
    shared: Arc<Shared>,
    refresher: Task,
}

struct Shared {
    context: Arc<Context>,
    seeds: Vec<Server>,
    table: RwLock<Table>,
    /// Somebody saw that the map is old.
    stale: Notify,
    /// How often the map was asked for, and how the last time ended.
    rounds: watch::Sender<(u64, Option<Error>)>,
}

impl Cluster {
    /// Asks the first node that answers for the map.
    pub(crate) async fn open(seeds: Vec<Server>, context: Arc<Context>) -> Result<Self> {
        let shared = Arc::new(Shared {
            table: RwLock::new(Table::new(seeds[0].clone())),
            seeds,
            context,
            stale: Notify::new(),
            rounds: watch::Sender::new((0, None)),
        });
        shared.refresh().await?;
        Ok(Cluster { refresher: Task::spawn(keep_fresh(shared.clone())), shared })
    }

    /// The node that owns a slot, connected to in the background if it was not yet.
    pub(crate) fn owner(&self, slot: Slot) -> Result<Arc<Node>> {
        let table = self.shared.read();
        let member = table.owner(slot).ok_or_else(|| nobody(slot))?;
        Ok(self.shared.start(&table, member))
    }

    /// The node at an address that another one sent us to.
    pub(crate) fn at(&self, address: &Address) -> Arc<Node> {
        let mut table = self.shared.write();
        let member = table.at(address);
        self.shared.start(&table, &member)
    }

    /// The node of this number.
    pub(crate) fn numbered(&self, number: u64) -> Option<Arc<Node>> {
        let table = self.shared.read();
        Some(self.shared.start(&table, table.numbered(number)?))
    }

    /// How scripts reach sessions on the node of a slot. A slot without an owner has a node that does not exist.
    pub(crate) fn post(&self, slot: Slot) -> Post {
        self.shared.read().post(slot).unwrap_or_else(|| Post { tag: "".into(), node: u64::MAX })
    }

    /// The lowest slot of each master.
    pub(crate) fn masters(&self) -> Vec<Slot> {
        self.shared.read().lowest()
    }

    /// All masters, all connected to.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        let table = self.shared.read();
        table.members().map(|member| self.shared.start(&table, member)).collect()
    }

    /// The map is old: it is asked for in the background.
    pub(crate) fn stale(&self) {
        self.shared.stale.notify_one();
    }

    /// As [`stale`](Cluster::stale), and waits for the new map.
    pub(crate) async fn refreshed(&self, until: Instant) -> Result<()> {
        let mut rounds = self.shared.rounds.subscribe();
        let before = rounds.borrow_and_update().0;
        self.stale();
        match timeout_at(until, rounds.wait_for(|round| round.0 > before)).await {
            Ok(Ok(round)) => round.1.clone().map_or(Ok(()), Err),
            _ => Err(Error::new(Kind::Unavailable, "no node of the cluster told its slots in time")
                .retry(Retry::Later)),
        }
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        self.refresher.abort();
        self.shared.read().everyone().filter_map(|member| member.used()).for_each(|node| node.close());
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>, table: &Table, member: &Member) -> Arc<Node> {
        if let Some(node) = member.used() {
            return node.clone();
        }
        let shared: Weak<Shared> = Arc::downgrade(self);
        table.start(member, &self.context, move || {
            if let Some(shared) = shared.upgrade() {
                shared.stale.notify_one();
            }
        })
    }

    /// Asks for the map, and takes it. Tells whether slots have moved.
    async fn refresh(self: &Arc<Self>) -> Result<bool> {
        let deadline = Instant::now() + self.context.config.timeout();
        let (answer, asked) = self.ask_somebody(deadline).await?;
        let shares = map::read(&answer, &asked);
        if shares.is_empty() {
            let what = format!("the node {asked} knows of no slots that have a master");
            return Err(Error::new(Kind::Unavailable, what)
                .advice("create the cluster first (redis-cli --cluster create)")
                .retry(Retry::Later));
        }
        let mut table = self.write();
        let (moved, heirs) = table.replace(&shares);
        let watched = *self.context.events.borrow();
        let to_start: Vec<_> = if watched { table.members().cloned().collect() } else { heirs.clone() };
        to_start.iter().for_each(|member| drop(self.start(&table, member)));
        drop(table);
        // Who waits for a lock whose slot moved must look again: the old node may have told nobody.
        heirs.iter().for_each(|heir| self.context.pushes.resumed(heir.number));
        Ok(moved)
    }

    /// Asks one node after the other, without waiting long for any, and takes the first answer.
    async fn ask_somebody(&self, deadline: Instant) -> Result<(Value, Address)> {
        let mut cmd = redis::cmd("CLUSTER");
        cmd.arg("SLOTS");
        let cmd = &cmd;
        let mut asked: FuturesUnordered<_> = self
            .candidates()
            .into_iter()
            .enumerate()
            .map(|(turn, candidate)| async move {
                sleep(HEAD_START * turn as u32).await;
                candidate.ask(cmd, deadline).await
            })
            .collect();
        let mut reason: Option<Error> = None;
        while let Some(outcome) = asked.next().await {
            match outcome {
                Ok(answer) => return Ok(answer),
                // One that can be reached, and can't help, says more than one that can't.
                Err(e) if reason.as_ref().is_none_or(|reason| reason.retry_advice() != Retry::Never) => {
                    reason = Some(e);
                }
                Err(_) => {}
            }
        }
        Err(reason.unwrap_or_else(|| Error::new(Kind::Invalid, "there is no node of the cluster to ask")))
    }

    /// Whom to ask: nodes in use, beginning with any of them, then the others, then those that were given at first.
    fn candidates(&self) -> Vec<Candidate> {
        let table = self.read();
        let (mut used, idle): (Vec<_>, Vec<_>) = table.members().cloned().partition(|m| m.used().is_some());
        let first = getrandom::u32().unwrap_or(0) as usize % used.len().max(1);
        used.rotate_left(first);
        let seeds = self.seeds.iter().filter(|seed| table.members().all(|m| m.address != seed.address));
        let used = used.into_iter().map(Candidate::Member);
        let idle = idle.iter().map(|member| Candidate::Server(table.server(&member.address)));
        used.chain(idle).chain(seeds.cloned().map(Candidate::Server)).collect()
    }
}

/// Somebody to ask for the map.
enum Candidate {
    /// A node that we are connected to, or try to be.
    Member(Arc<Member>),
    /// One that we have to connect to.
    Server(Server),
}

impl Candidate {
    async fn ask(&self, cmd: &Cmd, deadline: Instant) -> Result<(Value, Address)> {
        match self {
            Candidate::Member(member) => {
                let Some(node) = member.used() else { return Err(nobody(Slot(0))) };
                let call = Call::command(Slot(0), cmd.clone());
                let time = deadline.saturating_duration_since(Instant::now());
                Ok((node.link.run(&call, time).await?, member.address.clone()))
            }
            Candidate::Server(server) => {
                Ok((ask(server, Expected::ClusterNode, cmd, deadline).await?, server.address.clone()))
            }
        }
    }
}

/// Keeps the map up to date. While it does not change, it is asked for less and less often.
async fn keep_fresh(shared: Arc<Shared>) {
    let mut backoff = Backoff::refreshing();
    loop {
        let since = Instant::now();
        let _ = timeout(CALM, shared.stale.notified()).await;
        let outcome = shared.refresh().await;
        if let Err(e) = &outcome {
            tracing::debug!("cluster: no new map: {e}");
        }
        if since.elapsed() > LULL || outcome.as_ref().is_ok_and(|moved| *moved) {
            backoff.reset();
        }
        shared.rounds.send_modify(|round| *round = (round.0 + 1, outcome.err()));
        sleep(backoff.delay()).await;
    }
}

fn nobody(slot: Slot) -> Error {
    Error::new(Kind::Unavailable, format!("no node of the cluster owns the slot {}", slot.0))
        .advice("check that every slot has a master that runs (redis-cli --cluster check)")
        .retry(Retry::Later)
}
