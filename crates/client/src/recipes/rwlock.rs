//! Many readers or one writer.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Name, Result, Want};

use super::{lock, lock_within, try_lock};
use crate::claim::{Claim, claim_options};
use crate::client::Client;
use crate::engine::Engine;
use crate::guard::Guard;

/// A lock that many readers or one writer hold. A writer that waits holds back the readers that come after it, so neither
/// side starves.
///
/// A reader can't become a writer: asking for both under one owner is an error, because two readers doing so would wait for
/// each other. A writer can become a reader with [`downgrade`](WriteGuard::downgrade).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// # let client = leasehold_client::Client::open(leasehold_memory::Memory::new()).await?;
/// let config = client.rwlock("config");
/// let (a, b) = (config.read().await?, config.read().await?);
/// assert!(config.try_write().await?.is_none());
/// drop((a, b));
/// let writer = config.write().await?;
/// let reader = writer.downgrade().await?; // others may read now, nobody wrote in between
/// # drop(reader); Ok(()) }
/// ```
#[derive(Clone)]
pub struct RwLock {
    engine: Arc<Engine>,
    claim: Claim,
}

impl RwLock {
    pub(crate) fn new(client: &Client, name: Result<Name>) -> Self {
        RwLock { engine: client.engine.clone(), claim: client.claim(name, Want::Shared) }
    }

    claim_options!();

    fn writing(&self) -> Claim {
        self.claim.wanting(Ok(Want::Exclusive))
    }

    /// Waits for a read lock as long as it takes.
    pub async fn read(&self) -> Result<Guard> {
        lock(&self.engine, &self.claim).await
    }

    /// Takes a read lock if it can be had at once.
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        try_lock(&self.engine, &self.claim).await
    }

    /// Waits for a read lock no longer than `time`.
    pub async fn read_within(&self, time: Duration) -> Result<Option<Guard>> {
        lock_within(&self.engine, &self.claim, time).await
    }

    /// Waits for the write lock as long as it takes.
    pub async fn write(&self) -> Result<WriteGuard> {
        lock(&self.engine, &self.writing()).await.map(WriteGuard)
    }

    /// Takes the write lock if it can be had at once.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        Ok(try_lock(&self.engine, &self.writing()).await?.map(WriteGuard))
    }

    /// Waits for the write lock no longer than `time`.
    pub async fn write_within(&self, time: Duration) -> Result<Option<WriteGuard>> {
        Ok(lock_within(&self.engine, &self.writing(), time).await?.map(WriteGuard))
    }
}

/// A write lock that is held: a [`Guard`] that can become a reader's.
#[derive(Debug)]
#[must_use = "a lock is released as soon as its guard is dropped"]
pub struct WriteGuard(Guard);

impl WriteGuard {
    /// Turns the write lock into a read lock without letting go of it: the place in the queue and the token stay, and no
    /// other writer can come in between. On an error the lock is given back.
    pub async fn downgrade(self) -> Result<Guard> {
        self.0.downgrade().await
    }

    /// The guard, for code that does not care that it is a writer's.
    pub fn into_guard(self) -> Guard {
        self.0
    }

    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
