//! How entries leave: one delete, repeated until it is certain or the session has ended.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::{Leave, Left, News};
use leasehold_core::view::Lost;
use leasehold_core::{EntryId, Name, Result, Want};
use zookeeper_client as zk;

use crate::data::{About, LockData};
use crate::link::Life;
use crate::path::Node;
use crate::session::{Desk, Stage};
use crate::together;
use crate::trouble::trouble;

/// The pauses between tries at a delete.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How often a change of a node's data is tried that others change at the same time.
const TRIES: usize = 16;

impl Desk {
    pub(crate) async fn leave(self: &Arc<Self>, leave: Leave) -> Result<Left> {
        let turn = self.book().turn(leave.id);
        let Some(turn) = turn else { return self.remove_by_id(&leave.name, leave.id).await };
        let _turn = turn.lock().await;
        let found = self.book().leave(leave.id);
        match found {
            None => Ok(Left::NotThere),
            Some((Some(path), Some(life), _)) => self.delete_entry(&life, leave.id, path).await,
            Some((_, life, true)) => match self.remove_by_id(&leave.name, leave.id).await {
                Ok(left) => {
                    self.forget(leave.id);
                    Ok(left)
                }
                Err(error) => {
                    if let Some(life) = life {
                        self.hunt(life, leave.name, leave.id);
                    }
                    Err(error)
                }
            },
            Some(_) => {
                self.forget(leave.id);
                Ok(Left::NotThere)
            }
        }
    }

    async fn delete_entry(self: &Arc<Self>, life: &Arc<Life>, id: EntryId, path: Arc<str>) -> Result<Left> {
        let sent = self.now();
        let answer = self.link.within(together::delete(life, &path)).await;
        let error = match answer {
            Ok(Ok(())) => {
                life.heard(sent);
                self.forget(id);
                return Ok(Left::Done);
            }
            Ok(Err(zk::Error::NoNode)) => {
                self.forget(id);
                return Ok(Left::NotThere);
            }
            Ok(Err(error)) => trouble(&error),
            Err(error) => error,
        };
        self.discard(life.clone(), path, Some(id));
        Err(error)
    }

