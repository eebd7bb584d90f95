//! How an entry comes to the queue.
//!
//! To create a node and to list the queue are two requests that travel together: ZooKeeper answers the requests of a session
//! in their order, so the list shows the new node and all that were there before it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold_core::store::{Ask, Grant, Joined, Otherwise, Term, Waiting};
use leasehold_core::{EntryId, Error, Kind, Lease, Name, Result, Retry, Tick, Token, TokenBlock, Want};
use zookeeper_client as zk;

use crate::data::LockData;
use crate::link::{Life, closed};
use crate::path::{NODE_ROOM, Node};
use crate::session::{Desk, Entry, Seat, Stage};
use crate::state::{self, Limit, Line, Stand, stand};
use crate::tending::ARM_AFTER;
use crate::together;
use crate::trouble::{is_unknown, later, trouble};

/// How often a lock whose node vanishes under our hands is tried in one request.
const TRIES: usize = 8;

/// A queue at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) line: Line,
    pub(crate) limit: Limit,
}

impl Seen {
    /// How a newcomer would stand.
    pub(crate) fn stand_at_end(&self, want: Want) -> Stand {
        stand(&self.line.wants(), want, self.limit)
    }

    pub(crate) fn stand_of(&self, at: usize) -> Stand {
        if at == 0 && !matches!(self.line.queue[0].want, Want::Permits { .. }) {
            return Stand::Holds;
        }
        let wants = self.line.wants();
        stand(&wants[..at], wants[at], self.limit)
    }

    /// Where an entry stands. Its id would not do: a session that was given up may have left a node of the same entry.
    pub(crate) fn position(&self, node: &Node) -> Option<usize> {
        self.line.queue.iter().position(|other| (other.id, other.sequence) == (node.id, node.sequence))
    }
}

impl Desk {
    /// Somebody asks for a lock. Asking again with the same id is harmless.
    pub(crate) async fn join(self: &Arc<Self>, ask: Ask) -> Result<Joined> {
        self.check_open()?;
        let asked = self.now();
        let turn = self.begin(&ask, asked);
        let _turn = turn.lock().await;
        let joined = self.join_in_turn(&ask, asked).await;
        let nothing_left = match &joined {
            Ok(joined) => *joined == Joined::Busy,
            Err(error) => error.retry_advice() != Retry::SameId,
        };
        if nothing_left {
            let mut book = self.book();
            if book.get(ask.id).is_some_and(|entry| matches!(entry.stage, Stage::Asked { maybe: false })) {
                book.remove(ask.id);
            }
        }
        if self.is_closed() {
            // The goodbye came between: what it did not see goes now.
            self.let_go(ask.id);
            return Err(closed());
        }
        joined
    }

    async fn join_in_turn(self: &Arc<Self>, ask: &Ask, asked: Tick) -> Result<Joined> {
        let stage = self.book().get(ask.id).map(|entry| entry.stage.clone());
        let maybe = match stage {
            // It left, or its session ended, while this request waited for its turn.
            None => return Err(later("the session ended meanwhile")),
            Some(Stage::Held { .. }) => return self.held_again(ask.id, asked),
            Some(Stage::Waiting { place, .. }) => {
                self.renew_place(ask.id, asked);
                return Ok(Joined::Waiting(Waiting { place: Some(place), poll_in: None }));
            }
            Some(Stage::Barging { .. }) => return self.barge(&ask.name, ask.id, asked).await,
            Some(Stage::Leaving { .. }) => return Err(later("this entry is leaving")),
            Some(Stage::Asked { maybe }) => maybe,
        };
        let life = self.link.up().await?;
        if maybe && let Some((seat, seen)) = self.find_again(&life, ask).await? {
            let joined = self.settle(&life, ask, seat, seen, asked).await?;
            if joined != Joined::Busy || ask.otherwise != Otherwise::Barge {
                return Ok(joined);
            }
        }
        match ask.otherwise {
            Otherwise::Queue => {
                let (seat, seen) = self.enter(&life, ask).await?;
                self.settle(&life, ask, seat, seen, asked).await
            }
            Otherwise::GoAway => self.try_once(&life, ask, asked).await,
            Otherwise::Barge => self.barge(&ask.name, ask.id, asked).await,
        }
    }

