//! Events: one recursive watch on all locks, and a copy of their queues to tell what a change means.
//!
//! ZooKeeper says that a node came, changed or went, and not why. Whoever came is read at once; whoever went by force left
//! a note of it at the lock's own node, in the same step. An entry that came and went before it could be read is told
//! without its label. One that went with its session can't be told from one that was given back: both are a node that is
//! gone, and before ZooKeeper 3.9 events don't carry the transaction that caused them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::wall_micros;
use leasehold_core::view::{Event, Events, Happened, Lost};
use leasehold_core::{Label, Name, Result, SessionId, Want, rule};
use zookeeper_client as zk;
use zookeeper_client::{EventType, SessionState, WatchedEvent};

use crate::data::{About, LockData};
use crate::link::Life;
use crate::looking::Told;
use crate::path::{Node, unescape};
use crate::session::Desk;
use crate::state::{Line, tokens};
use crate::trouble::trouble;

/// How soon it is noticed that nobody watches any more, and how long to wait after trouble.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(100));

impl Desk {
    /// Events from now on: when this returns, they are told.
    pub(crate) async fn begin_watching(self: &Arc<Self>, prefix: String) -> Result<Events> {
        let mut on = self.watching.lock().await;
        let events = self.watchers.watch(prefix);
        if !*on {
            let watch = Following::begin(self.clone()).await?;
            *on = true;
            let desk = self.clone();
            self.help(async move { desk.follow(watch).await });
        }
        Ok(events)
    }

    /// Tells events for as long as anybody watches.
    async fn follow(self: Arc<Self>, first: Following) {
        let mut following = Some(first);
        loop {
            if let Some(now) = &mut following {
                match tokio::time::timeout(PAUSE.0, now.watcher.changed()).await {
                    Ok(event) if event.event_type == EventType::Session => {
                        // Persistent watches do not survive a reconnect with this client crate. It must not be asked for
                        // more events after the last state.
                        if event.session_state != SessionState::SyncConnected || now.life.is_up() {
                            following = None;
                        }
                    }
                    Ok(event) => now.happened(&event).await,
                    Err(_) => {}
                }
            } else {
                match Following::begin(self.clone()).await {
                    Ok(now) => {
                        following = Some(now);
                        self.watchers.reconnected();
                    }
                    Err(_) => tokio::time::sleep(PAUSE.1).await,
                }
            }
            // Under the lock: whoever begins to watch at this moment either sees that it is on, or turns it on again.
            let mut on = self.watching.lock().await;
            if !self.watchers.any() {
                *on = false;
                return;
            }
        }
    }
}

/// A watch on all locks, and what is known of them.
struct Following {
    desk: Arc<Desk>,
    life: Arc<Life>,
    watcher: zk::PersistentWatcher,
    locks: HashMap<Name, Lock>,
}

/// A copy of one lock.
#[derive(Default)]
struct Lock {
    entries: Vec<Seen>,
    notes: LockData,
    /// When the notes were last changed.
    changed: i64,
}

struct Seen {
    node: Node,
    /// `None` if it went before it could be read.
    told: Option<Told>,
    holds: bool,
}

impl Following {
    async fn begin(desk: Arc<Desk>) -> Result<Following> {
        let life = desk.link.up().await?;
        let root = desk.config.root();
        let watch = life.client.watch(&root, zk::AddWatchMode::PersistentRecursive);
        let watcher = desk.link.within(watch).await?.map_err(|e| trouble(&e))?;
        let mut following =
            Following { life: life.clone(), watcher, locks: HashMap::new(), desk: desk.clone() };
        // What is there already is not told.
        for name in desk.names(&life).await? {
            let picture = desk.picture(&life, &name, false).await?;
            let told = picture.queue.into_iter().chain(picture.bargers);
            let entries = told.map(|told| Seen { node: told.node, told: Some(told), holds: false }).collect();
            let mut lock = Lock { entries, notes: picture.notes, changed: picture.changed };
            lock.judge();
            if !lock.entries.is_empty() {
                following.locks.insert(name, lock);
            }
        }
        Ok(following)
    }

    async fn happened(&mut self, event: &WatchedEvent) {
        let root = self.desk.config.root();
        let Some(path) = event.path.strip_prefix(&root).and_then(|path| path.strip_prefix('/')) else {
            return;
        };
        match path.split_once('/') {
            None => {
                if let Some(name) = unescape(path) {
                    self.lock_changed(name, event).await;
                }
            }
            Some((lock, node)) => {
                if let (Some(name), Some(node)) = (unescape(lock), Node::parse(node)) {
                    self.entry_changed(name, node, event).await;
                }
            }
        }
    }

    async fn lock_changed(&mut self, name: Name, event: &WatchedEvent) {
        match event.event_type {
            EventType::NodeDeleted => drop(self.locks.remove(&name)),
            EventType::NodeDataChanged => {
                let read = self.desk.link.within(self.life.client.get_data(&event.path)).await;
                if let Ok(Ok((data, stat))) = read {
                    let lock = self.locks.entry(name.clone()).or_default();
                    (lock.notes, lock.changed) = (LockData::read(&data), stat.mzxid);
                    self.tell_who_got_in(&name);
                }
            }
            _ => {}
        }
    }

