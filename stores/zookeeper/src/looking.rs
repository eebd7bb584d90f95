//! What people see of locks, and what they do to those of others: inspection, lists, force releases, requests, limits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::clock::wall_micros;
use leasehold_core::store::Left;
use leasehold_core::view::{EntryView, Lost, Snapshot};
use leasehold_core::{Error, Kind, Lease, Name, Result, Token, Want, rule};
use zookeeper_client as zk;

use crate::data::{About, LockData};
use crate::link::Life;
use crate::path::{Node, unescape};
use crate::session::Desk;
use crate::state::{Limit, Line, is_token_of, tokens};
use crate::trouble::trouble;

/// How many locks are looked at together.
const LOOKS: usize = 64;

/// How many nodes one request reads: their data must fit one answer.
const READS: usize = 256;

/// A lock with all that its nodes say.
pub(crate) struct Picture {
    /// What the nodes of the queue and of those that barge say, in the same order.
    pub(crate) queue: Vec<Told>,
    pub(crate) bargers: Vec<Told>,
    pub(crate) limit: Limit,
    /// How many held before the limit was changed: a lowered one takes no permit away.
    sticky: usize,
    pub(crate) notes: LockData,
    /// When the notes were last changed.
    pub(crate) changed: i64,
}

/// What a node says.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) node: Node,
    pub(crate) about: About,
    pub(crate) czxid: i64,
    /// When it was made, in microseconds since 1970.
    pub(crate) since: u64,
}

impl Told {
    pub(crate) fn new(node: Node, data: &[u8], stat: &zk::Stat) -> Told {
        let since = u64::try_from(stat.ctime).unwrap_or(0) * 1000;
        Told { node, about: About::read(data, node.want), czxid: stat.czxid, since }
    }

    fn view(&self, place: Option<u32>, holds: bool) -> EntryView {
        let now = wall_micros();
        // One that waited says since when it holds, a second after it began to.
        let held = self.about.held.unwrap_or(0).max(self.since);
        let left = |length: Duration| {
            Duration::from_micros(
                (held + u64::try_from(length.as_micros()).unwrap_or(u64::MAX / 2)).saturating_sub(now),
            )
        };
        EntryView {
            id: self.node.id,
            session: self.about.session,
            label: self.about.label.clone(),
            want: self.about.want,
            barges: self.node.barges,
            since: self.since,
            held_since: holds.then_some(held),
            token: if holds { tokens(self.czxid).ok().map(|block| block.first) } else { None },
            lease_left: match self.about.lease {
                Some(Lease::Fixed(length)) if holds => Some(left(length)),
                _ => None,
            },
            place,
            release_requested: holds && self.about.release_requested,
        }
    }
}

impl Picture {
    /// How many of the queue hold.
    pub(crate) fn held(&self) -> usize {
        let wants: Vec<Want> = self.queue.iter().map(|told| told.about.want).collect();
        rule::holders(&wants, self.sticky, self.limit.number)
    }

    fn snapshot(&self, name: Name) -> Snapshot {
        let held = self.held();
        let queued =
            self.queue[held..].iter().enumerate().map(|(place, told)| told.view(Some(place as u32), false));
        let holders = self.queue[..held].iter().map(|told| told.view(None, true)).collect();
        let waiters = queued.chain(self.bargers.iter().map(|told| told.view(None, false))).collect();
        Snapshot { name, holders, waiters, limit: self.limit.number }
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.bargers.is_empty()
    }

    /// The holders, or the one with this token.
    fn meant(&self, expected: Option<Token>) -> Vec<Told> {
        let holders = self.queue[..self.held()].iter();
        holders.filter(|told| expected.is_none_or(|token| is_token_of(token, told.czxid))).cloned().collect()
    }
}

impl Desk {
    pub(crate) async fn inspect(&self, name: Name) -> Result<Snapshot> {
        let life = self.link.up().await?;
        let picture = self.picture(&life, &name, true).await?;
        Ok(picture.snapshot(name))
    }

