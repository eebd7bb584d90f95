//! One client's presence: what the trait asks for, and the book of its entries.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::store::{
    Ask, Inbox, Joined, Leave, Left, News, Note, Otherwise, Pending, Presence, Renewal, Renewed, Session,
};
use leasehold_core::view::{Events, Lost, Snapshot};
use leasehold_core::watchers::Watchers;
use leasehold_core::{EntryId, Lease, Name, Result, Tick, Token, Want};
use tokio::runtime::Handle;
use tokio::sync::{Mutex as Turn, Notify};
use tokio::task::AbortHandle;
use zookeeper_client as zk;

use crate::config::{Acl, Config};
use crate::data::About;
use crate::link::{Life, Link, closed};
use crate::path::{Node, ROOM, push_escaped};
use crate::store::ZooKeeper;

/// How many locks are remembered to have a node already.
const KNOWN_LOCKS: usize = 4096;

/// How long a goodbye waits for ZooKeeper's own.
const GOODBYE: Duration = Duration::from_secs(1);

/// What the client holds. Dropping it says goodbye in the background.
pub(crate) struct ZooKeeperSession {
    desk: Arc<Desk>,
    runtime: Handle,
}

/// The session itself: it lives until the last of its tasks is done.
pub(crate) struct Desk {
    pub(crate) config: Arc<Config>,
    pub(crate) me: Presence,
    pub(crate) link: Link,
    inbox: Arc<dyn Inbox>,
    book: Mutex<Book>,
    /// Locks whose node was there when we last looked.
    known: Mutex<HashSet<Name>>,
    /// What the last entry's node says.
    last_about: Mutex<Option<Told>>,
    pub(crate) watchers: Watchers,
    /// Whether events are followed.
    pub(crate) watching: Turn<bool>,
    /// Wakes the task that tends to entries, and until when it sleeps.
    pub(crate) hurry: Notify,
    pub(crate) asleep_until: AtomicU64,
    is_closed: AtomicBool,
    helpers: Mutex<Vec<AbortHandle>>,
}

/// What a node says of an entry that wants this, with this lease.
type Told = (Want, Lease, Arc<[u8]>);

/// An entry that leaves: the path of its node, whose session it belongs to, and whether there may be one that is not known.
type Leaving = (Option<Arc<str>>, Option<Arc<Life>>, bool);

/// All entries of a session, and when something must be done about them.
#[derive(Default)]
pub(crate) struct Book {
    entries: HashMap<EntryId, Entry>,
    due: BTreeSet<(Tick, EntryId)>,
}

/// One entry of this session.
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) want: Want,
    pub(crate) lease: Lease,
    /// How long a place in the queue lasts without being renewed.
    pub(crate) place: Duration,
    pub(crate) otherwise: Otherwise,
    /// The ZooKeeper session that its nodes belong to.
    pub(crate) life: Option<Arc<Life>>,
    pub(crate) stage: Stage,
    /// When the last answered request about it began.
    pub(crate) asked: Tick,
    /// Until when its owner was told that it is certain.
    pub(crate) told: Tick,
    /// When it is let go unless it is renewed.
    pub(crate) ends: Tick,
    due: Tick,
    /// One request about it at a time.
    turn: Arc<Turn<()>>,
    /// The task that watches for it.
    pub(crate) task: Option<AbortHandle>,
}

/// How an entry stands.
#[derive(Debug, Clone)]
pub(crate) enum Stage {
    /// It is being asked for. `maybe`: a request was not answered, so there may be a node.
    Asked { maybe: bool },
    /// It waits in the queue.
    Waiting { seat: Seat, place: u32 },
    /// It barges. The seat is that of its note.
    Barging { seat: Seat },
    /// It holds.
    Held { seat: Seat, requested: bool },
    /// It leaves, and the answer to that is not known.
    Leaving { path: Arc<str> },
}

/// The node of an entry.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) node: Node,
    pub(crate) path: Arc<str>,
    pub(crate) czxid: i64,
}

impl Stage {
    fn path(&self) -> Option<&Arc<str>> {
        match self {
            Stage::Asked { .. } => None,
            Stage::Waiting { seat, .. } | Stage::Barging { seat } | Stage::Held { seat, .. } => {
                Some(&seat.path)
            }
            Stage::Leaving { path } => Some(path),
        }
    }
}

