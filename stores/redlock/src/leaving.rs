//! How entries leave the nodes.

use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::store::{Leave, Left};
use leasehold_core::{Result, Retry, Token};

use crate::desk::{Desk, Reason, brief};
use crate::node::{AttemptId, How, Release, Used};
use crate::state::{Entry, Fate, Held, Stage};

impl Desk {
    /// Gives back what an entry holds, or stops waiting. Known as soon as a quorum has said it.
    pub(crate) async fn leave(self: Arc<Self>, leave: Leave) -> Result<Left> {
        let Some(entry) = self.entries.get(leave.id) else { return self.leave_strange(leave).await };
        // From here on nothing that comes late may stay.
        entry.set_fate(Fate::Gone);
        let mut stage = entry.stage.clone().lock_owned().await;
        let left = match &mut *stage {
            Stage::Held(held) => self.give_back(&entry, held, leave.used).await?,
            Stage::Waiting(_) | Stage::Fresh => self.stop_waiting(&entry).await?,
        };
        *stage = Stage::Fresh;
        self.entries.forget(&entry);
        Ok(left)
    }

    /// An entry that this session does not know: of another session, or one that is gone. It is looked for first.
    async fn leave_strange(self: &Arc<Self>, leave: Leave) -> Result<Left> {
        self.check_open()?;
        let (mut found, mut reasons) = (0, Vec::new());
        let looked = join_all(self.nodes.iter().map(async |node| {
            let look = node.look(&leave.name).await?;
            let owner = look.owner.map(|owner| owner.id).filter(|id| id.entry == leave.id);
            let waits = look.waiting.iter().any(|waiter| waiter.entry == leave.id);
            let (id, how) = match owner {
                Some(id) => (id, How::GiveBack),
                None if waits => (AttemptId { entry: leave.id, number: 0 }, How::Leave),
                None => return Ok(false),
            };
            let release = Release { name: leave.name.clone(), id, used: Used::Unknown, how };
            node.release(&release).await.map(|_| true)
        }));
        for (n, answer) in looked.await.into_iter().enumerate() {
            match answer {
                Ok(there) => found += usize::from(there),
                Err(e) => reasons.push((n, brief(&e))),
            }
        }
        let heard = self.nodes.len() - reasons.len();
        match heard {
            _ if found >= self.quorum.need => Ok(Left::Done),
            heard if heard >= self.quorum.need => Ok(Left::NotThere),
            heard => Err(self.no_quorum(heard, &reasons).on(&leave.name)),
        }
    }

    async fn give_back(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        held: &mut Held,
        used: Option<Token>,
    ) -> Result<Left> {
        let used = used.map_or(Used::Unknown, |token| Used::UpTo(token.0));
        let release = Release { name: entry.name.clone(), id: held.id, used, how: How::GiveBack };
        let (mut not_there, mut reasons) = (0, Vec::new());
        let told = self
            .tell_all(entry, release, |node, owned| {
                match owned {
                    true => {
                        held.released |= 1 << node;
                        entry.let_go(node, held.id.number);
                    }
                    // After a lost answer "not there" means that the first message did it.
                    false if held.released & 1 << node == 0 => not_there += 1,
                    false => {}
                }
                held.released.count_ones() as usize >= self.quorum.need || not_there > self.quorum.spare()
            })
            .await;
        match told {
            Ok(()) if not_there > self.quorum.spare() => Ok(Left::NotThere),
            Ok(()) => Ok(Left::Done),
            Err(mut why) => {
                reasons.append(&mut why);
                let counted = held.released.count_ones() as usize + not_there;
                Err(self.no_quorum(counted, &reasons).on(&entry.name))
            }
        }
    }

    async fn stop_waiting(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<Left> {
        let Some(id) = entry.last_attempt() else { return Ok(Left::Done) };
        let release = Release { name: entry.name.clone(), id, used: Used::None, how: How::Leave };
        let mut heard = 0;
        let told = self
            .tell_all(entry, release, |_, _| {
                heard += 1;
                heard >= self.quorum.need
            })
            .await;
        match told {
            Ok(()) => Ok(Left::Done),
            Err(reasons) => Err(self.no_quorum(heard, &reasons).on(&entry.name)),
        }
    }

    /// Says it to all nodes until `enough` is true; goes on in the background with those that have not heard it by then.
    async fn tell_all(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        release: Release,
        mut enough: impl FnMut(usize, bool) -> bool,
    ) -> Result<(), Vec<Reason>> {
        let release = Arc::new(release);
        let mut telling: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(|node| {
                let (node, release) = (node.clone(), release.clone());
                async move { (node.number, node.release(&release).await) }
            })
            .collect();
        let (mut failed, mut reasons, mut done) = (Vec::new(), Vec::new(), false);
        while let Some((node, answer)) = telling.next().await {
            match answer {
                Ok(owned) => done |= enough(node, owned),
                Err(e) => {
                    reasons.push((node, brief(&e)));
                    if e.retry_advice() != Retry::Never {
                        failed.push(node);
                    }
                }
            }
            if done {
                break;
            }
        }
        let (desk, entry, until) = (self.clone(), entry.clone(), self.now() + entry.lease.length());
        if !telling.is_empty() || !failed.is_empty() {
            tokio::spawn(async move {
                while let Some((node, answer)) = telling.next().await {
                    match answer {
                        Ok(true) => entry.let_go(node, release.id.number),
                        Ok(false) => {}
                        Err(_) => failed.push(node),
                    }
                }
                for node in failed {
                    tokio::spawn(desk.clone().settle(node, (*release).clone(), until));
                }
            });
        }
        if done { Ok(()) } else { Err(reasons) }
    }
}
