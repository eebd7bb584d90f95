//! Who is there besides the operation: a holder of the lock, and others that wait for it.

use std::time::Duration;

use leasehold_client::Client;
use leasehold_core::{Kind, Result, Want};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::drive::Stepped;
use super::{Boxed, Cell};
use crate::registry::{Hold, Stay, Who};

/// On which client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one that runs the operation.
    Local,
    /// Another one.
    Foreign,
}

/// Somebody who wants the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// On which client.
    pub side: Side,
    /// Alone or not.
    pub want: Want,
}

/// The same client's writer, its reader, another client's writer, its reader.
pub const LOCAL_WRITER: Member = Member { side: Side::Local, want: Want::Exclusive };
/// See [`LOCAL_WRITER`].
pub const LOCAL_READER: Member = Member { side: Side::Local, want: Want::Shared };
/// See [`LOCAL_WRITER`].
pub const FOREIGN_WRITER: Member = Member { side: Side::Foreign, want: Want::Exclusive };
/// See [`LOCAL_WRITER`].
pub const FOREIGN_READER: Member = Member { side: Side::Foreign, want: Want::Shared };

/// How long one that was let in stays: long enough that one that is let in wrongly finds it there.
const STAY: Duration = Duration::from_millis(1);

impl Member {
    fn client(self, cell: &Cell) -> &Client {
        match self.side {
            Side::Local => &cell.actor,
            Side::Foreign => &cell.other,
        }
    }

    fn who(self, cell: &Cell) -> Who {
        let label = format!("{:?} {}", self.side, self.want.as_str());
        Who { label, session: self.client(cell).session(), owner: None }
    }

    fn lock(self, cell: &Cell) -> Boxed<Result<Hold>> {
        let lock = self.client(cell).rwlock(&cell.name);
        Box::pin(async move {
            match self.want {
                Want::Exclusive => Ok(Hold::Write(lock.write().await?)),
                want => Ok(Hold::Guard(lock.read().await?, want)),
            }
        })
    }

    /// Takes the lock before anything else happens.
    pub async fn hold(self, cell: &Cell) -> Result<Stay> {
        Ok(cell.registry.enter(&self.who(cell), self.lock(cell).await?))
    }
}

/// Those that wait in tasks of their own.
#[derive(Default)]
pub struct Company {
    tasks: JoinSet<()>,
    arrived: bool,
}

impl Company {
    /// They come, unless they are here: in this order, each in the queue before the next one asks.
    pub async fn arrive(&mut self, cell: &Cell, members: &[Member]) {
        if std::mem::replace(&mut self.arrived, true) {
            return;
        }
        for member in members {
            let mut claim = Stepped::new(member.lock(cell));
            let first = claim.poll();
            if member.side == Side::Foreign && first.is_none() {
                self.shown(cell, *member).await;
            }
            let (cell, member) = (cell.clone(), *member);
            self.tasks.spawn(async move {
                let claim = match first {
                    Some(answer) => answer,
                    None => claim.finish().await,
                };
                visit(&cell, member, claim).await;
            });
        }
    }

    /// Waits until the store knows it, unless it was answered before.
    async fn shown(&self, cell: &Cell, member: Member) {
        let session = member.client(cell).session();
        for _ in 0..200 {
            let Ok(shown) = cell.observer.inspect(&cell.name).await else { return };
            if shown.holders.iter().chain(&shown.waiters).any(|entry| entry.session == session) {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// A holder gives the lock back.
    pub fn release(&mut self, cell: &Cell, stay: Stay) {
        let cell = cell.clone();
        self.tasks.spawn(async move { leave(&cell, "the holder", stay).await });
    }

    /// Waits until all were let in and have gone. Tells how many are missing if they take too long.
    pub async fn gone(&mut self, limit: Duration) -> Result<(), usize> {
        let all = async {
            while let Some(done) = self.tasks.join_next().await {
                if let Err(failed) = done {
                    std::panic::resume_unwind(failed.into_panic());
                }
            }
        };
        tokio::time::timeout(limit, all).await.map_err(|_| self.tasks.len())
    }
}

/// A claim of a member was answered: stays for a moment and goes. What fails because of an injected fault is tried again.
async fn visit(cell: &Cell, member: Member, mut claim: Result<Hold>) {
    let who = member.who(cell);
    loop {
        match claim {
            Ok(hold) => {
                let stay = cell.registry.enter(&who, hold);
                compare(cell, &stay).await;
                sleep(STAY).await;
                compare(cell, &stay).await;
                return leave(cell, &who.label, stay).await;
            }
            Err(error) if error.kind() == Kind::Unavailable && cell.faulty => {}
            Err(error) if error.kind() == Kind::Refused && cell.closes && member.side == Side::Local => {
                return;
            }
            Err(error) => {
                return cell.registry.wrong(&cell.name, format!("{} was not let in: {error}", who.label));
            }
        }
        claim = member.lock(cell).await;
    }
}

/// Compares a guard with what the store shows.
pub async fn compare(cell: &Cell, stay: &Stay) {
    if let Err(error) = stay.compare(&cell.observer).await {
        cell.registry.wrong(&cell.name, format!("the store can't be looked at: {error}"));
    }
}

/// Ends a stay and releases the guard.
pub async fn leave(cell: &Cell, who: &str, stay: Stay) {
    let was_held = stay.is_held();
    let hold = stay.leave().await;
    let released = hold.release().await;
    cell.registry.released(who, &released);
    let excused = cell.faulty || cell.closes || cell.revokes || !was_held;
    if let Err(error) = released
        && !excused
    {
        cell.registry.wrong(&cell.name, format!("{who} could not release it: {error}"));
    }
}
