//! A number of permits that many share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::store::{Pending, Session};
use leasehold_core::{Error, Kind, Name, Result, Want};

use super::{lock, lock_within, try_lock};
use crate::claim::{Claim, claim_options};
use crate::client::Client;
use crate::engine::Engine;
use crate::guard::Guard;

/// A number of permits that many share, in the order in which they came: those who want many are not starved by those who want
/// few.
///
/// All who use a name must agree on the limit while anybody uses it; a claim with another limit is refused with an error of kind
/// [`Mismatch`](leasehold_core::Kind::Mismatch). [`set_limit`](Semaphore::set_limit) changes it for all.
///
/// Every claim is an entry of its own at the store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// # let client = leasehold_client::Client::open(leasehold_memory::Memory::new()).await?;
/// let uploads = client.semaphore("uploads", 3);
/// let two = uploads.acquire(2).await?;
/// assert!(uploads.try_acquire(2).await?.is_none());
/// assert!(uploads.try_acquire(1).await?.is_some());
/// # drop(two); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    engine: Arc<Engine>,
    claim: Claim,
    limit: Limit,
}

/// The limit that a handle believes in. Each clone has its own.
struct Limit(Arc<AtomicU32>);

impl Limit {
    fn new(limit: u32) -> Self {
        Limit(Arc::new(AtomicU32::new(limit)))
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Clone for Limit {
    fn clone(&self) -> Self {
        Limit::new(self.get())
    }
}

impl Semaphore {
    pub(crate) fn new(client: &Client, name: Result<Name>, limit: u32) -> Self {
        Semaphore {
            engine: client.engine.clone(),
            claim: client.claim(name, Want::Shared),
            limit: Limit::new(limit),
        }
    }

    claim_options!();

    fn wanting(&self, n: u32) -> Claim {
        self.claim.wanting(Want::permits(n, self.limit.get()))
    }

    /// Waits for `n` permits as long as it takes.
    pub async fn acquire(&self, n: u32) -> Result<Guard> {
        lock(&self.engine, &self.wanting(n)).await
    }

    /// Takes `n` permits if they can be had at once.
    pub async fn try_acquire(&self, n: u32) -> Result<Option<Guard>> {
        try_lock(&self.engine, &self.wanting(n)).await
    }

    /// Waits for `n` permits no longer than `time`. As [`Mutex::lock_within`](crate::Mutex::lock_within).
    pub async fn acquire_within(&self, n: u32, time: Duration) -> Result<Option<Guard>> {
        lock_within(&self.engine, &self.wanting(n), time).await
    }

    /// The limit this handle believes in.
    pub fn limit(&self) -> u32 {
        self.limit.get()
    }

    /// Changes the limit for all who hold or wait now, and for this handle. Others must ask with the new limit from now on.
    ///
    /// Raising it wakes those who wait; lowering it takes no permit away, but none is given until enough came back. It can't
    /// go below what somebody waits for. While nobody uses the semaphore there is nothing to change: the first to come
    /// says the limit.
    ///
    /// After an error of kind [`Unavailable`](leasehold_core::Kind::Unavailable) the limit may have been changed or not: set it
    /// again.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future does not stop the change; the handle learns of it when the store has answered. A change that is made
    /// meanwhile may come before it: after a dropped one, the limit is certain when a later one was made and nothing is on its way
    /// any more, so await each.
    pub async fn set_limit(&mut self, limit: u32) -> Result<()> {
        Want::permits(1, limit)?;
        let name = self.claim.checked_name(&self.engine)?;
        self.engine.check_open()?;
        let (engine, its, believed) = (self.engine.clone(), name.clone(), self.limit.0.clone());
        let patience = self.claim.retry_for.unwrap_or(engine.table.rules.retry_for);
        let changing = async move {
            let change = |session: Arc<dyn Session>| -> Pending<()> {
                let (name, believed) = (its.clone(), believed.clone());
                Box::pin(async move {
                    session.set_limit(name, limit).await?;
                    believed.store(limit, Ordering::SeqCst);
                    Ok(())
                })
            };
            engine.ask_for(patience, change).await
        };
        let gone = |_| Err(Error::new(Kind::Unavailable, "the change of the limit panicked"));
        let asked = self.engine.background.spawn(changing).await.unwrap_or_else(gone);
        asked.map_err(|e| self.engine.explain(e, name))
    }
}
