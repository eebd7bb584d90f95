//! The session of every SQL store.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::store::{Ask, Inbox, Joined, Leave, Left, Pending, Presence, Renewal, Renewed, Session};
use leasehold_core::view::{Events, Snapshot};
use leasehold_core::{Clock, EntryId, Error, Kind, Name, Result, Tick, Token};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::POLICY;
use crate::backend::Backend;
use crate::desk::Desk;
pub use crate::desk::{SWEEPERS, retried};
use crate::options::Options;
use crate::postman;
use crate::together::Outbox;
use crate::unwatched::LAG;
use crate::wake::{Ears, Wake};

/// How long it counts that a session said that it watches.
const WATCHES: Duration = Duration::from_secs(15);

/// How often a session looks for what is left of locks that nobody uses. One in [`SWEEPERS`] also does when it ends.
const SWEEPS: Duration = Duration::from_secs(600);

/// What the client holds. Dropping it says goodbye in the background.
pub struct SqlSession<B: Backend> {
    desk: Arc<Desk<B>>,
    runtime: Handle,
}

impl<B: Backend> SqlSession<B> {
    /// Begins a presence on a database.
    pub fn open(backend: Arc<B>, me: Presence, inbox: Arc<dyn Inbox>, options: &Options) -> Arc<Self> {
        let Options { retention, timeout, .. } = *options;
        let wake = Arc::new(Wake::new(inbox));
        let bell = backend.listen(me.id, Arc::new(Ears(wake.clone())));
        let (watching, closed) = (Mutex::new(None), AtomicBool::new(false));
        let turns = std::array::from_fn(|_| Mutex::new(()));
        let outbox = Outbox::new(Handle::current(), backend.lanes());
        let desk =
            Arc::new(Desk { backend, me, wake, bell, retention, timeout, turns, watching, closed, outbox });
        tokio::spawn(postman::deliver(Arc::downgrade(&desk)));
        tokio::spawn(sweep(Arc::downgrade(&desk)));
        Arc::new(SqlSession { desk, runtime: Handle::current() })
    }
}

impl<B: Backend> Drop for SqlSession<B> {
    fn drop(&mut self) {
        if !self.desk.is_closed() {
            let desk = self.desk.clone();
            self.runtime.spawn(async move { desk.say_goodbye().await });
        }
    }
}

impl<B: Backend> Session for SqlSession<B> {
    fn join(self: Arc<Self>, ask: Ask) -> Pending<Joined> {
        Box::pin(async move { self.desk.ask(ask).await })
    }

    fn renew(self: Arc<Self>, batch: Vec<Renewal>) -> Pending<Vec<Result<Renewed>>> {
        Box::pin(async move { Ok(self.desk.renew_all(batch).await) })
    }

    fn leave(self: Arc<Self>, leave: Leave) -> Pending<Left> {
        Box::pin(async move { self.desk.leave(&leave).await })
    }

    fn downgrade(self: Arc<Self>, name: Name, id: EntryId) -> Pending<Left> {
        Box::pin(async move {
            self.desk.apply(&name, |queue, now, out| queue.downgrade(id, POLICY, now, out)).await
        })
    }

    fn set_limit(self: Arc<Self>, name: Name, limit: u32) -> Pending<()> {
        Box::pin(async move {
            self.desk.apply(&name, |queue, now, out| queue.set_limit(limit, POLICY, now, out)).await?
        })
    }

    fn revoke(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        Box::pin(async move {
            let revoke = |queue: &mut leasehold_core::queue::Queue, now, out: &mut _| {
                let holders = queue.revoke(expected, POLICY, now, out);
                Snapshot { holders, ..queue.snapshot(&name, now) }
            };
            self.desk.apply(&name, revoke).await
        })
    }

    fn request_release(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        Box::pin(async move {
            let request = |queue: &mut leasehold_core::queue::Queue, now, out: &mut _| {
                let holders = queue.request_release(expected, POLICY, now, out);
                Snapshot { holders, ..queue.snapshot(&name, now) }
            };
            self.desk.apply(&name, request).await
        })
    }

    fn inspect(self: Arc<Self>, name: Name) -> Pending<Snapshot> {
        Box::pin(async move {
            let seen = self.desk.look(std::slice::from_ref(&name)).await?.pop();
            seen.map(|(snapshot, _)| snapshot)
                .ok_or_else(|| Error::new(Kind::Store, "the database said nothing of the lock").on(&name))
        })
    }

    fn list(self: Arc<Self>, prefix: String, after: Option<Name>, most: usize) -> Pending<Vec<Snapshot>> {
        Box::pin(async move { self.desk.page(&prefix, after, most).await })
    }

    fn watch(self: Arc<Self>, prefix: String) -> Pending<Events> {
        Box::pin(async move {
            let desk = &self.desk;
            let mut since = desk.watching.lock().await;
            let events = desk.wake.watchers.watch(prefix);
            let said = Clock::system().now();
            desk.say_that_it_watches().await?;
            let began = *since.get_or_insert_with(|| {
                tokio::spawn(keep_watching(Arc::downgrade(desk), said));
                Instant::now()
            });
            drop(since);
            desk.wake.ring();
            tokio::time::sleep_until(began + LAG).await;
            Ok(events)
        })
    }

    fn close(self: Arc<Self>) -> Pending<()> {
        Box::pin(async move { self.desk.say_goodbye().await })
    }
}

impl<B: Backend> Desk<B> {
    async fn say_that_it_watches(&self) -> Result<()> {
        let wake = self.bell.wake();
        self.backend.watch(self.me.id, &wake, WATCHES).await?;
        self.wake.announce(Some(wake));
        Ok(())
    }
}

/// Says again and again that the session watches, as it did after `said`. After the last watcher it ends by itself.
async fn keep_watching<B: Backend>(desk: Weak<Desk<B>>, mut said: Tick) {
    loop {
        tokio::time::sleep(WATCHES / 5).await;
        let Some(desk) = desk.upgrade() else { return };
        let mut since = desk.watching.lock().await;
        if !desk.wake.watchers.any() || desk.is_closed() {
            *since = None;
            desk.wake.announce(None);
            return;
        }
        let now = Clock::system().now();
        if let Err(error) = desk.say_that_it_watches().await {
            desk.wake.watchers.interrupted(&error);
            continue;
        }
        if Clock::system().now().since(said) >= WATCHES {
            // It did not count any more: this process stood still, or the database was away for long.
            *since = Some(Instant::now());
            drop(since);
            tokio::time::sleep(LAG).await;
            desk.wake.watchers.reconnected();
        }
        said = now;
    }
}

/// Removes what is left of locks that nobody uses. All sessions do, so each does it rarely.
async fn sweep<B: Backend>(desk: Weak<Desk<B>>) {
    loop {
        tokio::time::sleep(SWEEPS).await;
        let Some(desk) = desk.upgrade() else { return };
        if desk.is_closed() {
            return;
        }
        desk.sweep().await;
    }
}