    /// Looks for the nodes of an entry that left while it was not known whether it has any, for as long as its session lives: a
    /// request of ours may be carried out later than we waited for it, and nobody else would ever delete what it made.
    fn hunt(self: &Arc<Self>, life: Arc<Life>, name: Name, id: EntryId) {
        let desk = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut pause = PAUSE.0;
            while !life.client.state().is_terminated() {
                let Some(desk) = desk.upgrade().filter(|desk| !desk.is_closed()) else { return };
                if !desk.link.is_current(&life) || desk.remove_by_id(&name, id).await.is_ok() {
                    return desk.forget(id);
                }
                drop(desk);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
            // What it made goes with the session.
            if let Some(desk) = desk.upgrade() {
                desk.forget(id);
            }
        });
    }

    /// Nothing of an entry is left.
    fn forget(&self, id: EntryId) {
        if let Some(entry) = self.book().remove(id) {
            entry.stop_watching();
        }
    }

    /// Lets go of what an entry has, without waiting.
    pub(crate) fn let_go(self: &Arc<Self>, id: EntryId) {
        let Some(entry) = self.book().remove(id) else { return };
        entry.stop_watching();
        let path = match &entry.stage {
            Stage::Waiting { seat, .. } | Stage::Barging { seat } | Stage::Held { seat, .. } => {
                seat.path.clone()
            }
            Stage::Leaving { path } => path.clone(),
            Stage::Asked { .. } => return,
        };
        if let Some(life) = entry.life {
            self.discard(life, path, None);
        }
    }

    /// Deletes a node that is in the way of others: now, or in the background if that fails.
    pub(crate) async fn step_back(self: &Arc<Self>, life: &Arc<Life>, path: Arc<str>) {
        match self.link.within(life.client.delete(&path, None)).await {
            Ok(Ok(()) | Err(zk::Error::NoNode)) => {}
            _ => self.discard(life.clone(), path, None),
        }
    }

    /// Deletes a node of ours in the background, and tries until it is gone or its session is.
    ///
    /// The request needs no deadline: it is answered, or fails with the session.
    pub(crate) fn discard(self: &Arc<Self>, life: Arc<Life>, path: Arc<str>, id: Option<EntryId>) {
        let book = id.map(|id| (Arc::downgrade(self), id));
        // The first try is sent now, so that it comes before whatever is asked next.
        let first = life.client.delete(&path, None);
        tokio::spawn(async move {
            let mut pause = PAUSE.0;
            let mut answer = first.await;
            loop {
                match answer {
                    Ok(()) | Err(zk::Error::NoNode) => break,
                    Err(error) => {
                        tracing::debug!(target: "leasehold", %path, %error, "a delete is tried again");
                        if life.client.state().is_terminated() {
                            break;
                        }
                    }
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
                answer = life.client.delete(&path, None).await;
            }
            if let Some((book, id)) = book
                && let Some(desk) = book.upgrade()
            {
                desk.forget(id);
            }
        });
    }

    /// Deletes the nodes of an entry that is not in the book: another session's, or of a request whose answer was lost.
    pub(crate) async fn remove_by_id(self: &Arc<Self>, name: &Name, id: EntryId) -> Result<Left> {
        let life = self.link.up().await?;
        let lock = self.lock_path(name);
        let (sync, list) = (life.client.sync(&lock), life.client.list_children(&lock));
        let names = match self.link.within(async { (sync.await, list.await) }).await? {
            (_, Ok(names)) => names,
            (_, Err(zk::Error::NoNode)) => return Ok(Left::NotThere),
            (_, Err(error)) => return Err(trouble(&error)),
        };
        let mut left = Left::NotThere;
        for node in names.iter().filter_map(|name| Node::parse(name)).filter(|node| node.id == id) {
            let path = format!("{lock}/{}", node.name());
            match self.link.within(life.client.delete(&path, None)).await? {
                Ok(()) => left = Left::Done,
                Err(zk::Error::NoNode) => {}
                Err(error) => return Err(trouble(&error)),
            }
        }
        Ok(left)
    }

    /// The time of an entry is over: it goes, and those who watch the lock can see why.
    pub(crate) async fn expire(self: &Arc<Self>, id: EntryId) {
        let turn = self.book().turn(id);
        let Some(turn) = turn else { return };
        // A request about it that is under way may renew it, or take it out.
        let _turn = turn.lock().await;
        let over = self.book().take_if_over(id, self.now());
        let Some((entry, path)) = over else { return };
        entry.stop_watching();
        if let Some(life) = &entry.life
            && self.remove_because(life, &entry.name, id, &path, Lost::Expired).await.is_err()
        {
            self.discard(life.clone(), path, None);
        }
        self.tell(entry.name, id, News::Gone(Lost::Expired));
    }

    /// Deletes a node and notes why, in one step. Tells whether it was there.
    pub(crate) async fn remove_because(
        &self,
        life: &Arc<Life>,
        name: &Name,
        id: EntryId,
        path: &str,
        why: Lost,
    ) -> Result<Left> {
        let lock = self.lock_path(name);
        for _ in 0..TRIES {
            let (data, stat) = match self.link.within(life.client.get_data(&lock)).await? {
                Ok(found) => found,
                Err(zk::Error::NoNode) => return Ok(Left::NotThere),
                Err(error) => return Err(trouble(&error)),
            };
            let mut notes = LockData::read(&data);
            notes.remember(id, why, stat.mzxid);
            let mut both = life.client.new_multi_writer();
            both.add_set_data(&lock, &notes.write(), Some(stat.version)).map_err(|e| trouble(&e))?;
            both.add_delete(path, None).map_err(|e| trouble(&e))?;
            match self.link.within(both.commit()).await?.map_err(zk::Error::from) {
                Ok(_) => return Ok(Left::Done),
                Err(zk::Error::NoNode) => return Ok(Left::NotThere),
                Err(zk::Error::BadVersion) => {}
                Err(error) => return Err(trouble(&error)),
            }
        }
        // Many do the same at once: the reason is worth less than the removal.
        match self.link.within(life.client.delete(path, None)).await? {
            Ok(()) => Ok(Left::Done),
            Err(zk::Error::NoNode) => Ok(Left::NotThere),
            Err(error) => Err(trouble(&error)),
        }
    }

    /// A writer becomes a reader in its place: its node's data says so, and readers behind it watch that.
    pub(crate) async fn downgrade(self: &Arc<Self>, name: &Name, id: EntryId) -> Result<Left> {
        let turn = self.book().turn(id);
        let Some(turn) = turn else { return Ok(Left::NotThere) };
        let _turn = turn.lock().await;
        let held = self.book().get(id).and_then(|entry| match &entry.stage {
            Stage::Held { seat, .. } => Some((seat.clone(), entry.life.clone()?, entry.want)),
            _ => None,
        });
        let Some((seat, life, want)) = held else { return Ok(Left::NotThere) };
        if want != Want::Exclusive {
            return Ok(Left::Done);
        }
        let change = |about: &mut About| about.want = Want::Shared;
        let left =
            self.change_about(&life, &seat.path, Want::Exclusive, change).await.map_err(|e| e.on(name))?;
        if left.is_none() {
            return Ok(Left::NotThere);
        }
        self.book().change(id, |entry| entry.want = Want::Shared);
        Ok(Left::Done)
    }

    /// Changes what an entry's node says. `None` if it is not there; else what it said before.
    pub(crate) async fn change_about(
        &self,
        life: &Arc<Life>,
        path: &str,
        want: Want,
        change: impl Fn(&mut About),
    ) -> Result<Option<About>> {
        for _ in 0..TRIES {
            let (data, stat) = match self.link.within(life.client.get_data(path)).await? {
                Ok(found) => found,
                Err(zk::Error::NoNode) => return Ok(None),
                Err(error) => return Err(trouble(&error)),
            };
            let before = About::read(&data, want);
            let mut after = before.clone();
            change(&mut after);
            let sent = self.now();
            match self.link.within(life.client.set_data(path, &after.write(), Some(stat.version))).await? {
                Ok(_) => {
                    life.heard(sent);
                    return Ok(Some(before));
                }
                Err(zk::Error::NoNode) => return Ok(None),
                Err(zk::Error::BadVersion) => {}
                Err(error) => return Err(trouble(&error)),
            }
        }
        Err(crate::trouble::later("the node is changed by others again and again"))
    }
}