    /// A look at a lock with all that its nodes say. What left meanwhile is not in it.
    ///
    /// The server that we are connected to may be behind others: `fresh` makes it catch up first, in the same round trip.
    pub(crate) async fn picture(&self, life: &Arc<Life>, name: &Name, fresh: bool) -> Result<Picture> {
        let lock = self.lock_path(name);
        let caught_up = fresh.then(|| life.client.sync(&lock));
        let (list, data) = (life.client.list_children(&lock), life.client.get_data(&lock));
        let answers = async {
            if let Some(caught_up) = caught_up {
                caught_up.await?;
            }
            Ok((list.await, data.await))
        };
        let (names, (data, stat)) = match self.link.within(answers).await? {
            Ok((Ok(names), Ok(found))) => (names, found),
            Ok((Err(zk::Error::NoNode), _) | (_, Err(zk::Error::NoNode))) => return Ok(Picture::empty()),
            Ok((Err(error), _) | (_, Err(error))) | Err(error) => return Err(trouble(&error)),
        };
        let line = Line::of(&names);
        let nodes: Vec<Node> = line.queue.iter().chain(&line.bargers).copied().collect();
        let (bargers, queue): (Vec<Told>, Vec<Told>) =
            self.read_all(life, &lock, &nodes).await?.into_iter().partition(|told| told.node.barges);
        let line = Line {
            queue: queue.iter().map(|told| told.node).collect(),
            bargers: bargers.iter().map(|told| told.node).collect(),
        };
        let notes = LockData::read(&data);
        let first = queue.iter().find(|told| matches!(told.node.want, Want::Permits { .. }));
        let changed = notes.limit.map(|(number, at)| (number, at.unwrap_or(stat.mzxid)));
        let (limit, sticky) = match (changed, first) {
            (Some((number, at)), Some(first)) if first.czxid < at => {
                let earlier = queue.iter().take_while(|told| told.czxid < at).map(|told| told.about.want);
                let before = rule::holders(&earlier.collect::<Vec<_>>(), 0, line.any_permits());
                (Limit { number: Some(number), changed: true }, before)
            }
            _ => (Limit { number: line.any_permits(), changed: false }, 0),
        };
        Ok(Picture { queue, bargers, limit, sticky, notes, changed: stat.mzxid })
    }

    async fn read_all(&self, life: &Arc<Life>, lock: &str, nodes: &[Node]) -> Result<Vec<Told>> {
        let mut told = Vec::with_capacity(nodes.len());
        for nodes in nodes.chunks(READS) {
            let mut reader = life.client.new_multi_reader();
            for node in nodes {
                reader.add_get_data(&format!("{lock}/{}", node.name())).map_err(|e| trouble(&e))?;
            }
            let answers = self.link.within(reader.commit()).await?.map_err(|e| trouble(&e))?;
            for (node, answer) in nodes.iter().zip(answers) {
                match answer {
                    zk::MultiReadResult::Data { data, stat } => told.push(Told::new(*node, &data, &stat)),
                    zk::MultiReadResult::Error { err: zk::Error::NoNode } => {}
                    zk::MultiReadResult::Error { err } => return Err(trouble(&err)),
                    _ => {}
                }
            }
        }
        Ok(told)
    }

    /// A page of the names in use, in byte order. Costs a list of all locks, and a look at those of the page.
    pub(crate) async fn page(
        &self,
        prefix: &str,
        after: Option<&Name>,
        most: usize,
    ) -> Result<Vec<Snapshot>> {
        let life = self.link.up().await?;
        self.link.patrol(&life).await?;
        let mut names = self.names(&life).await?;
        names.retain(|name| name.as_str().starts_with(prefix) && after.is_none_or(|after| name > after));
        names.sort();
        let mut page = Vec::new();
        for names in names.chunks(LOOKS) {
            if page.len() >= most {
                break;
            }
            let pictures = join_all(names.iter().map(|name| self.picture(&life, name, false))).await;
            for (name, picture) in names.iter().zip(pictures) {
                let picture = picture?;
                if !picture.is_idle() {
                    page.push(picture.snapshot(name.clone()));
                }
            }
        }
        page.truncate(most);
        Ok(page)
    }

