//! One client's presence: each call is an event on a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use leasehold_core::queue::{Effects, Entry, Now, Queue};
use leasehold_core::store::{
    Ask, Grant, Joined, Leave, Left, Otherwise, Presence, Renewal, Renewed, Term, Waiting,
};
use leasehold_core::view::Snapshot;
use leasehold_core::{EntryId, Error, Kind, Name, Result, Retry, SessionId, TokenBlock, Want};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::backend::{Backend, Bell, Departing, Entering, Kept, Loaded, Lock, Step, Stepped};
use crate::change::Change;
use crate::letter::{self, Letter};
use crate::row::{Row, tick};
use crate::together::Outbox;
use crate::trouble::is_taken;
use crate::wake::Wake;
use crate::{BLOCK, POLICY};

/// How often an event is tried again because somebody else was faster. Each time means that another one was done.
const TRIES: u32 = 200;

/// After so many tries it waits a little before the next, so that those that are slow get their turn.
const HASTY_TRIES: u32 = 2;

/// How many locks of a batch are worked on at once.
const AT_ONCE: usize = 8;

/// One session in so many, by its random id, removes what is left of idle locks when it ends. Most may be too short to do it meanwhile.
pub const SWEEPERS: u128 = 64;

/// How many events of a session may be under way at once.
pub(crate) const TURNS: usize = 64;

static RETRIED: AtomicU64 = AtomicU64::new(0);

/// How often this process tried an event again because somebody else changed the lock first.
pub fn retried() -> u64 {
    RETRIED.load(Ordering::Relaxed)
}

/// The session itself: it lives until the last of its tasks is done.
pub(crate) struct Desk<B> {
    pub(crate) backend: Arc<B>,
    pub(crate) me: Presence,
    pub(crate) wake: Arc<Wake>,
    pub(crate) bell: Arc<dyn Bell>,
    pub(crate) retention: Duration,
    /// How long one statement may take.
    pub(crate) timeout: Duration,
    /// Events of this session on one lock take turns, so that they don't get into each other's way. Locks share them by their hash.
    pub(crate) turns: [Mutex<()>; TURNS],
    /// Since when the session says without a gap that it watches.
    pub(crate) watching: Mutex<Option<Instant>>,
    pub(crate) closed: AtomicBool,
    pub(crate) outbox: Outbox,
}

