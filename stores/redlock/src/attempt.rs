//! One attempt to get a lock: all nodes are asked at once, and the decision is made as early as it can be.
//!
//! What comes later is looked after in the background: a node that answers when the decision is made keeps what it granted if the
//! lock is held by this attempt, and is made to give it back else.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::clock::wall_micros;
use leasehold_core::{Error, Kind, Name, Result, Retry, Tick, Token, TokenBlock};
use tokio::time::{Instant, timeout_at};

use crate::desk::{Desk, Reason, brief, drift};
use crate::node::{Acquire, Acquired, AttemptId, How, Release, Used};
use crate::protocol::BLOCK;
use crate::protocol::decide::{self, Answer, Verdict};
use crate::protocol::standing::Standing;
use crate::state::{Entry, Fate, Held};

/// How an attempt ended.
pub(crate) enum Tried {
    /// The lock is held; others wait for it, or not.
    Held(Held, bool),
    /// Somebody else has it, or some of the nodes.
    Taken(Taken),
    /// Too few nodes could be counted, among them some whose standing somebody should look after.
    Untended(Error),
}

/// What was in the way.
#[derive(Debug)]
pub(crate) struct Taken {
    /// How many nodes were granted all the same.
    pub(crate) grants: usize,
    /// When so many nodes may be free that it is worth trying.
    pub(crate) rest: Duration,
    /// How many wait before this entry.
    pub(crate) before: u32,
    /// The highest token that a node named.
    pub(crate) highest: u64,
}

/// How long a message that gives back may take before it is said again.
const ON_ITS_WAY: Duration = Duration::from_millis(20);

pub(crate) type Asking = FuturesUnordered<Pin<Box<dyn Future<Output = (usize, Result<Acquired>)> + Send>>>;

impl Desk {
    /// Asks all nodes the same.
    pub(crate) fn ask_all(&self, ask: Acquire, nodes: impl Iterator<Item = usize>) -> Asking {
        let ask = Arc::new(ask);
        nodes
            .map(|n| {
                let (node, ask) = (self.nodes[n].clone(), ask.clone());
                let answer = async move { (n, node.acquire(&ask).await) };
                Box::pin(answer) as Pin<Box<dyn Future<Output = _> + Send>>
            })
            .collect()
    }

    /// Tries to get the lock once, in two round trips at most. The error means that too few nodes could be asked.
    pub(crate) async fn attempt(self: &Arc<Self>, entry: &Arc<Entry>, floor: u64) -> Result<Tried> {
        entry.take_turn();
        let (id, ttl) = (entry.next_attempt(), entry.lease.length());
        let began = self.now();
        let place = if entry.waits() { entry.place } else { Duration::ZERO };
        let ask = Acquire {
            name: entry.name.clone(),
            id,
            who: self.who(entry),
            ttl,
            floor: wall_micros().max(floor),
            block: BLOCK,
            up_to: 0,
            place,
        };
        let mut asking = self.ask_all(ask, 0..self.nodes.len());
        let patience = self.patience(ttl);
        let mut round = Round::new(self.quorum.nodes, patience);
        let deadline = Instant::now() + patience;
        let verdict = loop {
            match decide::acquired(self.quorum, &round.answers) {
                Verdict::Wait => {}
                verdict => break verdict,
            }
            match timeout_at(deadline, asking.next()).await {
                Ok(Some((node, answer))) => round.hear(node, answer),
                _ => round.give_up(),
            }
        };
        let token = match verdict {
            Verdict::Held(token) => Some(token),
            Verdict::Confirm { token, have, ask } => {
                self.confirm(&entry.name, id, token, have, ask, ttl).await
            }
            Verdict::Wait | Verdict::Failed => None,
        };
        if !round.newcomers.is_empty() {
            self.tender.wake();
        }
        match token {
            Some(token) if self.now() < began + (ttl - drift(ttl)) => {
                Ok(Tried::Held(self.keep(entry, id, token, began, &round, asking), round.contended))
            }
            _ => {
                self.give_up(entry, id, &round, asking).await;
                let too_late = self.now() >= began + (ttl - drift(ttl));
                self.judge_failure(entry, &round, too_late)
            }
        }
    }

    /// The second round trip: the nodes that are behind confirm the token.
    async fn confirm(
        &self,
        name: &Name,
        id: AttemptId,
        token: u64,
        mut have: u32,
        mut pending: u32,
        ttl: Duration,
    ) -> Option<u64> {
        let mut asking: FuturesUnordered<_> = (0..self.nodes.len())
            .filter(|n| pending & 1 << n != 0)
            .map(|n| {
                let (node, name) = (self.nodes[n].clone(), name.clone());
                async move { (n, node.confirm(&name, id, token, BLOCK).await) }
            })
            .collect();
        let deadline = Instant::now() + self.patience(ttl);
        loop {
            match decide::confirmed(self.quorum, token, have, pending) {
                Verdict::Held(token) => return Some(token),
                Verdict::Wait => {}
                _ => return None,
            }
            match timeout_at(deadline, asking.next()).await {
                Ok(Some((n, answer))) => {
                    pending &= !(1 << n);
                    if let Ok(true) = answer {
                        have |= 1 << n;
                    }
                }
                _ => return None,
            }
        }
    }

