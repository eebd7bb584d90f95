//! The election of a leader.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use leasehold_background::Background;
use leasehold_core::view::EntryView;
use leasehold_core::{Name, Result, Want};
use tokio::sync::mpsc;

use super::{lock, lock_within, try_lock};
use crate::claim::{Claim, claim_options};
use crate::client::Client;
use crate::engine::Engine;
use crate::guard::Guard;

/// How often an observer looks by itself: the net under lost messages.
const LOOK: Duration = Duration::from_secs(5);

/// An election: one of those that campaign leads, until it resigns, dies or loses the lock.
///
/// The candidates' [labels](crate::ClientBuilder::label) say who they are. An exclusive lock like any other, so a leader must
/// heed the same rules: stop when [`lost`](Guard::lost) resolves, and hand on the [`token`](Guard::token).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// # let client = leasehold_client::Client::builder().label("node 1").open(leasehold_memory::Memory::new()).await?;
/// let election = client.leader("scheduler");
/// let leadership = election.campaign().await?;
/// assert_eq!(election.current().await?.unwrap().label.as_str(), "node 1");
/// leadership.resign().await?;
/// assert!(election.current().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Leader {
    client: Client,
    engine: Arc<Engine>,
    claim: Claim,
}

impl Leader {
    pub(crate) fn new(client: &Client, name: Result<Name>) -> Self {
        Leader {
            client: client.clone(),
            engine: client.engine.clone(),
            claim: client.claim(name, Want::Exclusive),
        }
    }

    claim_options!();

    /// Waits to lead as long as it takes.
    pub async fn campaign(&self) -> Result<Leadership> {
        lock(&self.engine, &self.claim).await.map(Leadership)
    }

    /// Leads if nobody else does.
    pub async fn try_campaign(&self) -> Result<Option<Leadership>> {
        Ok(try_lock(&self.engine, &self.claim).await?.map(Leadership))
    }

    /// Waits to lead no longer than `time`. As [`Mutex::lock_within`](crate::Mutex::lock_within).
    pub async fn campaign_within(&self, time: Duration) -> Result<Option<Leadership>> {
        Ok(lock_within(&self.engine, &self.claim, time).await?.map(Leadership))
    }

    /// Who leads now.
    pub async fn current(&self) -> Result<Option<EntryView>> {
        let name = self.claim.checked_name(&self.engine)?;
        let snapshot = self.claim.ask(&self.engine, |s| s.inspect(name.clone())).await?;
        Ok(snapshot.holders.into_iter().next())
    }

    /// Who leads now, and every change of it. Changes that follow each other faster than they are read are merged: what is
    /// read last is true.
    pub async fn observe(&self) -> Result<Observe> {
        let name = self.claim.checked_name(&self.engine)?.clone();
        let prefix = name.as_str().to_owned();
        // Watch first, look then: no change falls between.
        let mut events = self.claim.ask(&self.engine, |s| s.watch(prefix.clone())).await?;
        let first = self.current().await?;
        let (tell, changes) = mpsc::channel(1);
        let this = self.clone();
        // Unknown after an error: whatever comes next is news then, also that no one leads.
        let mut told = Some(first.as_ref().map(|v| v.id));
        let task = self.client.engine.background.spawn(async move {
            if tell.send(Ok(first)).await.is_err() {
                return;
            }
            let mut closed = std::pin::pin!(this.engine.closed());
            loop {
                let concerns_us = tokio::select! {
                    event = std::future::poll_fn(|cx| events.as_mut().poll_next(cx)) => match event {
                        Some(Ok(event)) => event.name == name,
                        // Events were missed: look.
                        Some(Err(_)) => true,
                        None => return,
                    },
                    () = tokio::time::sleep(LOOK) => true,
                    () = tell.closed() => return,
                    () = &mut closed => return,
                };
                if !concerns_us {
                    continue;
                }
                let now = tokio::select! {
                    biased;
                    () = &mut closed => return,
                    now = this.current() => now,
                };
                let seen = now.as_ref().ok().map(|v| v.as_ref().map(|v| v.id));
                if seen.is_none() || seen != told {
                    told = seen;
                    if tell.send(now).await.is_err() {
                        return;
                    }
                }
            }
        });
        let background = self.client.engine.background;
        Ok(Observe { changes, task: task.abort_handle(), background })
    }
}

/// Leadership that is held: a [`Guard`] by another name.
#[derive(Debug)]
#[must_use = "leadership ends as soon as it is dropped"]
pub struct Leadership(Guard);

impl Leadership {
    /// Gives the lead to the next candidate and reports. As [`Guard::release`].
    pub async fn resign(self) -> Result<()> {
        self.0.release().await
    }

    /// As [`Guard::release_within`].
    pub async fn resign_within(self, time: Duration) -> Result<()> {
        self.0.release_within(time).await
    }

    /// The guard, for code that does not care that it is a leader's.
    pub fn into_guard(self) -> Guard {
        self.0
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

/// Who leads, and every change of it: `None` while nobody does. A [`Stream`]; [`next`](Observe::next) serves those who have no
/// stream combinators at hand.
pub struct Observe {
    changes: mpsc::Receiver<Result<Option<EntryView>>>,
    task: tokio::task::AbortHandle,
    background: Background,
}

impl Observe {
    /// The leader at first, then each change. An error is passed on and the stream goes on; `None` when the client is
    /// [closed](Client::close), and in a forked child.
    pub async fn next(&mut self) -> Option<Result<Option<EntryView>>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Observe {
    type Item = Result<Option<EntryView>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // No task runs in a forked child.
        if !self.background.is_alive() {
            return Poll::Ready(None);
        }
        self.changes.poll_recv(cx)
    }
}

impl Drop for Observe {
    fn drop(&mut self) {
        if self.background.is_alive() {
            self.task.abort();
        } else {
            // Closing it would touch what another thread of the parent may have locked at the fork.
            let (_, nothing) = mpsc::channel(1);
            std::mem::forget(std::mem::replace(&mut self.changes, nothing));
        }
    }
}
