//! One client's presence: what each call asks of a queue.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_background::{ClosedInForkedChild, close_in_forked_child};
use leasehold_core::clock::wall_micros;
use leasehold_core::queue::{Now, Queue};
use leasehold_core::store::{
    Ask, Inbox, Joined, Leave, Left, Pending, Presence, Renewal, Renewed, Session, Waiting, ready,
};
use leasehold_core::view::{Events, Lost, Snapshot};
use leasehold_core::{Clock, EntryId, Error, Kind, Label, Name, Result, Retry, SessionId, Token};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, yield_now};

use crate::config::Config;
use crate::event::{Check, Plan};
use crate::folder::{Folder, in_folder};
use crate::listing::Listing;
use crate::liveness::Peers;
use crate::state::Files;
use crate::traits::POLICY;
use crate::watchers::{self, Watchers, same_file};
use crate::{sweep, wake};

/// How many locks of a batch are looked at before others on the same thread get their turn.
const AT_ONCE: usize = 32;

/// How soon a place is looked at again if some of those ahead could not be watched.
const UNSURE_POLL: Duration = Duration::from_secs(1);

const OPEN: u8 = 0;
const GONE: u8 = 1;
const CLOSED: u8 = 2;

/// A session at the file store.
pub(crate) struct FileSession {
    pub(crate) me: SessionId,
    label: Label,
    pub(crate) inbox: Arc<dyn Inbox>,
    config: Config,
    pub(crate) folder: Arc<Folder>,
    pub(crate) files: Files,
    pub(crate) peers: Peers,
    pub(crate) watchers: Watchers,
    pub(crate) runtime: Handle,
    state: AtomicU8,
    life: Mutex<Option<Life>>,
    /// Every entry of this session, so that closing it can take them back.
    mine: Mutex<HashMap<EntryId, Name>>,
    listing: Mutex<Option<Listing>>,
}