impl<B: Backend> Desk<B> {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) async fn ask(self: &Arc<Self>, ask: Ask) -> Result<Joined> {
        let asked_before = self.wake.track(ask.id, &ask.name);
        if !asked_before && !self.bell.heard() {
            // The postman looks more often while there is somebody whom mail could be for. To wake it is not free.
            self.wake.mail.notify_one();
        }
        let turns = self.wake.turns();
        // What its row may say, however the bell changes meanwhile.
        let told = self.bell.wake();
        let joined = match self.enter(&ask, &told).await {
            Ok(Some(grant)) => Ok(Joined::Held(grant)),
            // One that may be there already must not be added. What is not usual is in a box, so that the usual case carries no room for it.
            Ok(None) if !asked_before && ask.otherwise == Otherwise::Queue => {
                Box::pin(self.append(&ask, &told)).await
            }
            Ok(None) => Box::pin(self.join(&ask)).await,
            Err(error) => Err(error),
        };
        match joined {
            Ok(Joined::Waiting(waiting)) => Box::pin(self.waits(&ask, turns, told, waiting)).await,
            Ok(Joined::Held(grant)) => {
                self.wake.holds_with(ask.id, told);
                if self.wake.turns() != turns {
                    // Its row may say otherwise than how it is told now.
                    self.wake.mail.notify_one();
                }
                Ok(Joined::Held(grant))
            }
            Ok(Joined::Busy) => {
                self.wake.forget(ask.id);
                Ok(Joined::Busy)
            }
            Err(error) => {
                if !asked_before && error.retry_advice() != Retry::SameId {
                    self.wake.forget(ask.id);
                }
                Err(error)
            }
        }
    }

    /// The usual case: the lock is free.
    async fn enter(self: &Arc<Self>, ask: &Ask, told: &str) -> Result<Option<Grant>> {
        let limit = match ask.want {
            Want::Permits { n, of } if n > of => return Ok(None),
            Want::Permits { of, .. } => Some(of),
            Want::Exclusive | Want::Shared => None,
        };
        let row = Row { entry: self.entry(ask), barges: false, seq: 1, wake: told.to_owned() };
        let entering = Box::new(Entering { name: ask.name.clone(), row, limit });
        let Stepped::Entered(first) = self.step(Step::Enter(entering)).await.map_err(|e| e.on(&ask.name))?
        else {
            return Ok(None);
        };
        Ok(Some(Grant {
            tokens: TokenBlock { first, len: BLOCK },
            term: Term::For(ask.lease.length()),
            started: true,
            contended: false,
            release_requested: false,
        }))
    }

    /// The usual wait: behind one that holds the lock alone.
    async fn append(&self, ask: &Ask, told: &str) -> Result<Joined> {
        if matches!(ask.want, Want::Permits { .. }) {
            return self.join(ask).await;
        }
        let row = Row { entry: self.entry(ask), barges: false, seq: 0, wake: told.to_owned() };
        match self.backend.append(&ask.name, &row).await {
            Ok(Some(waiting)) => Ok(Joined::Waiting(waiting)),
            Ok(None) => self.join(ask).await,
            // Whoever had no answer in time has asked again under the same id, and that request was faster: it is there.
            Err(error) if is_taken(&error) => self.join(ask).await,
            Err(error) => Err(error.on(&ask.name)),
        }
    }

    async fn join(&self, ask: &Ask) -> Result<Joined> {
        let (me, label) = (self.me.id, &self.me.label);
        self.apply(&ask.name, |queue, now, out| queue.join(me, label, ask, POLICY, now, out)).await?
    }

    /// An entry waits. If listening began or ended meanwhile, it looks once more: it may have missed its grant.
    async fn waits(&self, ask: &Ask, turns: u64, told: String, waiting: Waiting) -> Result<Joined> {
        self.wake.waits_with(ask.id, told);
        if self.wake.turns() == turns {
            return Ok(Joined::Waiting(waiting));
        }
        let line = Renewal { name: ask.name.clone(), id: ask.id, token: None, more_tokens: false };
        match self.renew(&line).await? {
            Renewed::Held(grant) => Ok(Joined::Held(grant)),
            Renewed::Waiting(waiting) => Ok(Joined::Waiting(waiting)),
            Renewed::Gone(_) => Err(Error::new(Kind::Unavailable, "the place in the queue was lost")),
        }
    }

    /// Renews a batch: those that are alone on their lock in one statement, the others one by one.
    pub(crate) async fn renew_all(&self, batch: Vec<Renewal>) -> Vec<Result<Renewed>> {
        let usual = |line: &Renewal| line.token.is_some() && !line.more_tokens;
        let alone: Vec<(Name, EntryId)> =
            batch.iter().filter(|line| usual(line)).map(|line| (line.name.clone(), line.id)).collect();
        let wake = self.bell.wake();
        let kept = if alone.is_empty() { Ok(Vec::new()) } else { self.backend.keep(&alone, &wake).await };
        let mut kept = match kept {
            Ok(kept) => kept.into_iter(),
            Err(error) => return batch.iter().map(|line| Err(error.clone().on(&line.name))).collect(),
        };
        let lines = batch.into_iter().map(|line| {
            let kept = if usual(&line) { kept.next().flatten() } else { None };
            let wake = &wake;
            async move {
                match kept {
                    Some(kept) => {
                        self.wake.holds_with(line.id, wake.clone());
                        Ok(Renewed::Held(still_held(kept)))
                    }
                    None => self.renew(&line).await,
                }
            }
        });
        let lines: Vec<_> = lines.collect();
        stream::iter(lines).buffered(AT_ONCE).collect().await
    }

    async fn renew(&self, line: &Renewal) -> Result<Renewed> {
        if line.token.is_none()
            && self.wake.is_waiting_with(line.id, &self.bell.wake())
            && let Some(waiting) =
                self.backend.stay(&line.name, line.id).await.map_err(|e| e.on(&line.name))?
        {
            return Ok(Renewed::Waiting(waiting));
        }
        let wake = self.bell.wake();
        let renewed = self.apply(&line.name, |queue, now, out| queue.renew(line, POLICY, now, out)).await?;
        match renewed {
            Renewed::Gone(_) => self.wake.forget(line.id),
            Renewed::Held(_) => self.wake.holds_with(line.id, wake),
            Renewed::Waiting(_) => self.wake.waits_with(line.id, wake),
        }
        Ok(renewed)
    }

    pub(crate) async fn leave(self: &Arc<Self>, leave: &Leave) -> Result<Left> {
        let left = match self.quick_leave(leave).await.map_err(|e| e.on(&leave.name))? {
            true => Left::Done,
            false => {
                let (id, used) = (leave.id, leave.used);
                let event = |queue: &mut Queue, now, out: &mut _| queue.leave(id, used, POLICY, now, out);
                Box::pin(self.apply(&leave.name, event)).await?
            }
        };
        self.wake.forget(leave.id);
        Ok(left)
    }

    /// The usual cases: one that is alone, one that waits behind another, and one that hands over to the next.
    async fn quick_leave(self: &Arc<Self>, leave: &Leave) -> Result<bool> {
        let (name, id, used) = (&leave.name, leave.id, leave.used);
        if self.wake.is_waiting(id) {
            return Box::pin(self.backend.withdraw(name, id)).await;
        }
        let departing = Departing { name: name.clone(), id, used };
        if self.step(Step::Depart(departing)).await? == Stepped::Departed {
            return Ok(true);
        }
        Box::pin(self.hand_over(leave)).await
    }

    /// The next in line gets the lock, if that is clear from the first few.
    async fn hand_over(&self, Leave { name, id, used, .. }: &Leave) -> Result<bool> {
        let (id, used) = (*id, *used);
        for _ in 0..HASTY_TRIES {
            let mut loaded = self.backend.peek(name).await?;
            // A limit lasts as long as anybody wants permits, and not all were read.
            let lock = loaded.locks.pop().flatten().filter(|lock| lock.limit.is_none());
            let Some(before) = lock else { return Ok(false) };
            let (mut queue, now) = (before.queue(), moment(loaded.now));
            let mut out = Effects::new(!loaded.watchers.is_empty());
            let left = queue.leave(id, used, POLICY, now, &mut out);
            // Those that were not read don't matter if one holds it alone now, and there was an end to the line of its heirs.
            let decided = matches!(queue.entries.as_slice(), [heir, ..] if heir.want == Want::Exclusive)
                || before.is_whole();
            if left != Left::Done || !decided {
                return Ok(false);
            }
            let mut change = self.change(name, Some(&before), &queue, &loaded, out)?;
            // What was not read may last longer than what was.
            change.keep = change.keep.max(before.keep);
            if self.backend.save(&change).await? {
                return Ok(true);
            }
            RETRIED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(false)
    }

    pub(crate) async fn look(&self, names: &[Name]) -> Result<Vec<(Snapshot, bool)>> {
        let loaded = self.backend.load(names).await?;
        let now = moment(loaded.now);
        let looks = names.iter().zip(&loaded.locks).map(|(name, lock)| {
            let queue = lock.as_ref().map(Lock::queue).unwrap_or_default();
            let snapshot = queue.snapshot(name, now);
            let idle = snapshot.holders.is_empty() && snapshot.waiters.is_empty();
            (snapshot, idle)
        });
        Ok(looks.collect())
    }

    /// A page of the names in use, in byte order.
    pub(crate) async fn page(
        &self,
        prefix: &str,
        mut after: Option<Name>,
        most: usize,
    ) -> Result<Vec<Snapshot>> {
        let mut page = Vec::new();
        while page.len() < most {
            // Some may turn out to be over, so there may be more than one round.
            let names = self.backend.names(prefix, after.as_ref(), most - page.len()).await?;
            let Some(last) = names.last().cloned() else { break };
            page.extend(self.look(&names).await?.into_iter().filter(|(_, idle)| !idle).map(|(seen, _)| seen));
            after = Some(last);
        }
        Ok(page)
    }

    /// Applies one event to a lock, and tells those whom it concerns. Tried again while others are faster.
    pub(crate) async fn apply<T>(
        &self,
        name: &Name,
        event: impl Fn(&mut Queue, Now, &mut Effects) -> T,
    ) -> Result<T> {
        let _turn = self.turns[name.stable_hash() as usize % TURNS].lock().await;
        for tried in 0..TRIES {
            if tried > 0 {
                RETRIED.fetch_add(1, Ordering::Relaxed);
            }
            if tried >= HASTY_TRIES {
                tokio::time::sleep(pause(tried)).await;
            }
            let mut loaded = self.backend.load(std::slice::from_ref(name)).await.map_err(|e| e.on(name))?;
            let before = loaded.locks.pop().flatten();
            let was = before.as_ref().map(Lock::queue).unwrap_or_default();
            let (mut queue, now) = (was.clone(), moment(loaded.now));
            let mut out = Effects::new(!loaded.watchers.is_empty());
            let answer = event(&mut queue, now, &mut out);
            if queue == was && out.notes.is_empty() && self.is_told_rightly(before.as_ref()) {
                return Ok(answer);
            }
            let change = self.change(name, before.as_ref(), &queue, &loaded, out)?;
            if self.backend.save(&change).await.map_err(|e| e.on(name))? {
                return Ok(answer);
            }
        }
        let what = format!("others changed the lock {TRIES} times while this was tried");
        Err(Error::new(Kind::Unavailable, what).on(name))
    }

    /// Whether the rows of this session's entries say how they are told now. One that came before listening began says otherwise.
    fn is_told_rightly(&self, lock: Option<&Lock>) -> bool {
        let mut own = lock.into_iter().flat_map(|lock| &lock.rows).filter(|row| row.session() == self.me.id);
        let wake = self.bell.wake();
        own.all(|row| row.wake == wake)
    }

    fn change(
        &self,
        name: &Name,
        before: Option<&Lock>,
        after: &Queue,
        loaded: &Loaded,
        out: Effects,
    ) -> Result<Change> {
        let wake = self.bell.wake();
        let mine = |entry: &Entry| (entry.session == self.me.id).then(|| wake.clone());
        let mut change = Change::between(name, before, after, loaded.now, self.retention, mine)?;
        let rows = before.map_or(&[][..], |lock| &lock.rows);
        let told = |to: SessionId, id: EntryId| match rows.iter().find(|row| row.id() == id) {
            Some(row) if to != self.me.id => row.wake.clone(),
            _ => wake.clone(),
        };
        change.letters = out
            .notes
            .iter()
            .filter_map(|(to, id, news)| {
                let text = letter::note(*id, news)?;
                Some(Letter { to: *to, wake: told(*to, *id), text, event: false })
            })
            .collect();
        for (what, entry) in out.events.iter().flatten() {
            let Some(text) = letter::event(name, loaded.now, *what, entry) else { continue };
            change.letters.extend(loaded.watchers.iter().map(|(to, wake)| Letter {
                to: *to,
                wake: wake.clone(),
                text: text.clone(),
                event: true,
            }));
        }
        Ok(change)
    }

    fn entry(&self, ask: &Ask) -> Entry {
        Entry {
            id: ask.id,
            session: self.me.id,
            label: self.me.label.clone(),
            want: ask.want,
            lease: ask.lease,
            place: ask.place,
            since: 0,
            ends: None,
            grant: None,
        }
    }

    /// Removes what is left of locks that nobody uses, if that can be done now.
    pub(crate) async fn sweep(&self) {
        if let Err(error) = self.backend.sweep().await {
            tracing::debug!(%error, "what is left of idle locks can't be removed now");
        }
    }

    /// Every entry leaves, and the connections go.
    pub(crate) async fn say_goodbye(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let me = self.me.id;
        // What is on its way would come after the goodbye. If its future is not polled any more, what the session holds is
        // given back all the same: one after the other, for what waits for a connection takes the one with the least to do, and
        // that is never the one of such a future.
        let settled = tokio::time::timeout(self.timeout, self.outbox.settled()).await;
        let at_once = if settled.is_ok() { AT_ONCE } else { 1 };
        let names = self.wake.names();
        let leaving = names.iter().map(|name| {
            self.apply(name, move |queue, now, out| {
                queue.session_gone(me, POLICY, now, out);
                // It knows.
                out.notes.retain(|(to, ..)| *to != me);
            })
        });
        let leaving: Vec<_> = leaving.collect();
        let outcomes: Vec<Result<()>> = stream::iter(leaving).buffered(at_once).collect().await;
        // What was told to this session meanwhile, nobody will fetch.
        let _ = self.backend.mail(me).await;
        if me.0.is_multiple_of(SWEEPERS) {
            self.sweep().await;
        }
        self.backend.close().await;
        self.wake.mail.notify_one();
        outcomes.into_iter().collect()
    }
}

fn still_held(kept: Kept) -> Grant {
    Grant {
        tokens: kept.tokens,
        term: Term::For(kept.lease),
        started: true,
        contended: false,
        release_requested: kept.asked,
    }
}

/// A moment by the database's clock.
pub(crate) fn moment(micros: u64) -> Now {
    Now { tick: tick(micros), wall: micros }
}

/// Up to some milliseconds, at random.
fn pause(tried: u32) -> Duration {
    let mut byte = [0; 2];
    // Without random bytes all wait alike, and it takes longer.
    let _ = getrandom::fill(&mut byte);
    let most = u64::from(tried.min(10)) * 1000;
    Duration::from_micros(u64::from(u16::from_le_bytes(byte)) * most / u64::from(u16::MAX))
}