    /// Takes the lock if it is free. Nothing is written if a look shows that it is not.
    async fn try_once(self: &Arc<Self>, life: &Arc<Life>, ask: &Ask, asked: Tick) -> Result<Joined> {
        let mut seen = self.look_at(life, &ask.name, ask.want).await?;
        if seen.stand_at_end(ask.want) != Stand::Holds || agree(&seen, ask.want).is_err() {
            // Our server may be behind the one that was told of a release.
            self.link.patrol(life).await?;
            seen = self.look_at(life, &ask.name, ask.want).await?;
        }
        agree(&seen, ask.want)?;
        if seen.stand_at_end(ask.want) != Stand::Holds {
            return Ok(Joined::Busy);
        }
        let (seat, seen) = self.enter(life, ask).await?;
        self.settle(life, ask, seat, seen, asked).await
    }

    /// Takes the lock if it is free, else leaves a note and waits to be told.
    pub(crate) async fn barge(self: &Arc<Self>, name: &Name, id: EntryId, asked: Tick) -> Result<Joined> {
        let Some(ask) = self.book().get(id).map(|entry| entry.ask(id)) else {
            return Err(later("the session ended meanwhile"));
        };
        let life = self.link.up().await?;
        let mut seen = self.look_at(&life, name, ask.want).await?;
        if agree(&seen, ask.want).is_err() {
            // Our server may be behind others.
            self.link.patrol(&life).await?;
            seen = self.look_at(&life, name, ask.want).await?;
        }
        agree(&seen, ask.want)?;
        if seen.stand_at_end(ask.want) == Stand::Holds {
            let note = self.note_of(id);
            let entered = match self.enter(&life, &ask).await {
                Ok((seat, seen)) => self.settle(&life, &ask, seat, seen, asked).await,
                Err(error) => Err(error),
            };
            match (entered, note) {
                (Ok(Joined::Busy), _) => {}
                (joined, None) => return joined,
                (joined, Some(note)) => {
                    self.discard(life.clone(), note.path, None);
                    // If it is not known whether there is an entry, the next request looks for it.
                    self.book().change(id, |entry| {
                        if matches!(entry.stage, Stage::Barging { .. }) {
                            entry.stop_watching();
                            entry.stage = Stage::Asked { maybe: true };
                        }
                    });
                    return joined;
                }
            }
        }
        let there = seen.line.bargers.iter().any(|note| note.id == id);
        let seat = match self.note_of(id) {
            Some(note) if there => note,
            _ => self.create(&life, &ask, true).await?.0,
        };
        let task = crate::wake::barge(self.clone(), life.clone(), id, name.clone(), ask.want, seat.node);
        let known = self.change_in(&life, id, |entry| {
            entry.stop_watching();
            entry.stage = Stage::Barging { seat: seat.clone() };
            entry.task = Some(task.clone());
        });
        if !known {
            // Its session ended, or the client said goodbye.
            task.abort();
            self.discard(life, seat.path, None);
            return Err(ended_meanwhile());
        }
        self.renew_place(id, asked);
        Ok(Joined::Waiting(Waiting { place: None, poll_in: None }))
    }

    fn note_of(&self, id: EntryId) -> Option<Seat> {
        match &self.book().get(id)?.stage {
            Stage::Barging { seat } => Some(seat.clone()),
            _ => None,
        }
    }

    /// Creates an entry's node and lists the queue.
    async fn enter(self: &Arc<Self>, life: &Arc<Life>, ask: &Ask) -> Result<(Seat, Seen)> {
        let (seat, names) = self.create(life, ask, false).await?;
        let seen = self.read_line(life, &ask.name, ask.want, names, Some(&seat)).await;
        match seen {
            Ok(seen) => Ok((seat, seen)),
            Err(error) => {
                self.discard(life.clone(), seat.path, None);
                Err(error)
            }
        }
    }

