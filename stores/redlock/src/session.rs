//! One client's presence at the nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::store::{
    Ask, Grant, Inbox, Joined, Leave, Left, Pending, Presence, Renewal, Renewed, Session, Term,
    Waiting as Waits, ready,
};
use leasehold_core::view::{Events, Lost, Snapshot};
use leasehold_core::{Backoff, EntryId, Error, Kind, Name, Result, Retry, Token, Want};
use tokio::sync::OwnedMutexGuard;

use crate::attempt::{Taken, Tried};
use crate::desk::Desk;
use crate::node::Node;
use crate::protocol::Quorum;
use crate::showing::only_exclusive;
use crate::state::{Entry, Fate, Stage, Waiting};
use crate::store::Redlock;
use crate::wake::{Ear, SHORT};

/// The pauses after attempts that got some nodes and not enough: each client draws its own, so that those who split the nodes
/// don't meet again.
const SPLIT: Backoff = Backoff { first: Duration::from_millis(4), most: Duration::from_secs(1) };

/// How often a claim that does not want to wait tries again when the nodes were split: somebody gets them in the end, or nobody
/// has them.
const TRIES: u32 = 4;

pub(crate) struct RedlockSession(pub(crate) Arc<Desk>);

impl RedlockSession {
    pub(crate) async fn open(
        store: Arc<Redlock>,
        me: Presence,
        inbox: Arc<dyn Inbox>,
    ) -> Result<Arc<RedlockSession>> {
        let mut seed = [0; 8];
        let random = getrandom::fill(&mut seed);
        random.map_err(|e| {
            Error::new(Kind::Unavailable, "the system gave no random bytes").because(e.to_string())
        })?;
        let config = store.config.clone();
        let mut failure = None;
        let desk = Arc::new_cyclic(|desk| {
            let start = |(n, server)| {
                let ear = Arc::new(Ear::new(n, desk.clone()));
                Node::start(n, server, &config, store.scripts.clone(), me.id, ear)
            };
            let nodes: Result<Vec<_>> = config.servers.iter().enumerate().map(start).collect();
            let nodes = nodes.unwrap_or_else(|e| {
                failure = Some(e);
                Vec::new()
            });
            Desk {
                quorum: Quorum::of(config.servers.len()),
                config: config.clone(),
                nodes,
                me,
                inbox,
                entries: Default::default(),
                tender: Default::default(),
                watchers: Default::default(),
                ballots: Default::default(),
                watching: Default::default(),
                closed: AtomicBool::new(false),
                random: AtomicU64::new(u64::from_le_bytes(seed)),
            }
        });
        if let Some(e) = failure {
            return Err(e);
        }
        desk.begin_tending().await.map_err(|e| e.at(config.url()))?;
        Ok(Arc::new(RedlockSession(desk)))
    }
}

impl Desk {
    fn check(&self, ask: &Ask) -> Result<()> {
        self.check_open()?;
        if ask.want != Want::Exclusive {
            return Err(only_exclusive(&ask.name));
        }
        let longest = self.config.longest_lease();
        if ask.lease.length() > longest {
            let what = format!(
                "a lease of {:?} is longer than the longest of this store, {longest:?}",
                ask.lease.length()
            );
            return Err(Error::new(Kind::Invalid, what)
                .advice("see longest-lease= in its URL")
                .on(&ask.name));
        }
        self.tender.asks_for(u64::try_from(ask.lease.length().as_millis()).unwrap_or(u64::MAX));
        Ok(())
    }

    async fn join(self: Arc<Self>, entry: Arc<Entry>) -> Result<Joined> {
        let stage = entry.stage.clone().lock_owned().await;
        if let Stage::Held(held) = &*stage {
            // Asked again after an answer that was lost.
            let (name, id, token) = (entry.name.clone(), entry.id, Some(held.tokens.first));
            let ask = Renewal { name, id, token, more_tokens: false };
            match self.clone().renew_locked(entry.clone(), stage, ask).await? {
                Renewed::Held(grant) => return Ok(Joined::Held(grant)),
                Renewed::Waiting(waiting) => return Ok(Joined::Waiting(waiting)),
                Renewed::Gone(_) => {}
            }
            let what = "the lease had ended before this answer";
            return Err(Error::new(Kind::Lost, what).retry(Retry::Never).on(&entry.name));
        }
        match self.retry(&entry, stage).await? {
            Renewed::Held(grant) => Ok(Joined::Held(grant)),
            Renewed::Waiting(waiting) => Ok(Joined::Waiting(waiting)),
            Renewed::Gone(_) => {
                self.entries.forget(&entry);
                Ok(Joined::Busy)
            }
        }
    }