impl ZooKeeperSession {
    pub(crate) async fn open(
        store: Arc<ZooKeeper>,
        me: Presence,
        inbox: Arc<dyn Inbox>,
    ) -> Result<Arc<ZooKeeperSession>> {
        let config = store.config.clone();
        let again = store.failed.load(Ordering::Relaxed);
        let link = Link::open(config.clone(), again).await;
        store.failed.store(link.is_err(), Ordering::Relaxed);
        let link = link.map_err(|e| e.at(config.url()))?;
        let desk = Arc::new(Desk {
            config,
            me,
            link,
            inbox,
            book: Mutex::default(),
            known: Mutex::default(),
            last_about: Mutex::default(),
            watchers: Watchers::default(),
            watching: Turn::new(false),
            hurry: Notify::new(),
            asleep_until: AtomicU64::new(u64::MAX),
            is_closed: AtomicBool::new(false),
            helpers: Mutex::default(),
        });
        let tending = tokio::spawn(desk.clone().tend()).abort_handle();
        let following = tokio::spawn(desk.clone().follow_sessions()).abort_handle();
        lock(&desk.helpers).extend([tending, following]);
        Ok(Arc::new(ZooKeeperSession { desk, runtime: Handle::current() }))
    }
}

impl Drop for ZooKeeperSession {
    fn drop(&mut self) {
        let desk = self.desk.clone();
        self.runtime.spawn(async move { desk.say_goodbye().await });
    }
}

impl Desk {
    pub(crate) fn now(&self) -> Tick {
        self.link.clock.now()
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// A task that ends with the session.
    pub(crate) fn help(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(task).abort_handle();
        let mut helpers = lock(&self.helpers);
        helpers.retain(|helper| !helper.is_finished());
        helpers.push(handle);
    }

    /// The node of a lock.
    pub(crate) fn lock_path(&self, name: &Name) -> String {
        let root = self.config.root_name();
        let mut path = String::with_capacity(root.len() + 2 + name.as_str().len() + ROOM);
        path.push('/');
        path.push_str(root);
        path.push('/');
        push_escaped(&mut path, name);
        path
    }

    pub(crate) fn acls(&self) -> zk::Acls<'static> {
        match self.config.acl() {
            Acl::Open => zk::Acls::anyone_all(),
            Acl::Creator => zk::Acls::creator_all(),
            Acl::CreatorAndReaders => zk::Acls::new(&CREATOR_AND_READERS),
        }
    }

    /// What an entry's node says. Most say the same as the one before.
    pub(crate) fn about(&self, want: Want, lease: Lease) -> Arc<[u8]> {
        let mut last = lock(&self.last_about);
        if let Some((_, _, text)) = last.as_ref().filter(|(w, l, _)| (*w, *l) == (want, lease)) {
            return text.clone();
        }
        let (label, session) = (self.me.label.clone(), self.me.id);
        let about = About { label, session, want, lease: Some(lease), held: None, release_requested: false };
        let text: Arc<[u8]> = about.write().into();
        *last = Some((want, lease, text.clone()));
        text
    }

    pub(crate) fn knows(&self, name: &Name) -> bool {
        lock(&self.known).contains(name)
    }

    pub(crate) fn note_known(&self, name: &Name, is_there: bool) {
        let mut known = lock(&self.known);
        if !is_there {
            known.remove(name);
        } else if !known.contains(name) {
            if known.len() >= KNOWN_LOCKS {
                known.clear();
            }
            known.insert(name.clone());
        }
    }

    /// Tells the client something about an entry.
    pub(crate) fn tell(&self, name: Name, id: EntryId, news: News) {
        self.inbox.note(Note { name, id, news });
    }

    /// The entry for a request: from now on it is in the book.
    pub(crate) fn begin(&self, ask: &Ask, asked: Tick) -> Arc<Turn<()>> {
        let mut book = self.book();
        if let Some(entry) = book.entries.get(&ask.id) {
            return entry.turn.clone();
        }
        let turn = Arc::new(Turn::new(()));
        let entry = Entry {
            name: ask.name.clone(),
            want: ask.want,
            lease: ask.lease,
            place: ask.place,
            otherwise: ask.otherwise,
            life: None,
            stage: Stage::Asked { maybe: false },
            asked,
            told: Tick(0),
            ends: Tick::NEVER,
            due: Tick::NEVER,
            turn: turn.clone(),
            task: None,
        };
        book.entries.insert(ask.id, entry);
        turn
    }

