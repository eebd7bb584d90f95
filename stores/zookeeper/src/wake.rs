//! How an entry learns what concerns it: one task with its watches.
//!
//! An entry that waits watches two nodes: its own, and the one that it waits for. The events of a connection come in the order
//! in which things happened, so if the other node is deleted and our own was not before, our own is still there; and if
//! nothing else stood before us, the deletion is the grant, with no further request. After a reconnect the order is not kept;
//! then the queue is read again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::clock::wall_micros;
use leasehold_core::store::News;
use leasehold_core::view::Lost;
use leasehold_core::{EntryId, Lease, Name, Want};
use tokio::task::AbortHandle;
use zookeeper_client as zk;
use zookeeper_client::{EventType, WatchedEvent};

use crate::data::About;
use crate::joining::Seen;
use crate::link::Life;
use crate::path::Node;
use crate::session::{Desk, Seat, Stage};
use crate::state::{Stand, is_next};

/// The pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(50);

/// A hold that began while its owner waited says since when it lasts, if it lasts for longer than this.
const MARK_AFTER: Duration = Duration::from_secs(1);

/// How often a node is looked at for which there is no room to watch it: one that is waited for, and one that holds.
const POLL: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));

/// With so many entries each of them is polled half as often as one alone.
const POLLED: u32 = 500;

/// An event to come.
struct Change {
    event: Pin<Box<dyn Future<Output = WatchedEvent> + Send>>,
    /// Whether it comes in the order in which things happened: by a watch.
    in_order: bool,
}

/// Waits in the queue for an entry, and looks after it while it holds.
pub(crate) fn queue(
    desk: Arc<Desk>,
    life: Arc<Life>,
    id: EntryId,
    name: Name,
    seat: Seat,
    seen: Seen,
) -> AbortHandle {
    let watch = Watch { desk, life, id, name, seat };
    tokio::spawn(async move { watch.wait(seen).await }).abort_handle()
}

/// Looks after an entry that holds.
pub(crate) fn hold(desk: Arc<Desk>, life: Arc<Life>, id: EntryId, name: Name, seat: Seat) -> AbortHandle {
    let watch = Watch { desk, life, id, name, seat };
    tokio::spawn(async move { watch.keep(None, None).await }).abort_handle()
}

/// Waits until it may help one that barges to try again. They wait for each other, so that one is told at a time.
pub(crate) fn barge(
    desk: Arc<Desk>,
    life: Arc<Life>,
    id: EntryId,
    name: Name,
    want: Want,
    note: Node,
) -> AbortHandle {
    tokio::spawn(async move {
        let watch = Watch { desk, life, id, name, seat: Seat { node: note, path: "".into(), czxid: 0 } };
        watch.wait_to_try(want).await;
    })
    .abort_handle()
}

struct Watch {
    desk: Arc<Desk>,
    life: Arc<Life>,
    id: EntryId,
    name: Name,
    seat: Seat,
}

/// What came of a look at the queue.
enum Step {
    /// The lock is ours.
    Granted,
    /// Something changed: look again.
    Again,
    /// The queue as it is known now, to be judged again without a look.
    Judge(Seen),
    /// Our node was deleted.
    Gone,
}

