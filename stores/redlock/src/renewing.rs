//! Renewals: a batch goes to all nodes at once, and each lease in it is judged on its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::store::{Grant, Renewal, Renewed, Term};
use leasehold_core::view::Lost;
use leasehold_core::{Error, Kind, Lease, Result, Retry, Tick};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

use crate::desk::{Desk, Reason, brief, drift};
use crate::node::{Acquire, Extend, Extended, How, Ownership, Release, Used};
use crate::protocol::decide::{self, Renewal as Verdict, Why};
use crate::protocol::standing::Standing;
use crate::state::{Entry, Fate, Held, Stage};

/// Lines of a batch, by their places in it, and what was answered.
type Answered = Vec<(usize, Result<Renewed>)>;

/// A lease in a batch.
struct Line {
    at: usize,
    entry: Arc<Entry>,
    stage: OwnedMutexGuard<Stage>,
    held: Held,
    ask: Renewal,
    answers: Vec<decide::Extended>,
    contended: bool,
    /// A node says that somebody asked for the lock back.
    asked: bool,
    /// Nodes that answered and don't have it.
    lacking: u32,
}

impl Desk {
    /// One answer for each line, in their order.
    pub(crate) async fn renew(self: Arc<Self>, batch: Vec<Renewal>) -> Result<Vec<Result<Renewed>>> {
        self.check_open()?;
        let count = batch.len();
        let (mut held, mut single) = (Vec::new(), Vec::new());
        for (at, ask) in batch.into_iter().enumerate() {
            let entry = self.entries.get(ask.id);
            match entry.as_ref().map(|entry| entry.stage.clone().try_lock_owned()) {
                Some(Ok(stage)) if matches!(*stage, Stage::Held(_)) => {
                    held.extend(entry.and_then(|entry| self.line(at, entry, stage, ask)));
                }
                _ => single.push((at, ask)),
            }
        }
        let single = single.into_iter().map(|(at, ask)| {
            let desk = self.clone();
            async move { vec![(at, desk.renew_one(ask).await)] }
        });
        let mut futures: Vec<BoxFuture<'_, Answered>> = single.map(|one| Box::pin(one) as _).collect();
        if !held.is_empty() {
            futures.push(Box::pin(self.clone().renew_held(held)));
        }
        let mut answers: Vec<Option<Result<Renewed>>> = (0..count).map(|_| None).collect();
        for (at, answer) in join_all(futures).await.into_iter().flatten() {
            answers[at] = Some(answer);
        }
        let missing = || Err(Error::new(Kind::Unavailable, "a renewal was not answered"));
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect())
    }

    /// One that waits, or that another request is busy with.
    async fn renew_one(self: Arc<Self>, ask: Renewal) -> Result<Renewed> {
        let Some(entry) = self.entries.get(ask.id) else {
            return Ok(Renewed::Gone(Lost::Expired));
        };
        let stage = entry.stage.clone().lock_owned().await;
        match &*stage {
            Stage::Held(_) => self.renew_locked(entry, stage, ask).await,
            _ => self.retry(&entry, stage).await,
        }
    }

    /// A lease that this request has to itself.
    pub(crate) async fn renew_locked(
        self: Arc<Self>,
        entry: Arc<Entry>,
        stage: OwnedMutexGuard<Stage>,
        ask: Renewal,
    ) -> Result<Renewed> {
        let gone = || Ok(Renewed::Gone(Lost::Expired));
        let Some(line) = self.line(0, entry, stage, ask) else { return gone() };
        self.renew_held(vec![line]).await.pop().map_or_else(gone, |(_, answer)| answer)
    }

    fn line(
        &self,
        at: usize,
        entry: Arc<Entry>,
        stage: OwnedMutexGuard<Stage>,
        ask: Renewal,
    ) -> Option<Line> {
        let Stage::Held(held) = *stage else { return None };
        let answers = vec![decide::Extended::Pending; self.quorum.nodes];
        Some(Line { at, entry, stage, held, ask, answers, contended: false, asked: false, lacking: 0 })
    }

    async fn renew_held(self: Arc<Self>, mut lines: Vec<Line>) -> Answered {
        let began = self.now();
        let asks: Arc<Vec<Extend>> = Arc::new(lines.iter().map(Line::extend).collect());
        let mut asking: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(|node| {
                let (node, asks) = (node.clone(), asks.clone());
                async move { (node.number, node.extend(&asks).await) }
            })
            .collect();
        let shortest = lines.iter().map(|line| line.entry.lease.length()).min().unwrap_or(Duration::ZERO);
        let deadline = Instant::now() + self.patience(shortest);
        let mut reasons: Vec<Vec<Reason>> = vec![Vec::new(); lines.len()];
        while lines.iter().any(|line| self.judge(line) == Verdict::Wait) {
            match timeout_at(deadline, asking.next()).await {
                Ok(Some((node, answers))) => {
                    for ((line, answer), reasons) in lines.iter_mut().zip(answers).zip(&mut reasons) {
                        line.hear(node, answer, reasons);
                    }
                }
                _ => lines.iter_mut().for_each(Line::give_up),
            }
        }
        if !asking.is_empty() {
            tokio::spawn(async move { while asking.next().await.is_some() {} });
        }
        lines
            .into_iter()
            .zip(reasons)
            .map(|(line, why)| (line.at, self.conclude(line, began, &why)))
            .collect()
    }

    fn judge(&self, line: &Line) -> Verdict {
        decide::renewed(self.quorum, &line.answers, line.ask.more_tokens)
    }

    fn conclude(self: &Arc<Self>, mut line: Line, began: Tick, reasons: &[Reason]) -> Result<Renewed> {
        let verdict = match self.judge(&line) {
            // It was not answered while the lease was good: somebody else may have come and gone.
            _ if self.now() >= line.held.good_until => Verdict::Lost(Why::Expired),
            verdict => verdict,
        };
        match verdict {
            Verdict::Held | Verdict::HeldWithoutTokens => {
                let ttl = line.entry.lease.length();
                let fixed = matches!(line.entry.lease, Lease::Fixed(_));
                if !fixed {
                    (line.held.began, line.held.good_until) = (began, began + (ttl - drift(ttl)));
                }
                let more = line.ask.more_tokens && verdict == Verdict::Held;
                if more {
                    line.held.tokens = line.held.next_tokens();
                }
                *line.stage = Stage::Held(line.held);
                self.plant_again(&line);
                if line.ask.more_tokens && !more {
                    let what = "too few nodes can vouch for more tokens of this lease";
                    return Err(Error::new(Kind::Unavailable, what).retry(Retry::Later).on(&line.entry.name));
                }
                // A fixed lease ends when it ends, counted from when it was got.
                let left = ttl.saturating_sub(began.since(line.held.began));
                Ok(Renewed::Held(Grant {
                    tokens: line.held.tokens,
                    term: Term::For(left),
                    started: true,
                    contended: line.contended,
                    release_requested: line.asked,
                }))
            }
            Verdict::Lost(why) => {
                self.lost(&line.entry, line.held);
                *line.stage = Stage::Fresh;
                Ok(Renewed::Gone(match why {
                    Why::Expired => Lost::Expired,
                    Why::Revoked => Lost::Revoked,
                    Why::Wiped => Lost::Wiped,
                }))
            }
            Verdict::Unknown | Verdict::Wait => {
                let counted = line.answers.iter().filter(|a| **a != decide::Extended::Failed).count();
                Err(self.no_quorum(counted, reasons).on(&line.entry.name))
            }
        }
    }

    /// What is left of a lease that was lost goes, and whoever waits is told.
    pub(crate) fn lost(self: &Arc<Self>, entry: &Arc<Entry>, held: Held) {
        self.entries.forget(entry);
        let until = self.now() + entry.lease.length();
        for node in 0..self.nodes.len() {
            let release =
                Release { name: entry.name.clone(), id: held.id, used: Used::Unknown, how: How::GiveBack };
            tokio::spawn(self.clone().settle(node, release, until));
        }
    }

    /// A quorum still holds it: nodes that lost it get it again.
    fn plant_again(self: &Arc<Self>, line: &Line) {
        if line.lacking == 0 {
            return;
        }
        let (entry, held) = (&line.entry, &line.held);
        let left = entry.lease.length().saturating_sub(self.now().since(held.began));
        let ask = Acquire {
            name: entry.name.clone(),
            id: held.id,
            who: self.who(entry),
            ttl: left,
            floor: 0,
            block: 1,
            up_to: held.last(),
            place: Duration::ZERO,
        };
        entry.set_fate(Fate::Holds(held.id.number));
        let lacking = (0..self.nodes.len()).filter(|n| line.lacking & 1 << n != 0);
        self.look_after(entry, held.id, self.ask_all(ask, lacking));
    }
}