    /// The names of all locks that have a node.
    pub(crate) async fn names(&self, life: &Arc<Life>) -> Result<Vec<Name>> {
        match self.link.within(life.client.list_children(&self.config.root())).await? {
            Ok(nodes) => Ok(nodes.iter().filter_map(|node| unescape(node)).collect()),
            Err(zk::Error::NoNode) => Ok(Vec::new()),
            Err(error) => Err(trouble(&error)),
        }
    }

    /// Takes the lock away from its holders, or from the one with this token.
    pub(crate) async fn revoke(self: &Arc<Self>, name: Name, expected: Option<Token>) -> Result<Snapshot> {
        let life = self.link.up().await?;
        let lock = self.lock_path(&name);
        let mut revoked = Vec::new();
        for told in self.picture(&life, &name, true).await?.meant(expected) {
            let path = format!("{lock}/{}", told.node.name());
            let left = self.remove_because(&life, &name, told.node.id, &path, Lost::Revoked).await;
            if left.map_err(|e| e.on(&name))? == Left::Done {
                revoked.push(told.view(None, true));
            }
        }
        let now = self.picture(&life, &name, true).await?.snapshot(name);
        Ok(Snapshot { holders: revoked, ..now })
    }

    /// Asks the holders, or the one with this token, to give the lock back.
    pub(crate) async fn request_release(
        self: &Arc<Self>,
        name: Name,
        expected: Option<Token>,
    ) -> Result<Snapshot> {
        let life = self.link.up().await?;
        let lock = self.lock_path(&name);
        let picture = self.picture(&life, &name, true).await?;
        let mut asked = Vec::new();
        for mut told in picture.meant(expected) {
            let path = format!("{lock}/{}", told.node.name());
            let change = |about: &mut About| about.release_requested = true;
            let there = self.change_about(&life, &path, told.node.want, change).await;
            if there.map_err(|e| e.on(&name))?.is_some() {
                told.about.release_requested = true;
                asked.push(told.view(None, true));
            }
        }
        Ok(Snapshot { holders: asked, ..picture.snapshot(name) })
    }

    /// Changes the number of permits of a semaphore that is in use.
    pub(crate) async fn set_limit(&self, name: &Name, limit: u32) -> Result<()> {
        if limit == 0 {
            return Err(Error::new(Kind::Invalid, "a semaphore needs a limit of at least 1 permit"));
        }
        let life = self.link.up().await?;
        let lock = self.lock_path(name);
        loop {
            let found = self.link.within(life.client.get_data(&lock)).await?;
            let (data, stat) = match found {
                Ok(found) => found,
                Err(zk::Error::NoNode) => return Ok(()),
                Err(error) => return Err(trouble(&error).on(name)),
            };
            let picture = self.picture(&life, name, true).await?;
            if picture.limit.number.is_none() {
                return Ok(());
            }
            let waiting = picture.queue[picture.held()..].iter().chain(&picture.bargers);
            let most = waiting.filter_map(|told| match told.node.want {
                Want::Permits { n, .. } => Some(n),
                _ => None,
            });
            if let Some(most) = most.max().filter(|most| *most > limit) {
                let what = format!("the limit can't go down to {limit}: somebody waits for {most} permits");
                return Err(Error::new(Kind::Refused, what)
                    .advice("wait until that claim is gone, or choose a higher limit"));
            }
            let mut notes = LockData::read(&data);
            notes.limit = Some((limit, None));
            match self.link.within(life.client.set_data(&lock, &notes.write(), Some(stat.version))).await? {
                Ok(_) => return Ok(()),
                Err(zk::Error::NoNode) => return Ok(()),
                Err(zk::Error::BadVersion) => {}
                Err(error) => return Err(trouble(&error).on(name)),
            }
        }
    }
}

impl Picture {
    fn empty() -> Picture {
        Picture {
            queue: Vec::new(),
            bargers: Vec::new(),
            limit: Limit::default(),
            sticky: 0,
            notes: LockData::default(),
            changed: 0,
        }
    }
}