/// What makes a session alive in the eyes of others: its FIFO, open for reading.
struct Life {
    /// A forked child must not keep the session alive. Dropped before the file is closed.
    _closed_in_child: ClosedInForkedChild,
    fifo: Arc<AsyncFd<OwnedFd>>,
    reader: AbortHandle,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl FileSession {
    /// Begins a presence in a folder that is open and checked, with a FIFO that is in its place.
    pub(crate) fn begin(
        config: Config,
        who: Presence,
        inbox: Arc<dyn Inbox>,
        folder: Folder,
        fifo: OwnedFd,
        runtime: Handle,
    ) -> Result<Arc<Self>> {
        let folder = Arc::new(folder);
        let fifo = wake::register(fifo, Interest::READABLE).map_err(|e| {
            in_folder(&folder.path, "can't be used: the FIFO of the session can't be read", e)
        })?;
        let fifo = Arc::new(fifo);
        let session = Arc::new(FileSession {
            me: who.id,
            label: who.label,
            inbox,
            config,
            files: Files::new(folder.clone()),
            peers: Peers::new(folder.clone(), runtime.clone()),
            watchers: Watchers::new(folder.clone())?,
            folder,
            runtime: runtime.clone(),
            state: AtomicU8::new(OPEN),
            life: Mutex::new(None),
            mine: Mutex::default(),
            listing: Mutex::default(),
        });
        let reader = runtime.spawn(wake::read_mail(Arc::downgrade(&fifo), Arc::downgrade(&session)));
        let _closed_in_child = close_in_forked_child(fifo.get_ref());
        *session.life() = Some(Life { _closed_in_child, fifo, reader: reader.abort_handle() });
        session.sweep_if_due();
        Ok(session)
    }

    pub(crate) fn now(&self) -> Now {
        // One clock for all processes of the host: it starts with the host and never stops.
        Now { tick: Clock::system().now(), wall: wall_micros() }
    }

    pub(crate) fn url(&self) -> String {
        self.config.url()
    }

    fn life(&self) -> MutexGuard<'_, Option<Life>> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mine(&self) -> MutexGuard<'_, HashMap<EntryId, Name>> {
        self.mine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry of ours is gone.
    pub(crate) fn forget(&self, id: EntryId) {
        self.mine().remove(&id);
    }

    /// Whether the session was closed or lost.
    pub(crate) fn is_over(&self) -> bool {
        self.state.load(Ordering::SeqCst) != OPEN
    }

    /// Whether a call may be made on this session.
    fn usable(&self) -> Result<()> {
        match self.state.load(Ordering::SeqCst) {
            OPEN => Ok(()),
            CLOSED => Err(Error::new(Kind::Refused, "the session is closed").at(self.url())),
            _ => Err(self.lost_error()),
        }
    }

    fn lost_error(&self) -> Error {
        let what = format!("the session ended: its file in {} was removed", self.folder.path.display());
        Error::new(Kind::Unavailable, what).retry(Retry::Later).advice("open a new session")
    }

    /// As [`usable`](Self::usable), and the FIFO must still have a name: without it others take this session for dead.
    fn usable_and_seen(&self) -> Result<()> {
        self.usable()?;
        let seen = match &*self.life() {
            Some(life) => rustix::fs::fstat(life.fifo.get_ref()).is_ok_and(|stat| stat.st_nlink > 0),
            None => false,
        };
        if seen {
            return Ok(());
        }
        self.vanished();
        self.usable()
    }

    /// Looks whether others still see this session where they would look for it, and the same queues as this one.
    pub(crate) fn check_presence(&self) {
        let fifo = self.folder.path.join("s").join(self.me.to_string());
        let seen = self.life().as_ref().is_none_or(|life| same_file(&fifo, life.fifo.get_ref()));
        if !seen || !same_file(&self.folder.path.join("q"), &self.folder.queues) {
            self.vanished();
        }
    }

    fn vanished(&self) {
        if self.state.compare_exchange(OPEN, GONE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.inbox.session_gone();
        }
    }

    async fn join_now(self: Arc<Self>, ask: Ask) -> Result<Joined> {
        self.usable_and_seen()?;
        let (id, name) = (ask.id, ask.name.clone());
        self.mine().insert(id, name.clone());
        let busy = |answer: &Joined| if *answer == Joined::Busy { Check::InTheWay } else { Check::Nobody };
        let plan = Plan { create: true, again: true, check: busy, about: Some(id), ..Plan::default() };
        let (me, label) = (self.me, self.label.clone());
        let joined = self
            .run(&name, plan, move |queue, now, out| queue.join(me, &label, &ask, POLICY, now, out))
            .await;
        match joined {
            Ok(done) => {
                if done.answer == Joined::Busy {
                    self.forget(id);
                }
                Ok(match done.answer {
                    Joined::Waiting(waiting) => Joined::Waiting(poll_if_unsure(waiting, done.unsure)),
                    other => other,
                })
            }
            Err(e) => {
                // It may have taken effect, and then closing must take it back.
                if e.kind() != Kind::Unavailable {
                    self.forget(id);
                }
                Err(e)
            }
        }
    }

    async fn renew_one(self: &Arc<Self>, ask: Renewal) -> Result<Renewed> {
        let (id, name) = (ask.id, ask.name.clone());
        // One who waits also looks at the holders, though another may be the one that watches them: that one may be stopped.
        let waits = |answer: &Renewed| {
            if matches!(answer, Renewed::Waiting(_)) { Check::Holders } else { Check::Nobody }
        };
        let plan = Plan { again: true, check: waits, about: Some(id), ..Plan::default() };
        let done =
            self.run(&name, plan, move |queue, now, out| Ok(queue.renew(&ask, POLICY, now, out))).await?;
        Ok(match done.answer {
            Renewed::Waiting(waiting) => Renewed::Waiting(poll_if_unsure(waiting, done.unsure)),
            Renewed::Gone(lost) => {
                self.forget(id);
                Renewed::Gone(lost)
            }
            held => held,
        })
    }

    async fn take_out(self: &Arc<Self>, leave: Leave) -> Result<Left> {
        let Leave { name, id, used } = leave;
        let event = move |queue: &mut Queue, now, out: &mut _| Ok(queue.leave(id, used, POLICY, now, out));
        let done = self.run(&name, Plan::default(), event).await.map_err(|e| match e.kind() {
            // Permissions that were taken away, say, or a file that was damaged: the entry is there for as long as
            // this process lives, and what is wrong may be put right.
            Kind::Invalid | Kind::Store => e.retry(Retry::SameId),
            _ => e,
        })?;
        self.forget(id);
        Ok(done.answer)
    }

    async fn inspect_now(self: &Arc<Self>, name: Name) -> Result<Snapshot> {
        let on = name.clone();
        let plan = Plan { check_all: true, again: true, ..Plan::default() };
        let look = move |queue: &mut Queue, now: Now, out: &mut _| {
            queue.expire(POLICY, now, out);
            Ok(queue.snapshot(&on, now))
        };
        Ok(self.run(&name, plan, look).await?.answer)
    }

    async fn list_now(
        self: Arc<Self>,
        prefix: String,
        after: Option<Name>,
        most: usize,
    ) -> Result<Vec<Snapshot>> {
        self.usable()?;
        let kept = self.listing.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut listing = match kept.filter(|kept| kept.goes_on(&prefix, after.as_ref())) {
            Some(kept) => kept,
            None => {
                let folder = self.folder.clone();
                let read = self.runtime.spawn_blocking(move || Listing::read(&folder, prefix, after));
                read.await
                    .map_err(|e| Error::new(Kind::Unavailable, "the runtime is shutting down").because(e))??
            }
        };
        let mut page = Vec::new();
        let mut looked = 0;
        while page.len() < most {
            let Some(name) = listing.next() else { break };
            match self.inspect_now(name).await {
                Ok(lock) if lock.holders.is_empty() && lock.waiters.is_empty() => {}
                Ok(lock) => page.push(lock),
                // A damaged file must not hide the others. Whoever asks for that lock is told.
                Err(e) if e.kind() == Kind::Store => {}
                Err(e) => return Err(e),
            }
            looked += 1;
            if looked % AT_ONCE == 0 {
                yield_now().await;
            }
        }
        *self.listing.lock().unwrap_or_else(PoisonError::into_inner) = Some(listing);
        Ok(page)
    }

    async fn close_now(self: Arc<Self>) -> Result<()> {
        if self.state.swap(CLOSED, Ordering::SeqCst) == CLOSED {
            return Ok(());
        }
        let mine: Vec<(EntryId, Name)> = self.mine().drain().collect();
        for (done, (id, name)) in mine.into_iter().enumerate() {
            // What can't be given back now ends with the FIFO below.
            let _ = self.take_out(Leave::new(name, id)).await;
            if done % AT_ONCE == AT_ONCE - 1 {
                yield_now().await;
            }
        }
        self.peers.remove_remains(self.me);
        *self.life() = None;
        if let Some(sweeping) = self.sweep_if_due() {
            let _ = sweeping.await;
        }
        Ok(())
    }

    /// Sweeps the folder in the background if that was not done lately.
    fn sweep_if_due(&self) -> Option<tokio::task::JoinHandle<()>> {
        let retention = self.config.retention;
        if !sweep::is_due(&self.folder, retention) {
            return None;
        }
        let folder = self.folder.clone();
        Some(self.runtime.spawn_blocking(move || sweep::sweep(&folder, retention)))
    }
}

impl Drop for FileSession {
    /// Without a proper close the entries stay, and others find them dead.
    fn drop(&mut self) {
        if self.life().is_some() {
            self.peers.remove_remains(self.me);
        }
    }
}

fn poll_if_unsure(waiting: Waiting, unsure: bool) -> Waiting {
    let poll_in = waiting.poll_in.unwrap_or(UNSURE_POLL).min(UNSURE_POLL);
    if unsure { Waiting { poll_in: Some(poll_in), ..waiting } } else { waiting }
}

impl Session for FileSession {
    fn join(self: Arc<Self>, ask: Ask) -> Pending<Joined> {
        Box::pin(self.join_now(ask))
    }

    fn renew(self: Arc<Self>, batch: Vec<Renewal>) -> Pending<Vec<Result<Renewed>>> {
        Box::pin(async move {
            self.check_presence();
            if self.state.load(Ordering::SeqCst) == GONE {
                return Ok(batch.iter().map(|_| Ok(Renewed::Gone(Lost::SessionGone))).collect());
            }
            self.usable()?;
            let mut answers = Vec::with_capacity(batch.len());
            for ask in batch {
                answers.push(self.renew_one(ask).await);
                if answers.len() % AT_ONCE == 0 {
                    yield_now().await;
                }
            }
            self.sweep_if_due();
            Ok(answers)
        })
    }

    fn leave(self: Arc<Self>, leave: Leave) -> Pending<Left> {
        Box::pin(async move { self.take_out(leave).await })
    }

    fn downgrade(self: Arc<Self>, name: Name, id: EntryId) -> Pending<Left> {
        Box::pin(async move {
            let event = move |queue: &mut Queue, now, out: &mut _| Ok(queue.downgrade(id, POLICY, now, out));
            Ok(self.run(&name, Plan::default(), event).await?.answer)
        })
    }

    fn set_limit(self: Arc<Self>, name: Name, limit: u32) -> Pending<()> {
        Box::pin(async move {
            self.usable()?;
            let plan = Plan { again: true, ..Plan::default() };
            self.run(&name, plan, move |queue, now, out| queue.set_limit(limit, POLICY, now, out)).await?;
            Ok(())
        })
    }

    fn revoke(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        Box::pin(async move {
            self.usable()?;
            let on = name.clone();
            let plan = Plan { check_all: true, ..Plan::default() };
            let event = move |queue: &mut Queue, now: Now, out: &mut _| {
                let holders = queue.revoke(expected, POLICY, now, out);
                Ok(Snapshot { holders, ..queue.snapshot(&on, now) })
            };
            Ok(self.run(&name, plan, event).await?.answer)
        })
    }

    fn request_release(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        Box::pin(async move {
            self.usable()?;
            let on = name.clone();
            let plan = Plan { check_all: true, ..Plan::default() };
            let event = move |queue: &mut Queue, now: Now, out: &mut _| {
                let holders = queue.request_release(expected, POLICY, now, out);
                Ok(Snapshot { holders, ..queue.snapshot(&on, now) })
            };
            Ok(self.run(&name, plan, event).await?.answer)
        })
    }

    fn inspect(self: Arc<Self>, name: Name) -> Pending<Snapshot> {
        Box::pin(async move {
            self.usable()?;
            self.inspect_now(name).await
        })
    }

    fn list(self: Arc<Self>, prefix: String, after: Option<Name>, most: usize) -> Pending<Vec<Snapshot>> {
        Box::pin(self.list_now(prefix, after, most))
    }

    fn watch(self: Arc<Self>, prefix: String) -> Pending<Events> {
        let _inside = self.runtime.enter();
        ready(self.usable().and_then(|()| watchers::watch(self.folder.clone(), prefix)))
    }

    fn lifeline(&self) -> Option<OwnedFd> {
        let life = self.life();
        // Closed on exec unless the caller hands it over: it must not leak into children by accident.
        life.as_ref().and_then(|life| rustix::io::fcntl_dupfd_cloexec(life.fifo.get_ref(), 3).ok())
    }

    fn close(self: Arc<Self>) -> Pending<()> {
        Box::pin(self.close_now())
    }
}