    async fn entry_changed(&mut self, name: Name, node: Node, event: &WatchedEvent) {
        match event.event_type {
            EventType::NodeCreated => {
                let told = self.read(&event.path, node).await;
                let lock = self.locks.entry(name.clone()).or_default();
                if !lock.entries.iter().any(|seen| seen.node == node) {
                    lock.entries.push(Seen { node, told, holds: false });
                    self.tell_who_got_in(&name);
                    self.tell_if_it_waits(&name, node);
                }
            }
            EventType::NodeDataChanged => {
                let told = self.read(&event.path, node).await;
                self.entry_says(&name, node, told);
            }
            EventType::NodeDeleted => {
                let Some(lock) = self.locks.get_mut(&name) else { return };
                let Some(at) = lock.entries.iter().position(|seen| seen.node == node) else { return };
                let seen = lock.entries.remove(at);
                let what = match (lock.notes.reason(node.id), seen.holds) {
                    (Some(Lost::Expired), _) => Happened::Expired,
                    (Some(why), _) => Happened::Lost(why),
                    (None, true) => Happened::Released,
                    (None, false) => Happened::Left,
                };
                // The note of one that barges goes when it gets in.
                if !node.barges || !lock.entries.iter().any(|other| other.node.id == node.id) {
                    self.tell(&name, &seen, what);
                }
                self.tell_who_got_in(&name);
            }
            _ => {}
        }
    }

    async fn read(&self, path: &str, node: Node) -> Option<Told> {
        match self.desk.link.within(self.life.client.get_data(path)).await {
            Ok(Ok((data, stat))) => Some(Told::new(node, &data, &stat)),
            _ => None,
        }
    }

    /// An entry became a reader, or was asked to give the lock back.
    fn entry_says(&mut self, name: &Name, node: Node, told: Option<Told>) {
        let (Some(lock), Some(told)) = (self.locks.get_mut(name), told) else { return };
        let Some(at) = lock.entries.iter().position(|seen| seen.node == node) else { return };
        let before = lock.entries[at].told.as_ref().is_some_and(|told| told.about.release_requested);
        let asked = told.about.release_requested && !before;
        lock.entries[at].told = Some(told);
        if asked && let Some(lock) = self.locks.get(name) {
            self.tell(name, &lock.entries[at], Happened::ReleaseRequested);
        }
        self.tell_who_got_in(name);
    }

    fn tell_who_got_in(&mut self, name: &Name) {
        let Some(lock) = self.locks.get_mut(name) else { return };
        let got_in = lock.judge();
        if lock.entries.is_empty() && lock.notes.limit.is_none() {
            // Notes of removals serve only entries that were here.
            self.locks.remove(name);
            return;
        }
        if let Some(lock) = self.locks.get(name) {
            for seen in lock.entries.iter().filter(|seen| got_in.contains(&seen.node)) {
                self.tell(name, seen, Happened::Acquired);
            }
        }
    }

    fn tell_if_it_waits(&self, name: &Name, node: Node) {
        let Some(lock) = self.locks.get(name) else { return };
        // One that barges was told when it left its note.
        let noted = |seen: &&Seen| !seen.node.barges && seen.node.id == node.id;
        if let Some(seen) = lock.entries.iter().find(|seen| seen.node == node && !seen.holds)
            && (!node.barges || !lock.entries.iter().any(|seen| noted(&seen)))
        {
            self.tell(name, seen, Happened::Queued);
        }
    }

    fn tell(&self, name: &Name, seen: &Seen, what: Happened) {
        let about = seen.told.as_ref().map(|told| told.about.clone());
        let unknown = || About {
            label: Label::new("?"),
            session: SessionId(0),
            want: seen.node.want,
            lease: None,
            held: None,
            release_requested: false,
        };
        let about = about.unwrap_or_else(unknown);
        let czxid = seen.told.as_ref().filter(|_| seen.holds).map(|told| told.czxid);
        let token = czxid.and_then(|czxid| tokens(czxid).ok()).map(|block| block.first);
        self.desk.watchers.publish(&Event {
            at: wall_micros(),
            name: name.clone(),
            what,
            label: about.label,
            session: about.session,
            want: about.want,
            token,
        });
    }
}

impl Lock {
    /// Says anew who holds, and who does now that did not before.
    fn judge(&mut self) -> Vec<Node> {
        let names: Vec<String> = self.entries.iter().map(|seen| seen.node.name()).collect();
        let line = Line::of(&names);
        let place = |node: &Node| line.queue.iter().chain(&line.bargers).position(|other| other == node);
        self.entries.sort_by_key(|seen| place(&seen.node));
        let queue: Vec<&Seen> = self.entries.iter().filter(|seen| !seen.node.barges).collect();
        let wants: Vec<Want> = queue
            .iter()
            .map(|seen| seen.told.as_ref().map_or(seen.node.want, |told| told.about.want))
            .collect();
        let held = queue.iter().take_while(|seen| seen.holds).count();
        let holders = rule::holders(&wants, held, self.limit(&line));
        let mut got_in = Vec::new();
        for seen in self.entries.iter_mut().filter(|seen| !seen.node.barges).take(holders) {
            if !std::mem::replace(&mut seen.holds, true) {
                got_in.push(seen.node);
            }
        }
        got_in
    }

    fn limit(&self, line: &Line) -> Option<u32> {
        let first = self
            .entries
            .iter()
            .find(|seen| !seen.node.barges && matches!(seen.node.want, Want::Permits { .. }));
        match (self.notes.limit, first.and_then(|seen| seen.told.as_ref())) {
            (Some((number, at)), Some(first)) if first.czxid < at.unwrap_or(self.changed) => Some(number),
            _ => line.any_permits(),
        }
    }
}