    /// One more attempt for an entry that does not hold. `Gone`: it is taken, and the entry does not wait.
    pub(crate) async fn retry(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        mut stage: OwnedMutexGuard<Stage>,
    ) -> Result<Renewed> {
        let mut waiting = match &*stage {
            Stage::Waiting(waiting) => *waiting,
            _ => Waiting::default(),
        };
        let mut tended = false;
        let mut tries = 0;
        loop {
            self.check_open()?;
            if entry.fate() == Fate::Gone {
                // It left while this request waited for its turn.
                return Ok(Renewed::Gone(Lost::Expired));
            }
            let taken = match self.attempt(entry, waiting.floor).await {
                Ok(Tried::Held(held, contended)) => {
                    *stage = Stage::Held(held);
                    let term = Term::For(entry.lease.length());
                    return Ok(Renewed::Held(Grant {
                        tokens: held.tokens,
                        term,
                        started: true,
                        contended,
                        release_requested: false,
                    }));
                }
                Ok(Tried::Taken(taken)) => taken,
                // Perhaps a node only has to be looked after: a set that is new, a quarantine that is over.
                Ok(Tried::Untended(e)) if !tended => {
                    tended = true;
                    if self.tend().await.open < self.quorum.need {
                        return Err(e.on(&entry.name));
                    }
                    continue;
                }
                Ok(Tried::Untended(e)) | Err(e) => return Err(e.on(&entry.name)),
            };
            waiting.floor = waiting.floor.max(taken.highest);
            waiting.splits = if taken.grants > 0 { waiting.splits + 1 } else { 0 };
            if entry.waits() {
                *stage = Stage::Waiting(waiting);
                // Whoever is told from here on acts at once; who was told before, during the attempt, asks again.
                drop(stage);
                let poll_in = match entry.turns() as usize {
                    0 => self.poll_in(&taken, &waiting),
                    told if told < self.quorum.need => SHORT,
                    _ => Duration::ZERO,
                };
                return Ok(Renewed::Waiting(Waits { place: None, poll_in: Some(poll_in) }));
            }
            tries += 1;
            if taken.grants == 0 || tries >= TRIES {
                return match entry.failure() {
                    Some(error) => Err(error.on(&entry.name)),
                    None => Ok(Renewed::Gone(Lost::Expired)),
                };
            }
            tokio::time::sleep(SPLIT.pause(tries, self.random(1 << 20) as u32)).await;
        }
    }

    /// When it is worth asking again though nobody told us to.
    fn poll_in(&self, taken: &Taken, waiting: &Waiting) -> Duration {
        // The first in line looks first; the others a little later, so that they don't meet.
        let rest = taken.rest + Duration::from_millis(u64::from(taken.before.min(200)) * 2);
        let jitter = Duration::from_micros(self.random(4_000));
        match waiting.splits {
            0 => rest + jitter,
            splits => SPLIT.pause(splits - 1, self.random(1 << 20) as u32).min(rest) + jitter,
        }
    }
}

impl Session for RedlockSession {
    fn join(self: Arc<Self>, ask: Ask) -> Pending<Joined> {
        let desk = self.0.clone();
        if let Err(e) = desk.check(&ask) {
            return ready(Err(e));
        }
        // Known before it is asked for: a leave that comes meanwhile finds it.
        let entry = desk.entries.enter(&ask);
        Box::pin(desk.join(entry))
    }

    fn renew(self: Arc<Self>, batch: Vec<Renewal>) -> Pending<Vec<Result<Renewed>>> {
        Box::pin(self.0.clone().renew(batch))
    }

    fn leave(self: Arc<Self>, leave: Leave) -> Pending<Left> {
        Box::pin(self.0.clone().leave(leave))
    }

    fn downgrade(self: Arc<Self>, name: Name, _: EntryId) -> Pending<Left> {
        ready(Err(only_exclusive(&name)))
    }

    fn set_limit(self: Arc<Self>, name: Name, _: u32) -> Pending<()> {
        ready(Err(only_exclusive(&name)))
    }

    fn revoke(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        Box::pin(async move { self.0.revoke(&name, expected).await })
    }

    fn request_release(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        Box::pin(async move { self.0.request_release(&name, expected).await })
    }

    fn inspect(self: Arc<Self>, name: Name) -> Pending<Snapshot> {
        Box::pin(async move { self.0.inspect(&name).await })
    }

    fn list(self: Arc<Self>, prefix: String, after: Option<Name>, most: usize) -> Pending<Vec<Snapshot>> {
        Box::pin(self.0.clone().page(prefix, after, most))
    }

    fn watch(self: Arc<Self>, prefix: String) -> Pending<Events> {
        Box::pin(self.0.clone().begin_watching(prefix))
    }

    fn close(self: Arc<Self>) -> Pending<()> {
        Box::pin(async move {
            if self.0.closed.swap(true, Ordering::SeqCst) {
                return Ok(());
            }
            let all = self.0.entries.all();
            let left = join_all(
                all.iter().map(|entry| self.0.clone().leave(Leave::new(entry.name.clone(), entry.id))),
            )
            .await;
            let failed = left.into_iter().find_map(Result::err);
            // What a quorum has heard is on its way to the others.
            join_all(self.0.nodes.iter().map(|node| node.flush())).await;
            join_all(self.0.nodes.iter().map(|node| node.close())).await;
            failed.map_or(Ok(()), Err)
        })
    }
}
