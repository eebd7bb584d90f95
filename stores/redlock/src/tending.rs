//! Looks after how the nodes stand: founds a new set, puts nodes that lost their data in quarantine, and takes them back in.
//!
//! What to do is decided by [`standing`](crate::protocol::standing); here it is done, at once when a session is opened and when a node
//! shows that something is wrong with it, and again when a quarantine is over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold_core::{Error, Kind, Result, Retry};
use tokio::sync::Notify;

use crate::config::FirstUse;
use crate::desk::{Desk, Reason, brief};
use crate::node::Stand;
use crate::protocol::standing::{Known, Report, Standing, Step, is_new, tend, waiting_time};
use crate::state::lock;

/// The pause between two looks, at least: whatever wakes us.
const PAUSE: Duration = Duration::from_millis(50);

/// How often we look while somebody else founds the set, or nodes don't answer.
const SOON: Duration = Duration::from_millis(250);

/// How often we look if nothing seems to be wrong: a node may have been emptied while nobody used it.
const PATROL: Duration = Duration::from_secs(30);

/// For how long nodes without a trace are left alone while others don't answer: perhaps the servers of a new set are just starting.
const STARTING: Duration = Duration::from_secs(5);

/// Numbers of sets are exact in Lua.
const NUMBERS: u64 = 1 << 52;

#[derive(Default)]
pub(crate) struct Tender {
    wake: Notify,
    /// When this session looked for the first time.
    first_look: OnceLock<Instant>,
    /// One look at a time.
    turn: tokio::sync::Mutex<()>,
    /// This session has seen the set in use.
    in_use: AtomicBool,
    /// The longest lease that was seen by then, in milliseconds.
    longest: AtomicU64,
    /// What the last look found.
    seen: Mutex<Vec<Option<Stand>>>,
    /// Two nodes are the same server: there is no quorum, and never will be.
    not_independent: OnceLock<Error>,
}

/// What a look found.
#[derive(Debug)]
pub(crate) struct Outlook {
    /// How many nodes count.
    pub(crate) open: usize,
    /// Those that did not answer.
    pub(crate) silent: Vec<Reason>,
    /// How many of them never will: they refuse us.
    pub(crate) hopeless: usize,
    /// When to look again.
    pub(crate) again: Duration,
}

impl Tender {
    /// Something seems to be wrong with a node.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.not_independent.get().map_or(Ok(()), |e| Err(e.clone()))
    }

    /// This session asks for a lease of so many milliseconds.
    pub(crate) fn asks_for(&self, millis: u64) {
        self.longest.fetch_max(millis, Ordering::Relaxed);
    }

    /// What is known of a node that is not counted.
    pub(crate) fn explain(&self, node: usize) -> Option<String> {
        let seen = lock(&self.seen);
        let stands = seen.get(node)?.as_ref()?.report;
        (stands.standing == Standing::Quarantined).then(|| {
            let left = waiting_time(stands.longest).saturating_sub(stands.age);
            format!(
                "it lost its data, and is not counted for a while (at least {:?})",
                Duration::from_micros(left)
            )
        })
    }
}

impl Desk {
    /// Looks until a quorum is open, or it is clear that it won't be soon.
    pub(crate) async fn begin_tending(self: &Arc<Self>) -> Result<()> {
        for _ in 0..40 {
            let outlook = self.tend().await;
            self.tender.check()?;
            if outlook.open >= self.quorum.need {
                break;
            }
            if self.quorum.nodes - outlook.silent.len() < self.quorum.need {
                let error = self.no_quorum(self.quorum.nodes - outlook.silent.len(), &outlook.silent);
                let never = self.quorum.nodes - outlook.hopeless < self.quorum.need;
                return Err(if never { error.retry(Retry::Never) } else { error });
            }
            if outlook.again > SOON {
                break;
            }
            // Somebody founds the set, or half of it has just been done.
            tokio::time::sleep(Duration::from_millis(2 + self.random(20))).await;
        }
        tokio::spawn(keep_tending(Arc::downgrade(self), self.tender.clone()));
        Ok(())
    }

    /// Looks at all nodes once, and does what is to be done.
    pub(crate) async fn tend(&self) -> Outlook {
        let _turn = self.tender.turn.lock().await;
        let looks = join_all(self.nodes.iter().map(|node| node.stand("look", &[]))).await;
        let (mut silent, mut hopeless) = (Vec::new(), 0);
        let mut stands: Vec<Option<Stand>> = Vec::new();
        for (n, look) in looks.into_iter().enumerate() {
            stands.push(match look {
                Ok(stand) => Some(stand),
                Err(e) => {
                    hopeless += usize::from(e.retry_advice() == Retry::Never);
                    silent.push((n, brief(&e)));
                    None
                }
            });
        }
        self.check_independence(&stands);
        let known = Known {
            in_use: self.tender.in_use.load(Ordering::Relaxed),
            trust_blank: self.config.first_use() == FirstUse::Now,
            longest: self.longest_known(),
        };
        let reports: Vec<Option<Report>> = stands.iter().map(|s| s.as_ref().map(|s| s.report)).collect();
        let mut again = PATROL;
        if self.tender.check().is_ok() {
            if is_new(&reports, known) {
                self.found(&mut stands).await;
                again = SOON;
            } else {
                let may_start = self.may_be_starting(&reports, known);
                for (n, step) in tend(self.quorum, &reports, known).into_iter().enumerate() {
                    if may_start && matches!(step, Step::Quarantine(_)) {
                        continue;
                    }
                    if let Some(stand) = self.carry_out(n, step).await {
                        stands[n] = Some(stand);
                    }
                }
            }
        }
        for stand in stands.iter().flatten() {
            again = again.min(match stand.report.standing {
                Standing::Open => PATROL,
                Standing::Blank | Standing::New => SOON,
                Standing::Quarantined => {
                    let left = waiting_time(self.longest(&stands)).saturating_sub(stand.report.age);
                    Duration::from_micros(left).max(SOON)
                }
            });
        }
        let open = stands.iter().flatten().filter(|s| s.report.standing == Standing::Open).count();
        if open >= self.quorum.need {
            self.tender.longest.fetch_max(self.longest(&stands), Ordering::Relaxed);
            self.tender.in_use.store(true, Ordering::Relaxed);
        }
        *lock(&self.tender.seen) = stands;
        Outlook { open, silent, hopeless, again }
    }