    /// Makes sure that an entry is looked at in time.
    pub(crate) fn look_by(&self, due: Tick) {
        if due.0 < self.asleep_until.load(Ordering::SeqCst) {
            self.hurry.notify_one();
        }
    }

    /// Every ephemeral node of a ZooKeeper session goes with it: the client is told once.
    ///
    /// It may go later than we think: we give a session up by our own clock. So an entry of which it is not known whether it has a
    /// node stays in the book until its owner asks again, or leaves.
    pub(crate) fn session_gone(&self) {
        let gone = self.book().clear_settled();
        for entry in gone {
            entry.stop_watching();
        }
        lock(&self.known).clear();
        self.inbox.session_gone();
    }

    /// Every entry leaves, and the session ends.
    pub(crate) async fn say_goodbye(self: &Arc<Self>) {
        if self.is_closed.swap(true, Ordering::SeqCst) {
            return;
        }
        let gone = self.book().clear();
        gone.iter().for_each(|(_, entry)| entry.stop_watching());
        // One by one: a request of ours that is still under way keeps the ZooKeeper session open, and with it the nodes.
        let leaving = gone.iter().filter_map(|(_, entry)| Some((entry.life.as_ref()?, entry.stage.path()?)));
        let deleting = join_all(leaving.map(|(life, path)| life.client.delete(path, None)));
        // Among them those of requests that are not answered, and that nobody may poll any more.
        let unknown = gone.iter().filter(|(_, entry)| matches!(entry.stage, Stage::Asked { maybe: true }));
        let removing = join_all(unknown.map(|(id, entry)| self.remove_by_id(&entry.name, *id)));
        let _ = self.link.within(async { tokio::join!(deleting, removing) }).await;
        drop(gone);
        lock(&self.helpers).drain(..).for_each(|helper| helper.abort());
        if let Some(life) = self.link.now() {
            let mut states = life.states();
            self.link.ended();
            drop(life);
            let _ = tokio::time::timeout(GOODBYE, async { while !states.changed().await.is_terminated() {} })
                .await;
        }
    }
}

impl Book {
    pub(crate) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(crate) fn turn(&self, id: EntryId) -> Option<Arc<Turn<()>>> {
        self.entries.get(&id).map(|entry| entry.turn.clone())
    }

    /// Changes an entry. `None` if it is not in the book.
    pub(crate) fn change<T>(&mut self, id: EntryId, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.entries.get_mut(&id).map(change)
    }

    /// Says when an entry must be looked at next.
    pub(crate) fn set_due(&mut self, id: EntryId, due: Tick) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.due.remove(&(entry.due, id));
        entry.due = due;
        if due != Tick::NEVER {
            self.due.insert((due, id));
        }
    }

    pub(crate) fn remove(&mut self, id: EntryId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.due.remove(&(entry.due, id));
        Some(entry)
    }

    /// An entry leaves.
    pub(crate) fn leave(&mut self, id: EntryId) -> Option<Leaving> {
        let entry = self.entries.get_mut(&id)?;
        let maybe = matches!(entry.stage, Stage::Asked { maybe: true });
        let path = entry.stage.path().cloned();
        if let Some(path) = &path {
            entry.stage = Stage::Leaving { path: path.clone() };
        }
        let life = entry.life.clone();
        self.set_due(id, Tick::NEVER);
        Some((path, life, maybe))
    }

    /// Takes an entry out whose time is over, with the path of its node.
    pub(crate) fn take_if_over(&mut self, id: EntryId, now: Tick) -> Option<(Entry, Arc<str>)> {
        let entry = self.entries.get(&id)?;
        let path = match &entry.stage {
            Stage::Leaving { .. } | Stage::Asked { .. } => None,
            stage => stage.path().cloned(),
        }?;
        if entry.ends > now {
            // It was renewed meanwhile.
            let ends = entry.ends;
            self.set_due(id, ends);
            return None;
        }
        Some((self.remove(id)?, path))
    }

    fn clear(&mut self) -> Vec<(EntryId, Entry)> {
        self.due.clear();
        self.entries.drain().collect()
    }

    /// All but those that may have a node nobody knows of.
    fn clear_settled(&mut self) -> Vec<Entry> {
        self.due.clear();
        let is_settled = |entry: &Entry| !matches!(entry.stage, Stage::Asked { maybe: true });
        self.entries.extract_if(|_, entry| is_settled(entry)).map(|(_, entry)| entry).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries that must be looked at by now, and when the next must be.
    pub(crate) fn due_by(&self, now: Tick) -> (Vec<EntryId>, Tick) {
        let due = self.due.iter().take_while(|(due, _)| *due <= now).map(|(_, id)| *id).collect();
        let next = self.due.iter().find(|(due, _)| *due > now).map_or(Tick::NEVER, |(due, _)| *due);
        (due, next)
    }
}

