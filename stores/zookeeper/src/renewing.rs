//! How entries show that their owner is alive, and ask how they stand.
//!
//! ZooKeeper keeps nodes for as long as the session lives, and watches tell what happens to them. So a renewal is an answer
//! from the book, and one sign of life for all of them.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::store::{Joined, Renewal, Renewed, Waiting};
use leasehold_core::{Error, Kind, Result, Tick, TokenBlock};

use crate::path::Node;
use crate::session::{Desk, Entry, Stage};
use crate::trouble::later;

impl Desk {
    pub(crate) async fn renew_all(self: &Arc<Self>, batch: Vec<Renewal>) -> Vec<Result<Renewed>> {
        let asked = self.now();
        let alive = if self.all_have_news(&batch, asked) { Ok(()) } else { self.sign_of_life().await };
        join_all(batch.iter().map(|line| self.renew(line, asked, alive.clone()))).await
    }

    /// Whether all of them hold, and can be told of a sign of life that came since they were last. There is one every twentieth of a
    /// session while anything is held.
    fn all_have_news(&self, batch: &[Renewal], asked: Tick) -> bool {
        let book = self.book();
        let holds = |entry: &Entry| matches!(entry.stage, Stage::Held { .. }) && entry.has_news(asked);
        batch.iter().all(|line| book.get(line.id).is_some_and(holds))
    }

    async fn sign_of_life(&self) -> Result<()> {
        let life = self.link.up().await?;
        self.link.fresh(&life).await
    }

    async fn renew(self: &Arc<Self>, line: &Renewal, asked: Tick, alive: Result<()>) -> Result<Renewed> {
        let known = self.book().get(line.id).map(|entry| (entry.stage.clone(), entry.has_news(asked)));
        let (stage, has_news) = known.map_or((None, false), |(stage, news)| (Some(stage), news));
        match stage {
            None | Some(Stage::Leaving { .. }) => Ok(Renewed::Gone(Entry::unknown(line.token))),
            Some(Stage::Held { .. }) => {
                // In an outage it is told at least of the last sign of life before it.
                if !has_news {
                    alive?;
                }
                self.renew_held(line, asked).await
            }
            Some(Stage::Waiting { place, .. }) => {
                alive?;
                self.renew_place(line.id, asked);
                Ok(Renewed::Waiting(Waiting { place: Some(place), poll_in: None }))
            }
            Some(Stage::Barging { .. } | Stage::Asked { .. }) => {
                alive?;
                self.try_again(line).await
            }
        }
    }

    /// One that barges tries again; so does one whose last try was not answered.
    async fn try_again(self: &Arc<Self>, line: &Renewal) -> Result<Renewed> {
        let ask = self.book().get(line.id).map(|entry| entry.ask(line.id));
        let Some(ask) = ask else { return Ok(Renewed::Gone(Entry::unknown(line.token))) };
        match self.join(ask).await? {
            Joined::Held(grant) => Ok(Renewed::Held(grant)),
            Joined::Waiting(waiting) => Ok(Renewed::Waiting(waiting)),
            Joined::Busy => Ok(Renewed::Gone(Entry::unknown(line.token))),
        }
    }

    async fn renew_held(&self, line: &Renewal, asked: Tick) -> Result<Renewed> {
        let contended = if line.more_tokens { self.is_contended(line).await? } else { false };
        let mut book = self.book();
        let renewed = book.change(line.id, |entry| {
            entry.asked = asked;
            entry.ends = entry.renewed_end(asked);
            let (contended, tokens) = match line.token.filter(|_| line.more_tokens) {
                None => (contended, None),
                Some(highest) => match entry.more_tokens(highest) {
                    Some(rest) => (contended, Some(rest)),
                    // Used up. Higher ones come only with a new node, behind those that wait: the client gives the lock back
                    // and queues again, as it does when others wait. It never uses this one.
                    None => {
                        let next = leasehold_core::Token(highest.0 + 1);
                        (true, Some(TokenBlock { first: next, len: 1 }))
                    }
                },
            };
            let armed = entry.task.is_some();
            (entry.grant(asked, contended, tokens), entry.ends, armed)
        });
        let Some((grant, ends, armed)) = renewed else {
            return Ok(Renewed::Gone(Entry::unknown(line.token)));
        };
        // One that is not watched yet is looked at for that first.
        if armed {
            book.set_due(line.id, ends);
        }
        drop(book);
        self.look_by(ends);
        grant.map(Renewed::Held)
    }

    /// Whether others wait behind an entry.
    async fn is_contended(&self, line: &Renewal) -> Result<bool> {
        let life = self.link.up().await?;
        let seen = self.look_at(&life, &line.name, leasehold_core::Want::Exclusive).await?;
        let held = |node: &Node| node.id == line.id && !node.barges;
        match seen.line.queue.iter().position(held) {
            Some(at) => Ok(seen.line.others_behind(at)),
            None => Err(Error::new(Kind::Unavailable, "the entry's node is not there any more")
                .retry(later("").retry_advice())),
        }
    }
}