    /// Sends the requests that create a node, its lock's node if need be, and list; waits for all of them together. A note of one
    /// that barges needs no list, and gets none.
    async fn create(
        self: &Arc<Self>,
        life: &Arc<Life>,
        ask: &Ask,
        barges: bool,
    ) -> Result<(Seat, Vec<String>)> {
        let lock: Arc<str> = self.lock_path(&ask.name).into();
        let mut prefix = String::with_capacity(lock.len() + 1 + NODE_ROOM);
        prefix.push_str(&lock);
        prefix.push('/');
        Node::push_prefix(&mut prefix, ask.id, ask.want, barges);
        let data = self.about(ask.want, ask.lease);
        let mut known = self.knows(&ask.name);
        // The node that all locks are in is made once, and stays while there are any.
        let mut with_root = !life.has_root.load(Ordering::Relaxed);
        for _ in 0..TRIES {
            let sent = self.now();
            let _under_way = life.together.under_way();
            let made = if known { None } else { Some(self.make_lock(life, &lock, with_root)) };
            let node = life.client.create(
                &prefix,
                &data,
                &zk::CreateMode::EphemeralSequential.with_acls(self.acls()),
            );
            // A note stands in no queue.
            let list = (!barges).then(|| together::list(life, &lock));
            self.mark_asked(ask.id, life);
            let answers = async {
                // The last one first: the others are answered by then, and nobody is woken for them.
                let names = match list {
                    Some(list) => list.await,
                    None => Ok(Vec::new()),
                };
                let node = node.await;
                if let Some(made) = made {
                    made.await;
                }
                (node, names)
            };
            match self.link.within(answers).await? {
                (Ok((stat, sequence)), Ok(names)) => {
                    life.heard(sent);
                    life.has_root.store(true, Ordering::Relaxed);
                    self.note_known(&ask.name, true);
                    let node =
                        Node { id: ask.id, want: ask.want, barges, sequence: sequence.into_i64() as i32 };
                    Node::push_sequence(&mut prefix, node.sequence);
                    return Ok((Seat { node, path: prefix.into(), czxid: stat.czxid }, names));
                }
                // The lock's node is not there, or was removed because it was empty.
                (Err(zk::Error::NoNode), _) => {
                    (known, with_root) = (false, true);
                    self.note_known(&ask.name, false);
                }
                (Ok((_, sequence)), Err(error)) => {
                    Node::push_sequence(&mut prefix, sequence.into_i64() as i32);
                    self.discard(life.clone(), prefix.into(), None);
                    self.mark_certain(ask.id);
                    return Err(trouble(&error).retry(Retry::Later));
                }
                (Err(error), _) => {
                    if !is_unknown(&error) {
                        self.mark_certain(ask.id);
                    }
                    return Err(trouble(&error).on(&ask.name));
                }
            }
        }
        self.mark_certain(ask.id);
        Err(later("the node of the lock is removed again and again"))
    }