impl Entry {
    /// Whether it is certain for longer than its owner knows, if the owner renews it at this moment.
    pub(crate) fn has_news(&self, asked: Tick) -> bool {
        self.life.as_ref().is_some_and(|life| life.alive_until().min(self.renewed_end(asked)) > self.told)
    }

    /// When it is let go if its owner renews it at this moment. A fixed lease ends when it ends.
    pub(crate) fn renewed_end(&self, asked: Tick) -> Tick {
        match self.lease {
            Lease::Kept(d) => self.ends.max(asked + d),
            Lease::Fixed(_) => self.ends,
        }
    }

    pub(crate) fn stop_watching(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }

    /// Why it is not known any more, as far as its owner is concerned.
    pub(crate) fn unknown(token: Option<Token>) -> Lost {
        if token.is_some() { Lost::Revoked } else { Lost::Expired }
    }
}

impl Session for ZooKeeperSession {
    fn join(self: Arc<Self>, ask: Ask) -> Pending<Joined> {
        let desk = self.desk.clone();
        Box::pin(async move { desk.join(ask).await })
    }

    fn renew(self: Arc<Self>, batch: Vec<Renewal>) -> Pending<Vec<Result<Renewed>>> {
        let desk = self.desk.clone();
        Box::pin(async move { Ok(desk.renew_all(batch).await) })
    }

    fn leave(self: Arc<Self>, leave: Leave) -> Pending<Left> {
        let desk = self.desk.clone();
        Box::pin(async move { desk.leave(leave).await })
    }

    fn downgrade(self: Arc<Self>, name: Name, id: EntryId) -> Pending<Left> {
        let desk = self.desk.clone();
        Box::pin(async move { desk.downgrade(&name, id).await })
    }

    fn set_limit(self: Arc<Self>, name: Name, limit: u32) -> Pending<()> {
        let desk = self.desk.clone();
        Box::pin(async move { desk.set_limit(&name, limit).await })
    }

    fn revoke(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        let desk = self.desk.clone();
        Box::pin(async move { desk.revoke(name, expected).await })
    }

    fn request_release(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        let desk = self.desk.clone();
        Box::pin(async move { desk.request_release(name, expected).await })
    }

    fn inspect(self: Arc<Self>, name: Name) -> Pending<Snapshot> {
        let desk = self.desk.clone();
        Box::pin(async move { desk.inspect(name).await })
    }

    fn list(self: Arc<Self>, prefix: String, after: Option<Name>, most: usize) -> Pending<Vec<Snapshot>> {
        let desk = self.desk.clone();
        Box::pin(async move { desk.page(&prefix, after.as_ref(), most).await })
    }

    fn watch(self: Arc<Self>, prefix: String) -> Pending<Events> {
        let desk = self.desk.clone();
        Box::pin(async move { desk.begin_watching(prefix).await })
    }

    fn close(self: Arc<Self>) -> Pending<()> {
        let desk = self.desk.clone();
        Box::pin(async move {
            desk.say_goodbye().await;
            Ok(())
        })
    }
}

static CREATOR_AND_READERS: [zk::Acl; 2] = [
    zk::Acl::new_const(zk::Permission::ALL, "auth", ""),
    zk::Acl::new_const(zk::Permission::READ, "world", "anyone"),
];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