impl Watch {
    async fn wait(&self, first: Seen) {
        let mut seen = Some(first);
        let mut own: Option<Change> = None;
        // One that got in since the queue was read, and that we were told of.
        let mut told_of: Option<Node> = None;
        loop {
            match self.step(&mut seen, &mut own, &mut told_of).await {
                Ok(Step::Granted) => break,
                Ok(Step::Again) => seen = None,
                Ok(Step::Judge(now)) => seen = Some(now),
                Ok(Step::Gone) => return self.vanished(),
                Err(_) if self.is_over() => return,
                Err(_) => {
                    (seen, own) = (None, None);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        let behind =
            seen.as_ref().is_none_or(|seen| seen.line.others_behind(self.position(seen).unwrap_or(0)));
        if self.promote(behind).await {
            self.keep(own, Some(self.mark_after(behind))).await;
        }
    }

    fn position(&self, seen: &Seen) -> Option<usize> {
        seen.position(&self.seat.node)
    }

    fn is_over(&self) -> bool {
        self.life.client.state().is_terminated() || !self.desk.link.is_current(&self.life)
    }

    async fn step(
        &self,
        seen: &mut Option<Seen>,
        own: &mut Option<Change>,
        told_of: &mut Option<Node>,
    ) -> Result<Step, zk::Error> {
        let own = match own {
            Some(own) => own,
            None => match self.watch(&self.seat.path, false).await {
                Ok((_, change)) => own.insert(change),
                Err(zk::Error::NoNode) => return Ok(Step::Gone),
                Err(error) => return Err(error),
            },
        };
        let want = self.seat.node.want;
        let now = match seen {
            Some(seen) => seen,
            None => seen.insert(self.look(want).await?),
        };
        let Some(at) = self.position(now) else { return Ok(Step::Gone) };
        let mut stand = now.stand_of(at);
        if let (Stand::After(before), Some(node)) = (stand, &told_of)
            && now.line.queue[before] == *node
        {
            // It says that it holds, and by what we know it should not: a limit is being changed.
            stand = Stand::AfterAny;
        }
        match stand {
            Stand::Holds => Ok(Step::Granted),
            Stand::After(before) => self.after(now, before, stand, own, told_of).await,
            Stand::AfterAny => self.after_any(own, Some(at)).await,
        }
    }

    /// Reads a node and watches it; or polls it, if there is no room for a watch.
    async fn watch(&self, path: &str, holds: bool) -> Result<(Vec<u8>, Change), zk::Error> {
        if let Some(room) = self.life.room(path) {
            let (data, _, watcher) = self.life.client.get_and_watch_data(path).await?;
            let event = async move {
                let event = watcher.changed().await;
                drop(room);
                event
            };
            return Ok((data, Change { event: Box::pin(event), in_order: true }));
        }
        let (data, stat) = self.life.client.get_data(path).await?;
        let pause = if holds { POLL.1 } else { POLL.0 };
        let pause = pause + pause * u32::try_from(self.desk.book().len()).unwrap_or(u32::MAX / 2) / POLLED;
        let (life, path) = (self.life.clone(), path.to_owned());
        let event = async move {
            loop {
                tokio::time::sleep(pause).await;
                match life.client.check_stat(&path).await {
                    Ok(None) => return WatchedEvent::new(EventType::NodeDeleted, path),
                    Ok(Some(now)) if now.mzxid != stat.mzxid => {
                        return WatchedEvent::new(EventType::NodeDataChanged, path);
                    }
                    Err(_) if life.client.state().is_terminated() => {
                        return WatchedEvent::new_session(life.client.state());
                    }
                    _ => {}
                }
            }
        };
        Ok((data, Change { event: Box::pin(event), in_order: false }))
    }

    async fn look(&self, want: Want) -> Result<Seen, zk::Error> {
        // What went wrong does not matter here: it is tried again for as long as the session lives.
        self.desk.look_at(&self.life, &self.name, want).await.map_err(|_| zk::Error::ConnectionLoss)
    }

    fn path(&self, node: &Node) -> String {
        format!("{}/{}", self.desk.lock_path(&self.name), node.name())
    }

    /// Waits for the one entry that is in the way.
    async fn after(
        &self,
        seen: &Seen,
        before: usize,
        stand: Stand,
        own: &mut Change,
        told_of: &mut Option<Node>,
    ) -> Result<Step, zk::Error> {
        let node = seen.line.queue[before];
        let (want, next) = (self.seat.node.want, own.in_order && is_next(stand, self.seat.node.want));
        let mut states = self.life.states();
        let mut undisturbed = || states.changed().now_or_never().is_none() && self.life.is_up();
        let change = match self.watch(&self.path(&node), false).await {
            Ok((data, change)) => {
                let about = About::read(&data, node.want);
                if want == Want::Shared && about.want == Want::Shared {
                    let mut seen = seen.clone();
                    seen.line.queue[before].want = Want::Shared;
                    return Ok(Step::Judge(seen));
                }
                let permits = matches!((want, node.want), (Want::Permits { .. }, Want::Permits { .. }));
                if permits && about.held.is_some() && *told_of != Some(node) {
                    *told_of = Some(node);
                    return Ok(Step::Again);
                }
                change
            }
            Err(zk::Error::NoNode) => {
                return match (&mut own.event).now_or_never() {
                    // Whatever it says, the watch is spent and must not be polled again.
                    Some(event) => self.own_changed(event),
                    None if next && undisturbed() => Ok(Step::Granted),
                    None => Ok(Step::Again),
                };
            }
            Err(error) => return Err(error),
        };
        let event = tokio::select! {
            biased;
            event = &mut own.event => return self.own_changed(event),
            event = change.event => event,
        };
        match event.event_type {
            EventType::NodeDeleted if next && change.in_order && undisturbed() => Ok(Step::Granted),
            EventType::Session => Err(zk::Error::SessionExpired),
            _ => Ok(Step::Again),
        }
    }

    /// Waits for any change of the queue or of the limit. `at`: where we stand, if not at the end.
    async fn after_any(&self, own: &mut Change, at: Option<usize>) -> Result<Step, zk::Error> {
        let lock = self.desk.lock_path(&self.name);
        let rooms = (self.life.room(&lock), self.life.room(&lock));
        if rooms.0.is_none() || rooms.1.is_none() {
            return self.poll_any(at).await;
        }
        // Armed first, judged then: no change is missed.
        let (list, data) =
            (self.life.client.list_and_watch_children(&lock), self.life.client.get_and_watch_data(&lock));
        let ((names, children), (_, _, limit)) = match (list.await, data.await) {
            (Ok(list), Ok(data)) => (list, data),
            (Err(zk::Error::NoNode), _) | (_, Err(zk::Error::NoNode)) => return Ok(Step::Again),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let want = self.seat.node.want;
        let seen = self.desk.read_line(&self.life, &self.name, want, names, None).await;
        let seen = seen.map_err(|_| zk::Error::ConnectionLoss)?;
        let stand = match at {
            None => seen.stand_at_end(want),
            Some(_) => match self.position(&seen) {
                None => return Ok(Step::Gone),
                Some(at) => seen.stand_of(at),
            },
        };
        if stand == Stand::Holds {
            return Ok(Step::Granted);
        }
        let event = tokio::select! {
            biased;
            event = &mut own.event => return self.own_changed(event),
            event = children.changed() => event,
            event = limit.changed() => event,
        };
        if event.event_type == EventType::Session { Err(zk::Error::SessionExpired) } else { Ok(Step::Again) }
    }

    /// As [`after_any`](Self::after_any), without watches.
    async fn poll_any(&self, at: Option<usize>) -> Result<Step, zk::Error> {
        tokio::time::sleep(POLL.0).await;
        let seen = self.look(self.seat.node.want).await?;
        Ok(match at {
            None if seen.stand_at_end(self.seat.node.want) == Stand::Holds => Step::Granted,
            None => Step::Again,
            Some(_) => Step::Judge(seen),
        })
    }

    fn own_changed(&self, event: WatchedEvent) -> Result<Step, zk::Error> {
        match event.event_type {
            EventType::NodeDeleted => Ok(Step::Gone),
            // Somebody wrote to it. The watch is spent, so everything begins anew.
            _ => Err(zk::Error::RuntimeInconsistent),
        }
    }

    /// Our node was deleted, and not by us.
    fn vanished(&self) {
        let mut book = self.desk.book();
        let ours = book.get(self.id).is_some_and(|entry| match &entry.stage {
            Stage::Waiting { seat, .. } | Stage::Held { seat, .. } => seat.path == self.seat.path,
            _ => false,
        });
        if ours {
            book.remove(self.id);
            drop(book);
            self.desk.tell(self.name.clone(), self.id, News::Gone(Lost::Revoked));
        }
    }

    /// The entry holds now. `false` if it left meanwhile.
    async fn promote(&self, contended: bool) -> bool {
        while self.desk.now() + self.life.timeout / 4 > self.life.alive_until() {
            if self.desk.link.patrol(&self.life).await.is_ok() {
                break;
            }
            if self.is_over() {
                return false;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let asked = self.desk.book().change(self.id, |entry| match &entry.stage {
            Stage::Waiting { seat, .. } => {
                entry.stage = Stage::Held { seat: seat.clone(), requested: false };
                Some(entry.asked)
            }
            _ => None,
        });
        let Some(Some(asked)) = asked else { return false };
        match self.desk.held(self.id, asked, contended) {
            Ok(grant) => {
                self.desk.tell(self.name.clone(), self.id, News::Granted(grant));
                true
            }
            // Its owner finds it with its next request.
            Err(_) => self.desk.book().get(self.id).is_some(),
        }
    }

    /// When a hold that began now is noted in its node. Those who wait for permits behind us have to be told at once.
    fn mark_after(&self, behind: bool) -> Duration {
        let fixed = self.desk.book().get(self.id).is_some_and(|entry| matches!(entry.lease, Lease::Fixed(_)));
        let permits = matches!(self.seat.node.want, Want::Permits { .. });
        if fixed || (permits && behind) { Duration::ZERO } else { MARK_AFTER }
    }

    /// Looks after an entry that holds: whether its node is deleted, or somebody asks for the lock back.
    async fn keep(&self, own: Option<Change>, mark_after: Option<Duration>) {
        let since = wall_micros();
        let mut mark = mark_after;
        let mut armed = own;
        loop {
            if mark == Some(Duration::ZERO) {
                mark = None;
                let change = |about: &mut About| about.held = Some(since);
                let _ =
                    self.desk.change_about(&self.life, &self.seat.path, self.seat.node.want, change).await;
            }
            let own = match armed.take() {
                Some(own) => own,
                None => match self.watch(&self.seat.path, true).await {
                    Ok((data, change)) => {
                        if About::read(&data, self.seat.node.want).release_requested {
                            self.requested();
                        }
                        change
                    }
                    Err(zk::Error::NoNode) => return self.vanished(),
                    Err(_) if self.is_over() => return,
                    Err(_) => {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                },
            };
            let event = match mark {
                None => own.event.await,
                Some(after) => match tokio::time::timeout(after, own.event).await {
                    Ok(event) => event,
                    Err(_) => {
                        mark = Some(Duration::ZERO);
                        continue;
                    }
                },
            };
            match event.event_type {
                EventType::NodeDeleted => return self.vanished(),
                EventType::Session => return,
                _ => {}
            }
        }
    }

    /// Somebody asked for the lock back.
    fn requested(&self) {
        let held = self.desk.book().change(self.id, |entry| match &mut entry.stage {
            Stage::Held { requested, .. } => {
                *requested = true;
                true
            }
            _ => false,
        });
        if held == Some(true) {
            self.desk.tell(self.name.clone(), self.id, News::ReleaseRequested);
        }
    }

    async fn wait_to_try(&self, want: Want) {
        loop {
            match self.step_to_try(want).await {
                Ok(true) => return self.desk.tell(self.name.clone(), self.id, News::Retry),
                Ok(false) => {}
                Err(_) if self.is_over() => return,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Whether it may help to try now. Else waits for a change.
    async fn step_to_try(&self, want: Want) -> Result<bool, zk::Error> {
        let seen = self.look(want).await?;
        let before = match seen.line.bargers.iter().position(|note| note.id == self.id) {
            // Our note was deleted: a try makes a new one.
            None => return Ok(true),
            Some(0) => match seen.stand_at_end(want) {
                Stand::Holds => return Ok(true),
                Stand::After(before) => seen.line.queue[before],
                Stand::AfterAny => {
                    let mut never = Change { event: Box::pin(std::future::pending()), in_order: false };
                    return Ok(matches!(self.after_any(&mut never, None).await?, Step::Granted));
                }
            },
            Some(at) => seen.line.bargers[at - 1],
        };
        match self.watch(&self.path(&before), false).await {
            Ok((data, change)) => {
                if want == Want::Shared
                    && !before.barges
                    && About::read(&data, before.want).want == Want::Shared
                {
                    // It became a reader. If that is all there is, a try gets in; if not, it finds out.
                    return Ok(true);
                }
                match change.event.await.event_type {
                    EventType::Session => Err(zk::Error::SessionExpired),
                    _ => Ok(false),
                }
            }
            Err(zk::Error::NoNode) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
