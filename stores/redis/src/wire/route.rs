//! Where a call goes, and where next if it can't be done there.
//!
//! A call is tried again only if it certainly had no effect: the server refused it, or it was never sent.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Error, Kind, Result, Retry};
use redis::Value;
use tokio::time::{Instant, sleep_until};

use super::Mark;
use super::backoff::Backoff;
use super::call::Call;
use super::cluster::Cluster;
use super::link::{Answer, Outcome};
use super::node::Node;
use super::slot::Slot;
use super::trouble::Verdict;

/// How often a call follows redirections without a pause. In a cluster that changes, two nodes can name each other.
const HOPS: u32 = 5;

/// How the servers stand to each other.
pub(crate) enum Topology {
    /// One server.
    One(Arc<Node>),
    /// One server at a time: the master that Sentinels name.
    Followed(Arc<Node>),
    /// A cluster.
    Cluster(Cluster),
}

/// What to do next about a call.
enum Next {
    /// Nothing: here is its answer.
    Done(Value, Mark),
    /// The same again at once, at the owner of the slot.
    Now,
    /// The same again at once, there.
    At(Detour),
    /// The same again after a pause, and this error if there is no time for it.
    Later(Error),
}

/// A node that another one sent us to.
struct Detour {
    node: Arc<Node>,
    /// Whether the slot is not its own yet.
    asking: bool,
}

impl Topology {
    /// The node that owns a slot.
    pub(crate) fn node(&self, slot: Slot) -> Result<Arc<Node>> {
        match self {
            Topology::One(node) | Topology::Followed(node) => Ok(node.clone()),
            Topology::Cluster(cluster) => cluster.owner(slot),
        }
    }

    /// The node of this number.
    pub(crate) fn numbered(&self, number: u64) -> Option<Arc<Node>> {
        match self {
            Topology::One(node) | Topology::Followed(node) => (node.number == number).then(|| node.clone()),
            Topology::Cluster(cluster) => cluster.numbered(number),
        }
    }

    /// Runs a call wherever it has to be run.
    pub(crate) async fn run(&self, call: &Call, time: Duration) -> Result<(Value, Mark)> {
        let began = Instant::now();
        let (node, outcome) = match self {
            Topology::One(node) | Topology::Followed(node) => match node.link.quick(call).await {
                Some(Ok(Ok(answer))) => return Ok(marked(answer, node)),
                outcome => (Ok(node.clone()), outcome),
            },
            Topology::Cluster(cluster) => match cluster.owner(call.slot) {
                Ok(node) => match node.link.quick(call).await {
                    Some(Ok(Ok(answer))) => return Ok(marked(answer, &node)),
                    outcome => (Ok(node), outcome),
                },
                Err(e) => (Err(e), None),
            },
        };
        // All this is rare, and its state need not be part of every call's.
        Box::pin(self.go_on(call, node, outcome, began + time)).await
    }

    /// Runs a call that was not simply answered at the first try.
    async fn go_on(
        &self,
        call: &Call,
        node: Result<Arc<Node>>,
        outcome: Option<Outcome>,
        deadline: Instant,
    ) -> Result<(Value, Mark)> {
        let mut backoff = Backoff::repeating();
        let mut hops = 0;
        let mut next = match (node, outcome) {
            (Ok(node), Some(Ok(Err(Verdict::NoScript)))) => {
                let outcome = node.link.call_in_full(call, deadline).await;
                self.judge(outcome, &node, call.slot, deadline).await?
            }
            (Ok(node), Some(outcome)) => self.judge(outcome, &node, call.slot, deadline).await?,
            (_, _) => Next::Now,
        };
        loop {
            hops += 1;
            let (detour, error) = match next {
                Next::Done(value, mark) => return Ok((value, mark)),
                Next::Now if hops <= HOPS => (None, None),
                Next::At(there) if hops <= HOPS => (Some(there), None),
                Next::Now | Next::At(_) => (None, Some(moving(call.slot))),
                Next::Later(error) => (None, Some(error)),
            };
            if let Some(error) = error {
                let at = Instant::now() + backoff.delay();
                if at >= deadline {
                    return Err(error);
                }
                sleep_until(at).await;
                hops = 0;
            }
            next = self.hop(call, detour, deadline).await?;
        }
    }

    /// One try.
    async fn hop(&self, call: &Call, detour: Option<Detour>, deadline: Instant) -> Result<Next> {
        let (node, asking) = match detour {
            Some(Detour { node, asking }) => (node, asking),
            None => match self.node(call.slot) {
                Ok(node) => (node, false),
                Err(e) => {
                    self.stale();
                    return Ok(Next::Later(e));
                }
            },
        };
        let outcome = match asking {
            false => node.link.call(call, deadline).await,
            true => node.link.call_asking(call, deadline).await,
        };
        self.judge(outcome, &node, call.slot, deadline).await
    }

