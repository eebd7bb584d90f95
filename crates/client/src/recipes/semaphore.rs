//! A number of permits that many share.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Name, Result, Want};

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
    limit: u32,
}

impl Semaphore {
    pub(crate) fn new(client: &Client, name: Result<Name>, limit: u32) -> Self {
        Semaphore { engine: client.engine.clone(), claim: client.claim(name, Want::Shared), limit }
    }

    claim_options!();

    fn wanting(&self, n: u32) -> Claim {
        self.claim.wanting(Want::permits(n, self.limit))
    }

    /// Waits for `n` permits as long as it takes.
    pub async fn acquire(&self, n: u32) -> Result<Guard> {
        lock(&self.engine, &self.wanting(n)).await
    }

    /// Takes `n` permits if they can be had at once.
    pub async fn try_acquire(&self, n: u32) -> Result<Option<Guard>> {
        try_lock(&self.engine, &self.wanting(n)).await
    }

    /// Waits for `n` permits no longer than `time`.
    pub async fn acquire_within(&self, n: u32, time: Duration) -> Result<Option<Guard>> {
        lock_within(&self.engine, &self.wanting(n), time).await
    }

    /// The limit this handle believes in.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes the limit for all who hold or wait now, and for this handle. Others must ask with the new limit from now on.
    ///
    /// Raising it wakes those who wait; lowering it takes no permit away, but none is given until enough came back. It can't
    /// go below what somebody waits for. While nobody uses the semaphore there is nothing to change: the first to come
    /// says the limit.
    pub async fn set_limit(&mut self, limit: u32) -> Result<()> {
        Want::permits(1, limit)?;
        let name = self.claim.checked_name(&self.engine)?;
        let asked = self.engine.ask(|s| s.set_limit(name.clone(), limit)).await;
        asked.map_err(|e| self.engine.explain(e, name))?;
        self.limit = limit;
        Ok(())
    }
}
