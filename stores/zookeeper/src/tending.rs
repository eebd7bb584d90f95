//! Two tasks of a session: one tends to its entries, one follows its ZooKeeper sessions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::{EntryId, Tick};

use crate::session::{Desk, Stage};

/// A hold that lasts longer than this gets a watch on its own node. Most don't, and the watch would cost them a request.
pub(crate) const ARM_AFTER: Duration = Duration::from_millis(20);

/// Timers stand still while the machine sleeps; the clock of leases does not.
const LONGEST_NAP: Duration = Duration::from_secs(1);

impl Desk {
    /// Ends what has ended, watches what is held for long, and sees to it that the server hears from us.
    pub(crate) async fn tend(self: Arc<Self>) {
        loop {
            let now = self.now();
            let (due, next) = self.book().due_by(now);
            for id in due {
                self.look(id, now);
            }
            let next = next.min(self.next_patrol(now)).min(now + LONGEST_NAP);
            self.asleep_until.store(next.0, Ordering::SeqCst);
            // What came while we looked is found now, or wakes us.
            let next = next.min(self.book().due_by(now).1);
            let nap = next.since(self.now()).max(Duration::from_millis(1));
            let _ = tokio::time::timeout(nap, self.hurry.notified()).await;
        }
    }

    fn look(self: &Arc<Self>, id: EntryId, now: Tick) {
        let mut book = self.book();
        let Some(entry) = book.get(id) else { return };
        if entry.ends <= now {
            // Not again while it is being ended.
            book.set_due(id, Tick::NEVER);
            drop(book);
            let desk = self.clone();
            tokio::spawn(async move { desk.expire(id).await });
            return;
        }
        let (ends, unwatched) = (entry.ends, entry.task.is_none());
        let held = match (&entry.stage, &entry.life) {
            (Stage::Held { seat, .. }, Some(life)) if unwatched => {
                Some((seat.clone(), life.clone(), entry.name.clone()))
            }
            _ => None,
        };
        if let Some((seat, life, name)) = held {
            let task = crate::wake::hold(self.clone(), life, id, name, seat);
            book.change(id, |entry| entry.task = Some(task));
        }
        book.set_due(id, ends);
    }

    /// While anything is held or waited for, the leader hears from us often enough that a grant is certain at once. Sends it if
    /// it is time, and says when the next is.
    fn next_patrol(self: &Arc<Self>, now: Tick) -> Tick {
        let Some(life) = self.link.now().filter(|life| life.is_up()) else { return Tick::NEVER };
        if self.book().is_empty() {
            return Tick::NEVER;
        }
        let due = life.last_heard() + life.patrol();
        if due > now {
            return due;
        }
        let again = now + life.patrol() / 2;
        if !life.patrolling.swap(true, Ordering::SeqCst) {
            let desk = self.clone();
            tokio::spawn(async move {
                let _ = desk.link.patrol(&life).await;
                life.patrolling.store(false, Ordering::SeqCst);
            });
        }
        again
    }

    /// When a ZooKeeper session has ended, the client is told once, and a new one begins.
    pub(crate) async fn follow_sessions(self: Arc<Self>) {
        loop {
            if let Some(life) = self.link.now() {
                self.link.until_ended(&life, &self.hurry).await;
                tracing::debug!(target: "leasehold", session = %life.client.session_id(), "the ZooKeeper session ended");
            }
            if self.is_closed() {
                return;
            }
            // In this order: whoever is told asks again, and must find the old session gone.
            self.link.ended();
            self.session_gone();
            self.link.begin_again().await;
        }
    }
}