    /// Sends the requests that make the node of a lock, and if need be the one that all locks are in. Both may be there.
    fn make_lock<'a>(
        &self,
        life: &'a Life,
        lock: &'a str,
        with_root: bool,
    ) -> impl Future<Output = ()> + Send + use<'a> {
        let container = zk::CreateMode::Container.with_acls(self.acls());
        let root = with_root.then(|| life.client.create(root_of(lock), &[], &container));
        let lock = life.client.create(lock, &[], &container);
        async move {
            // Whatever went wrong, the request that follows says it better.
            if let Some(root) = root {
                let _ = root.await;
            }
            let _ = lock.await;
        }
    }

    /// Changes an entry that has a node now. `false` if it is not in the book any more, or the node's session is over.
    fn change_in(&self, life: &Arc<Life>, id: EntryId, change: impl FnOnce(&mut Entry)) -> bool {
        let mut book = self.book();
        // Under the book's lock: if the session ends from now on, its end finds the entry as it is then.
        let known = self.link.is_current(life).then(|| {
            book.change(id, |entry| {
                entry.life = Some(life.clone());
                change(entry);
            })
        });
        known.flatten().is_some()
    }

    /// From here on a node may be there.
    fn mark_asked(&self, id: EntryId, life: &Arc<Life>) {
        self.book().change(id, |entry| {
            if let Stage::Asked { maybe } = &mut entry.stage {
                *maybe = true;
                entry.life = Some(life.clone());
            }
        });
    }

    /// There is none after all.
    fn mark_certain(&self, id: EntryId) {
        self.book().change(id, |entry| {
            if let Stage::Asked { maybe } = &mut entry.stage {
                *maybe = false;
            }
        });
    }

    /// Looks for what a request made whose answer was lost. A node of an older session is about to vanish: it does not count.
    async fn find_again(self: &Arc<Self>, life: &Arc<Life>, ask: &Ask) -> Result<Option<(Seat, Seen)>> {
        let lock = self.lock_path(&ask.name);
        let sent = self.now();
        // The server we are connected to now may be behind the one that made the node.
        let (sync, list) = (life.client.sync(&lock), life.client.list_children(&lock));
        let names = match self.link.within(async { (sync.await, list.await) }).await? {
            (Ok(()), Ok(names)) => names,
            (Ok(()), Err(zk::Error::NoNode)) => Vec::new(),
            (Err(error), _) | (_, Err(error)) => return Err(trouble(&error)),
        };
        life.heard(sent);
        let mut mine: Vec<Node> = names.iter().filter_map(|name| Node::parse(name)).collect();
        mine.retain(|node| node.id == ask.id);
        let mut found = None;
        for node in mine {
            let path: Arc<str> = format!("{lock}/{}", node.name()).into();
            let stat = self.link.within(life.client.check_stat(&path)).await?.map_err(|e| trouble(&e))?;
            match stat {
                Some(stat)
                    if stat.ephemeral_owner == life.client.session_id().0
                        && !node.barges
                        && found.is_none() =>
                {
                    found = Some(Seat { node, path, czxid: stat.czxid });
                }
                Some(_) => self.discard(life.clone(), path, None),
                None => {}
            }
        }
        let Some(seat) = found else {
            self.mark_certain(ask.id);
            return Ok(None);
        };
        let seen = self.read_line(life, &ask.name, ask.want, names, Some(&seat)).await?;
        Ok(Some((seat, seen)))
    }

    /// Decides what becomes of an entry whose node is in the queue.
    async fn settle(
        self: &Arc<Self>,
        life: &Arc<Life>,
        ask: &Ask,
        seat: Seat,
        seen: Seen,
        asked: Tick,
    ) -> Result<Joined> {
        let undo = match (state::tokens(seat.czxid), agree(&seen, ask.want), seen.position(&seat.node)) {
            (Err(error), ..) | (_, Err(error), _) => Err(error),
            (Ok(_), Ok(()), None) => Err(later("the entry was removed at once")),
            (Ok(_), Ok(()), Some(at)) => Ok(at),
        };
        let at = match undo {
            Ok(at) => at,
            Err(error) => {
                self.step_back(life, seat.path).await;
                self.mark_certain(ask.id);
                return Err(error.on(&ask.name));
            }
        };
        let holds = seen.stand_of(at) == Stand::Holds;
        if !holds && ask.otherwise != Otherwise::Queue {
            // Somebody was faster.
            self.step_back(life, seat.path).await;
            self.mark_certain(ask.id);
            return Ok(Joined::Busy);
        }
        let holders = || leasehold_core::rule::holders(&seen.line.wants(), 0, seen.limit.number);
        let place = if holds { 0 } else { at.saturating_sub(holders()) as u32 };
        let stage = if holds {
            Stage::Held { seat: seat.clone(), requested: false }
        } else {
            Stage::Waiting { seat: seat.clone(), place }
        };
        let known = self.change_in(life, ask.id, |entry| {
            entry.stop_watching();
            entry.task = None;
            entry.stage = stage;
            entry.asked = asked;
        });
        if !known {
            self.discard(life.clone(), seat.path, None);
            return Err(ended_meanwhile());
        }
        if holds {
            let contended = seen.line.others_behind(at);
            return self.held(ask.id, asked, contended).map(Joined::Held);
        }
        self.renew_place(ask.id, asked);
        let task = crate::wake::queue(self.clone(), life.clone(), ask.id, ask.name.clone(), seat, seen);
        let waits = self.book().change(ask.id, |entry| entry.task = Some(task.clone()));
        if waits.is_none() {
            task.abort();
        }
        Ok(Joined::Waiting(Waiting { place: Some(place), poll_in: None }))
    }

    /// An entry holds from now on.
    pub(crate) fn held(&self, id: EntryId, asked: Tick, contended: bool) -> Result<Grant> {
        let now = self.now();
        let mut book = self.book();
        let ends = book.change(id, |entry| {
            entry.ends = match entry.lease {
                Lease::Kept(d) => asked + d,
                Lease::Fixed(d) => now + d,
            };
            let armed = entry.task.is_some();
            if armed { entry.ends } else { entry.ends.min(now + ARM_AFTER) }
        });
        let Some(due) = ends else { return Err(later("the entry left meanwhile")) };
        book.set_due(id, due);
        let grant = book.change(id, |entry| entry.grant(asked, contended, None));
        drop(book);
        self.look_by(due);
        grant.unwrap_or_else(|| Err(later("the entry left meanwhile")))
    }

    fn held_again(&self, id: EntryId, asked: Tick) -> Result<Joined> {
        let mut book = self.book();
        let grant = book.change(id, |entry| {
            entry.asked = asked;
            if let Lease::Kept(d) = entry.lease {
                entry.ends = asked + d;
            }
            entry.grant(asked, false, None)
        });
        grant.unwrap_or_else(|| Err(later("the entry left meanwhile"))).map(Joined::Held)
    }

    /// The place of an entry that waits lasts from here.
    pub(crate) fn renew_place(&self, id: EntryId, asked: Tick) {
        let mut book = self.book();
        let ends = book.change(id, |entry| {
            entry.asked = asked;
            entry.ends = asked + entry.place;
            entry.ends
        });
        if let Some(ends) = ends {
            book.set_due(id, ends);
            drop(book);
            self.look_by(ends);
        }
    }

    /// How a lock stands, as far as its nodes' names tell it.
    pub(crate) async fn look_at(&self, life: &Arc<Life>, name: &Name, want: Want) -> Result<Seen> {
        let lock = self.lock_path(name);
        let names = match self.link.within(life.client.list_children(&lock)).await? {
            Ok(names) => names,
            Err(zk::Error::NoNode) => Vec::new(),
            Err(error) => return Err(trouble(&error).retry(Retry::Later)),
        };
        self.read_line(life, name, want, names, None).await
    }

    /// Makes a queue of the names of its nodes, and asks for what they don't tell: a changed limit, if permits are wanted, and
    /// whether the writer at the front became a reader, if a reader would have to wait for it.
    pub(crate) async fn read_line(
        &self,
        life: &Arc<Life>,
        name: &Name,
        want: Want,
        names: Vec<String>,
        mine: Option<&Seat>,
    ) -> Result<Seen> {
        let mut line = Line::of(&names);
        if want == Want::Shared
            && let Some(first) = line.queue.first().filter(|node| node.want == Want::Exclusive)
            && line.queue.iter().filter(|node| node.want != Want::Shared && !is(mine, node)).count() == 1
        {
            let path = format!("{}/{}", self.lock_path(name), first.name());
            match self.link.within(life.client.get_data(&path)).await? {
                Ok((data, _)) => line.queue[0].want = crate::data::About::read(&data, Want::Exclusive).want,
                // For a reader, one that is gone is as good as one that reads.
                Err(zk::Error::NoNode) => line.queue[0].want = Want::Shared,
                Err(error) => return Err(trouble(&error)),
            }
        }
        let limit = match want {
            Want::Permits { .. } => self.limit_of(life, name, &line, mine).await?,
            _ => Limit::default(),
        };
        Ok(Seen { line, limit })
    }

    /// The number of permits in force: what the first in line said, unless it was changed since.
    pub(crate) async fn limit_of(
        &self,
        life: &Arc<Life>,
        name: &Name,
        line: &Line,
        mine: Option<&Seat>,
    ) -> Result<Limit> {
        let said = Limit { number: line.any_permits(), changed: false };
        let Some((first, of)) = line.first_permits() else { return Ok(said) };
        let lock = self.lock_path(name);
        let (data, stat) = match self.link.within(life.client.get_data(&lock)).await? {
            Ok(found) => found,
            Err(zk::Error::NoNode) => return Ok(said),
            Err(error) => return Err(trouble(&error)),
        };
        let Some((changed, at)) = LockData::read(&data).limit else {
            return Ok(Limit { number: Some(of), changed: false });
        };
        let came = match mine {
            Some(seat) if seat.node == *first => Some(seat.czxid),
            _ => {
                let path = format!("{lock}/{}", first.name());
                let stat = self.link.within(life.client.check_stat(&path)).await?.map_err(|e| trouble(&e))?;
                stat.map(|stat| stat.czxid)
            }
        };
        Ok(match came {
            Some(came) if came > at.unwrap_or(stat.mzxid) => Limit { number: Some(of), changed: false },
            // If it is gone, the queue has changed, and whoever watches it looks again.
            _ => Limit { number: Some(changed), changed: true },
        })
    }
}