    async fn judge(&self, outcome: Outcome, node: &Node, slot: Slot, deadline: Instant) -> Result<Next> {
        match outcome {
            Ok(Ok(answer)) => {
                let (value, mark) = marked(answer, node);
                Ok(Next::Done(value, mark))
            }
            Ok(Err(verdict)) => self.refused(verdict, node, slot),
            Err(e) => self.unreachable(e, node, slot, deadline).await,
        }
    }

    /// What to do when a server refused a call.
    fn refused(&self, verdict: Verdict, node: &Node, slot: Slot) -> Result<Next> {
        match (verdict, self) {
            (Verdict::Failed(e), _) => Err(e),
            (Verdict::Again(e), _) => {
                self.stale();
                Ok(Next::Later(e))
            }
            (Verdict::NotMaster(e), Topology::One(_)) => {
                // The next connection finds out whose replica it is.
                node.link.leave();
                Err(e)
            }
            (Verdict::NotMaster(e), _) => {
                node.link.leave();
                self.stale();
                Ok(Next::Later(e))
            }
            (Verdict::Moved(Some(address)), Topology::Cluster(cluster)) => {
                cluster.stale();
                Ok(Next::At(Detour { node: cluster.at(&address), asking: false }))
            }
            (Verdict::Ask(Some(address)), Topology::Cluster(cluster)) => {
                Ok(Next::At(Detour { node: cluster.at(&address), asking: true }))
            }
            (Verdict::Moved(None) | Verdict::Ask(None), Topology::Cluster(cluster)) => {
                cluster.stale();
                Ok(Next::Later(moving(slot)))
            }
            (Verdict::Moved(_) | Verdict::Ask(_) | Verdict::NoScript, _) => {
                Err(Error::new(Kind::Store, "the server gave an answer that makes no sense here"))
            }
        }
    }

    /// What to do when a node could not be reached, or did not answer.
    async fn unreachable(&self, e: Error, node: &Node, slot: Slot, deadline: Instant) -> Result<Next> {
        let Topology::Cluster(cluster) = self else { return Err(e) };
        if e.retry_advice() != Retry::Later {
            cluster.stale();
            return Err(e);
        }
        // It was not sent. If another node owns the slot by now, it goes there.
        let _ = cluster.refreshed(deadline).await;
        match cluster.owner(slot) {
            Ok(owner) if owner.number != node.number => Ok(Next::Now),
            _ => Err(e),
        }
    }

    fn stale(&self) {
        if let Topology::Cluster(cluster) = self {
            cluster.stale();
        }
    }

    /// Runs many, pipelined to the node that owns the slot of the first.
    pub(crate) async fn run_all(&self, calls: &[Call], deadline: Instant) -> Vec<Result<(Value, Mark)>> {
        let Some(first) = calls.first() else { return Vec::new() };
        let mut answers: Vec<Option<Result<(Value, Mark)>>> = calls.iter().map(|_| None).collect();
        if let Ok(node) = self.node(first.slot)
            && let Err(e) = self.pipelined(&node, calls, &mut answers, deadline).await
        {
            let hopeless = !matches!(self, Topology::Cluster(_)) || e.retry_advice() != Retry::Later;
            if hopeless {
                self.stale();
                return answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(e.clone()))).collect();
            }
        }
        // What is left was redirected or has to wait: each goes its own way.
        let settled = answers.into_iter().zip(calls).map(|(answer, call)| async move {
            match answer {
                Some(answer) => answer,
                None => self.go_on(call, self.node(call.slot), None, deadline).await,
            }
        });
        join_all(settled).await
    }

    /// Sends all to one node, and those whose script it did not know once more. Leaves out what it could not answer.
    async fn pipelined(
        &self,
        node: &Arc<Node>,
        calls: &[Call],
        answers: &mut [Option<Result<(Value, Mark)>>],
        deadline: Instant,
    ) -> Result<()> {
        let mut waiting: Vec<usize> = (0..calls.len()).collect();
        let mut cmds: Vec<_> = calls.iter().map(|call| call.cmd.clone()).collect();
        for _ in 0..2 {
            let (_, outcomes) = node.link.call_all(cmds, deadline).await?;
            let mut unknown = Vec::new();
            for (at, outcome) in waiting.into_iter().zip(outcomes) {
                match outcome {
                    Ok(answer) => answers[at] = Some(Ok(marked(answer, node))),
                    Err(Verdict::Failed(e)) => answers[at] = Some(Err(e)),
                    Err(Verdict::NoScript) => unknown.push(at),
                    Err(_) => {}
                }
            }
            if unknown.is_empty() {
                break;
            }
            cmds = Call::in_full_once(unknown.iter().map(|at| &calls[*at]));
            waiting = unknown;
        }
        Ok(())
    }
}

fn marked(answer: Answer, node: &Node) -> (Value, Mark) {
    (answer.value, Mark { node: node.number, generation: answer.generation })
}

fn moving(slot: Slot) -> Error {
    Error::new(Kind::Unavailable, format!("the slot {} is moving between nodes of the cluster", slot.0))
        .advice("try again in a moment")
        .retry(Retry::Later)
}