impl Line {
    fn extend(&self) -> Extend {
        let fixed = matches!(self.entry.lease, Lease::Fixed(_));
        let up_to = if self.ask.more_tokens { self.held.next_tokens().last().0 } else { self.held.last() };
        Extend {
            name: self.entry.name.clone(),
            id: self.held.id,
            ttl: (!fixed).then(|| self.entry.lease.length()),
            up_to,
            token: self.ask.token.map_or(self.held.tokens.first.0, |token| token.0),
        }
    }

    fn hear(&mut self, node: usize, answer: Result<Extended>, reasons: &mut Vec<Reason>) {
        let next = self.held.next_tokens().first.0;
        self.answers[node] = match answer {
            Ok(Extended { standing, state: Ownership::Owned { x, counted, contended, asked } }) => {
                self.contended |= contended;
                self.asked |= asked;
                let open = standing == Standing::Open;
                if !open {
                    reasons.push((node, "in quarantine".to_owned()));
                }
                decide::Extended::Owned { counted: open, vouches: counted && x <= next }
            }
            Ok(Extended { standing, state }) => {
                if matches!(standing, Standing::Open | Standing::Quarantined) && state != Ownership::Revoked {
                    self.lacking |= 1 << node;
                }
                match state {
                    Ownership::Revoked => decide::Extended::Revoked,
                    Ownership::Wiped => decide::Extended::Wiped,
                    _ => decide::Extended::Expired,
                }
            }
            Err(e) => {
                reasons.push((node, brief(&e)));
                decide::Extended::Failed
            }
        };
    }

    fn give_up(&mut self) {
        for answer in self.answers.iter_mut().filter(|a| **a == decide::Extended::Pending) {
            *answer = decide::Extended::Failed;
        }
    }
}