    /// The lock is held.
    fn keep(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        id: AttemptId,
        token: u64,
        began: Tick,
        round: &Round,
        late: Asking,
    ) -> Held {
        entry.set_fate(Fate::Holds(id.number));
        if id.number > 1 || round.denied() {
            // It stands in the line of some nodes, and waits no longer.
            let until = began + entry.lease.length();
            for node in (0..self.nodes.len()).filter(|n| !round.is_pending(*n)) {
                let release = Release { name: entry.name.clone(), id, used: Used::None, how: How::Forget };
                tokio::spawn(self.clone().settle(node, release, until));
            }
        }
        self.look_after(entry, id, late);
        let ttl = entry.lease.length();
        let tokens = TokenBlock { first: Token(token), len: BLOCK as u32 };
        Held { id, tokens, began, good_until: began + (ttl - drift(ttl)), released: 0 }
    }

    /// The attempt failed: nodes that granted, or may have, give it back.
    async fn give_up(self: &Arc<Self>, entry: &Arc<Entry>, id: AttemptId, round: &Round, late: Asking) {
        self.look_after(entry, id, late);
        let how = if entry.waits() { How::Wait(entry.place, self.who(entry)) } else { How::GoAway };
        let (granted, unknown) = (round.granted(), round.unknown);
        for node in (0..self.nodes.len()).filter(|n| unknown & 1 << n != 0) {
            tokio::spawn(self.clone().tidy(entry.clone(), id, node, true, true));
        }
        let release = Release { name: entry.name.clone(), id, used: Used::None, how };
        let mut releasing: FuturesUnordered<_> = (0..self.nodes.len())
            .filter(|n| granted & 1 << n != 0)
            .map(|n| self.clone().settle(n, release.clone(), self.now() + entry.lease.length()))
            .collect();
        while releasing.next().await.is_some() {}
    }

    fn judge_failure(&self, entry: &Entry, round: &Round, too_late: bool) -> Result<Tried> {
        let denied = round.answers.iter().filter(|a| **a == Answer::Denied).count();
        let grants = round.answers.iter().filter(|a| matches!(a, Answer::Granted(_))).count();
        if grants + denied < self.quorum.need {
            let error = self.no_quorum(grants + denied, &round.reasons(self));
            entry.attempt_failed(&error);
            return if round.newcomers.is_empty() { Err(error) } else { Ok(Tried::Untended(error)) };
        }
        if denied == 0 && too_late && !entry.waits() {
            // Free, and not held: the answers took too long.
            let what = format!(
                "a quorum of the nodes granted it too late for a lease of {:?}",
                entry.lease.length()
            );
            let error = Error::new(Kind::Unavailable, what).retry(Retry::Later);
            let error = error.advice("choose a longer lease, or wait for the lock");
            entry.attempt_failed(&error);
            return Err(error);
        }
        let mut rests = round.rests.clone();
        rests.sort_unstable();
        let highest = round.answers.iter().filter_map(|a| match a {
            Answer::Granted(x) => Some(*x),
            _ => None,
        });
        Ok(Tried::Taken(Taken {
            grants,
            rest: rests[self.quorum.need - 1],
            before: round.before.unwrap_or(0),
            highest: highest.max().unwrap_or(0),
        }))
    }

    /// Looks after answers that come when the decision is made.
    pub(crate) fn look_after(self: &Arc<Self>, entry: &Arc<Entry>, id: AttemptId, mut late: Asking) {
        if late.is_empty() {
            return;
        }
        let (desk, entry) = (self.clone(), entry.clone());
        tokio::spawn(async move {
            while let Some((node, answer)) = late.next().await {
                let granted = match &answer {
                    Ok(answer) => matches!(answer, Acquired::Granted { .. }),
                    Err(e) => e.retry_advice() != Retry::Later,
                };
                let in_line = entry.waits() && matches!(answer, Ok(Acquired::Denied { .. }));
                if granted || in_line {
                    tokio::spawn(desk.clone().tidy(entry.clone(), id, node, granted, in_line));
                }
            }
        });
    }