    /// Whether this may be a new set whose servers are starting one after the other: none that answers has a trace of use, and this
    /// session has not waited for the others yet. Nodes that don't count need no hurry.
    fn may_be_starting(&self, reports: &[Option<Report>], known: Known) -> bool {
        let first_look = *self.tender.first_look.get_or_init(Instant::now);
        let unused = |r: &Report| matches!(r.standing, Standing::Blank | Standing::New);
        !known.in_use
            && known.trust_blank
            && reports.iter().any(Option::is_none)
            && reports.iter().flatten().all(unused)
            && first_look.elapsed() < STARTING
    }

    /// The longest lease that was ever granted, if this session knows the set; else the longest that may be asked for.
    fn longest_known(&self) -> u64 {
        match self.tender.in_use.load(Ordering::Relaxed) {
            true => self.tender.longest.load(Ordering::Relaxed),
            false => u64::try_from(self.config.longest_lease().as_millis()).unwrap_or(u64::MAX / 2000),
        }
    }

    /// The longest lease that any node knows of.
    fn longest(&self, stands: &[Option<Stand>]) -> u64 {
        stands.iter().flatten().map(|s| s.report.longest).max().unwrap_or(0)
    }

    /// Founds a set that nobody has used before; see [`standing`](crate::protocol::standing) for why it takes these steps.
    async fn found(&self, stands: &mut [Option<Stand>]) {
        let set = 1 + self.random(NUMBERS - 1);
        // All clients must begin with the same node.
        let run = |n: &usize| stands[*n].as_ref().map(|s| s.run.clone());
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(run);
        let (first, others) = (order[0], &order[1..]);
        let yes = |answer: &Result<Stand>| answer.as_ref().is_ok_and(|stand| stand.done);
        if !yes(&self.nodes[first].stand("new", &[set]).await) {
            return;
        }
        let answers = join_all(others.iter().map(async |n| self.nodes[*n].stand("new", &[set]).await)).await;
        if !answers.iter().all(yes) {
            join_all(self.nodes.iter().map(async |node| node.stand("clear", &[set]).await)).await;
            return;
        }
        let opened = self.nodes[first].stand("open", &[set]).await;
        if !yes(&opened) {
            return;
        }
        stands[first] = opened.ok();
        let answers = join_all(others.iter().map(async |n| self.nodes[*n].stand("open", &[set]).await)).await;
        for (n, answer) in others.iter().zip(answers) {
            stands[*n] = answer.ok();
        }
        tracing::info!(target: "leasehold", nodes = self.nodes.len(), "a new Redlock set is open");
    }

    async fn carry_out(&self, n: usize, step: Step) -> Option<Stand> {
        let node = &self.nodes[n];
        let done = match step {
            Step::Leave => return None,
            Step::Open(set) => node.stand("open", &[set]).await,
            Step::Clear(set) => node.stand("clear", &[set]).await,
            Step::Quarantine(set) => {
                tracing::warn!(target: "leasehold", node = %node.place, "a node lost its data and is not counted for a while");
                node.stand("quarantine", &[set]).await
            }
            Step::Lift { since, set, floor, longest } => {
                tracing::info!(target: "leasehold", node = %node.place, "a node that lost its data is counted again");
                node.stand("lift", &[since, set, floor, longest]).await
            }
        };
        done.ok()
    }

    fn check_independence(&self, stands: &[Option<Stand>]) {
        for (n, stand) in stands.iter().enumerate() {
            let Some(stand) = stand else { continue };
            let process = |s: &Stand| s.run.split(':').next().map(str::to_owned);
            let twin =
                stands[..n].iter().position(|o| o.as_ref().is_some_and(|o| process(o) == process(stand)));
            if let Some(twin) = twin {
                let what =
                    format!("{} and {} are the same server", self.nodes[twin].place, self.nodes[n].place);
                let _ = self.tender.not_independent.set(
                    Error::new(Kind::Invalid, what)
                        .advice("a quorum counts servers, so each must be another one"),
                );
            }
        }
    }
}

async fn keep_tending(desk: Weak<Desk>, tender: Arc<Tender>) {
    let mut again = SOON;
    loop {
        // Woken when something is wrong, and when the session is gone.
        let _ = tokio::time::timeout(again, tender.wake.notified()).await;
        tokio::time::sleep(PAUSE).await;
        let Some(desk) = desk.upgrade().filter(|desk| !desk.closed.load(Ordering::SeqCst)) else { return };
        again = desk.tend().await.again + Duration::from_millis(desk.random(20));
    }
}
