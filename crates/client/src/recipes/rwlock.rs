//! Many readers or one writer.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, Name, Result, Want};

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

    /// Takes a read lock if it can be had at once. As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        try_lock(&self.engine, &self.claim).await
    }

    /// Waits for a read lock no longer than `time`. As [`Mutex::lock_within`](crate::Mutex::lock_within).
    pub async fn read_within(&self, time: Duration) -> Result<Option<Guard>> {
        lock_within(&self.engine, &self.claim, time).await
    }

    /// Waits for the write lock as long as it takes.
    pub async fn write(&self) -> Result<WriteGuard> {
        lock(&self.engine, &self.writing()).await.map(WriteGuard)
    }

    /// Takes the write lock if it can be had at once. As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        Ok(try_lock(&self.engine, &self.writing()).await?.map(WriteGuard))
    }

    /// Waits for the write lock no longer than `time`. As [`Mutex::lock_within`](crate::Mutex::lock_within).
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
    /// other writer can come in between. Tried again for as long as the client tries
    /// ([`retry_for`](crate::ClientBuilder::retry_for)) if the store does not answer.
    ///
    /// An error has the lock inside: as a write lock if it is certain that nothing has changed, else as a read lock (see
    /// [`DowngradeError`]). With `?` it turns into an [`Error`] and the lock is given back.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future gives the lock back: the request goes on by itself, and the lock leaves this client, whatever comes of
    /// it. A task of this client that waits to write queues at the store again.
    pub async fn downgrade(self) -> Result<Guard, DowngradeError> {
        self.downgrade_or_keep(None).await
    }

    /// As [`downgrade`](WriteGuard::downgrade), but tries no longer than `time`.
    pub async fn downgrade_within(self, time: Duration) -> Result<Guard, DowngradeError> {
        self.downgrade_or_keep(Some(time)).await
    }

    async fn downgrade_or_keep(self, limit: Option<Duration>) -> Result<Guard, DowngradeError> {
        let failed = |(error, guard)| DowngradeError(Box::new(Kept { error, guard }));
        self.0.downgrade(limit).await.map_err(failed)
    }

    /// The guard, for code that does not care that it is a writer's.
    pub fn into_guard(self) -> Guard {
        self.0
    }

    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }

    /// As [`Guard::release_within`].
    pub async fn release_within(self, time: Duration) -> Result<()> {
        self.0.release_within(time).await
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

/// A [downgrade](WriteGuard::downgrade) that failed, with the lock, which is held as before.
///
/// - Nothing has changed: the lock is held twice by a re-entrant owner, the store has no shared locks, or it certainly did not
///   get the request. Then the lock is a write lock, [`into_writer`](DowngradeError::into_writer) gives it, and its
///   [`want`](Guard::want) is [`Exclusive`](Want::Exclusive).
/// - The store did not answer in time, so it may have let other readers in. Then the lock is good to read with, its `want` is
///   [`Shared`](Want::Shared), and it leaves this client when its guard is dropped.
/// - The lock was lost before. Then the guard says so.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// # let client = leasehold_client::Client::open(leasehold_memory::Memory::new()).await?;
/// # use leasehold_client::Owner;
/// let config = client.rwlock("config").owner(Owner::new()).reentrant();
/// let (outer, inner) = (config.write().await?, config.write().await?);
/// match outer.downgrade().await {
///     Ok(_reader) => unreachable!("it is held twice"),
///     Err(failed) => match failed.into_writer() {
///         Ok(writer) => assert!(writer.is_held()), // as if nothing had been asked
///         Err(reader) => println!("no more writing: {reader:?}"),
///     },
/// }
/// # drop(inner); Ok(()) }
/// ```
pub struct DowngradeError(Box<Kept>);

struct Kept {
    error: Error,
    guard: Guard,
}

impl DowngradeError {
    /// What went wrong.
    pub fn error(&self) -> &Error {
        &self.0.error
    }

    /// The lock. Its [`want`](Guard::want) is `Exclusive` if it is a write lock or was lost as one, else `Shared`.
    pub fn guard(&self) -> &Guard {
        &self.0.guard
    }

    /// Whether the lock is certainly a write lock still.
    pub fn is_writer(&self) -> bool {
        self.0.guard.want() == Want::Exclusive && self.0.guard.is_held()
    }

    /// The lock: good to read with, whatever came of the downgrade.
    pub fn into_guard(self) -> Guard {
        self.0.guard
    }

    /// The write lock if it is certainly one still, else what is good to read with.
    #[allow(clippy::result_large_err)] // Both variants are a guard.
    pub fn into_writer(self) -> Result<WriteGuard, Guard> {
        if self.is_writer() { Ok(WriteGuard(self.0.guard)) } else { Err(self.0.guard) }
    }

    /// What went wrong, and the lock.
    pub fn into_parts(self) -> (Error, Guard) {
        (self.0.error, self.0.guard)
    }
}

impl fmt::Display for DowngradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what =
            if self.is_writer() { "the write lock was not" } else { "the write lock may not have been" };
        write!(f, "{what} downgraded: {}", self.0.error)
    }
}

impl fmt::Debug for DowngradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DowngradeError").field("error", &self.0.error).field("guard", &self.0.guard).finish()
    }
}

impl std::error::Error for DowngradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.error)
    }
}

/// Gives the lock back.
impl From<DowngradeError> for Error {
    fn from(failed: DowngradeError) -> Error {
        failed.into_parts().0
    }
}