fn is(mine: Option<&Seat>, node: &Node) -> bool {
    mine.is_some_and(|seat| seat.node == *node)
}

/// A node was made, in a session that is over by now.
fn ended_meanwhile() -> Error {
    Error::new(Kind::Unavailable, "the session ended meanwhile")
}

/// The node that all locks are in.
fn root_of(lock: &str) -> &str {
    lock.rfind('/').map_or(lock, |at| &lock[..at])
}

/// Whoever wants permits must believe in the limit that is in force.
fn agree(seen: &Seen, want: Want) -> Result<()> {
    match (want, seen.limit.number) {
        (Want::Permits { of, .. }, Some(limit)) if limit != of => {
            let what = format!("the semaphore has a limit of {limit} permits now, and this claim says {of}");
            Err(Error::new(Kind::Mismatch, what)
                .advice("use the same limit everywhere, or change it for all with set_limit"))
        }
        _ => Ok(()),
    }
}

impl Entry {
    pub(crate) fn ask(&self, id: EntryId) -> Ask {
        Ask {
            name: self.name.clone(),
            id,
            want: self.want,
            lease: self.lease,
            place: self.place,
            otherwise: self.otherwise,
        }
    }

    /// What the entry was granted, for a client that counts from `asked`. `tokens`: a part of its block.
    pub(crate) fn grant(
        &mut self,
        asked: Tick,
        contended: bool,
        tokens: Option<TokenBlock>,
    ) -> Result<Grant> {
        let (Stage::Held { seat, requested }, Some(life)) = (&self.stage, &self.life) else {
            return Err(later("the entry does not hold any more"));
        };
        // Its node ends with the ZooKeeper session, if that is sooner than the lease.
        let alive = life.alive_until();
        let renew_after = (self.lease.length() / 3).min(life.renewal());
        let term = match self.lease {
            Lease::Fixed(_) if self.ends <= alive => Term::Until(self.ends),
            Lease::Fixed(_) => Term::Session { until: alive, renew_at: asked + renew_after, ends: self.ends },
            Lease::Kept(_) => Term::Session {
                until: alive.min(self.ends),
                renew_at: asked + renew_after,
                ends: Tick::NEVER,
            },
        };
        if alive <= asked {
            return Err(Error::new(Kind::Unavailable, "the ZooKeeper session may have ended"));
        }
        self.told = alive.min(self.ends);
        let tokens = match tokens {
            Some(tokens) => tokens,
            None => state::tokens(seat.czxid)?,
        };
        Ok(Grant { tokens, term, started: true, contended, release_requested: *requested })
    }

    /// The tokens above one that was handed out. `None` if there are none left.
    pub(crate) fn more_tokens(&self, highest: Token) -> Option<TokenBlock> {
        match &self.stage {
            Stage::Held { seat, .. } => state::rest_above(state::tokens(seat.czxid).ok()?, highest),
            _ => None,
        }
    }
}