    /// A node has, or may have, granted an attempt that is decided, or has its entry in line. What is to become of it depends
    /// on what became of the entry, and that may change meanwhile.
    async fn tidy(
        self: Arc<Self>,
        entry: Arc<Entry>,
        id: AttemptId,
        node: usize,
        granted: bool,
        mut in_line: bool,
    ) {
        let until = self.now() + entry.lease.length();
        if granted && !in_line && entry.fate() == Fate::Gone {
            // Most often it was given back in the meantime, and that message is on its way.
            tokio::time::sleep(ON_ITS_WAY).await;
            if entry.has_let_go(node, id.number) {
                return;
            }
        }
        loop {
            let fate = entry.fate();
            let how = match fate {
                Fate::Holds(number) if number == id.number && in_line => How::Forget,
                Fate::Holds(number) if number != id.number && granted => How::Nothing,
                Fate::Waits if granted => How::Wait(entry.place, self.who(&entry)),
                Fate::Gone => How::GoAway,
                Fate::Holds(_) | Fate::Waits => return,
            };
            in_line |= matches!(how, How::Wait(..));
            let release = Release { name: entry.name.clone(), id, used: Used::None, how };
            self.clone().settle(node, release, until).await;
            if fate == Fate::Gone || entry.fate() == fate {
                return;
            }
        }
    }

    /// Says it to a node until it has heard, or until the lease would have ended there anyway.
    pub(crate) async fn settle(self: Arc<Self>, node: usize, release: Release, until: Tick) {
        let mut pause = Duration::from_millis(20);
        loop {
            match self.nodes[node].release(&release).await {
                Ok(_) => return,
                Err(e) if e.retry_advice() == Retry::Never || self.now() >= until => return,
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

/// What was heard in the first round.
struct Round {
    /// For how long silent nodes are waited for.
    patience: Duration,
    answers: Vec<Answer>,
    /// For how long each node is another's.
    rests: Vec<Duration>,
    before: Option<u32>,
    contended: bool,
    /// Nodes that failed in a way that may have left something.
    unknown: u32,
    /// Nodes whose standing somebody should look after.
    newcomers: Vec<usize>,
    failed: Vec<Reason>,
    silent: bool,
}

/// Longer than any lease: a node that can't be asked.
const NEVER: Duration = Duration::from_secs(1 << 32);

impl Round {
    fn new(nodes: usize, patience: Duration) -> Self {
        Round {
            patience,
            answers: vec![Answer::Pending; nodes],
            rests: vec![NEVER; nodes],
            before: None,
            contended: false,
            unknown: 0,
            newcomers: Vec::new(),
            failed: Vec::new(),
            silent: false,
        }
    }

    fn hear(&mut self, node: usize, answer: Result<Acquired>) {
        self.answers[node] = match answer {
            Ok(Acquired::Granted { x, counted, contended }) => {
                self.contended |= contended;
                self.rests[node] = Duration::ZERO;
                if counted {
                    Answer::Granted(x)
                } else {
                    self.newcomers.push(node);
                    self.failed.push((node, "in quarantine".to_owned()));
                    Answer::Uncounted
                }
            }
            Ok(Acquired::Denied { rest, before }) => {
                self.rests[node] = rest;
                self.before = Some(self.before.map_or(before, |b| b.min(before)));
                Answer::Denied
            }
            Ok(Acquired::NotYet(standing)) => {
                self.newcomers.push(node);
                let why = if standing == Standing::New { "not open yet" } else { "empty" };
                self.failed.push((node, why.to_owned()));
                Answer::Failed
            }
            Err(e) => {
                if e.retry_advice() != Retry::Later {
                    self.unknown |= 1 << node;
                }
                self.failed.push((node, brief(&e)));
                Answer::Failed
            }
        };
    }

    /// Whoever has not answered yet is not waited for any longer.
    fn give_up(&mut self) {
        self.silent = true;
        for answer in self.answers.iter_mut().filter(|a| **a == Answer::Pending) {
            *answer = Answer::Failed;
        }
    }

    fn is_pending(&self, node: usize) -> bool {
        self.answers[node] == Answer::Pending
    }

    fn denied(&self) -> bool {
        self.answers.contains(&Answer::Denied)
    }

    fn granted(&self) -> u32 {
        let granted = |a: &Answer| matches!(a, Answer::Granted(_) | Answer::Uncounted);
        (0..self.answers.len()).filter(|n| granted(&self.answers[*n])).fold(0, |mask, n| mask | 1 << n)
    }

    /// Why nodes can't be counted.
    fn reasons(&self, desk: &Desk) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = self
            .failed
            .iter()
            .map(|(node, why)| (*node, desk.tender.explain(*node).unwrap_or_else(|| why.clone())))
            .collect();
        for (node, answer) in self.answers.iter().enumerate() {
            let named = reasons.iter().any(|(n, _)| *n == node);
            if *answer == Answer::Failed && !named && self.silent {
                reasons.push((node, format!("no answer within {:?}", self.patience)));
            }
        }
        reasons.sort();
        reasons
    }
}
