//! One holder at a time.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Name, Result, Want};

use super::{lock, lock_within, try_lock};
use crate::claim::{Claim, claim_options};
use crate::client::Client;
use crate::engine::Engine;
use crate::guard::Guard;

/// A lock that one holds at a time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// # let client = leasehold_client::Client::open(leasehold_memory::Memory::new()).await?;
/// let orders = client.mutex("orders");
/// let guard = orders.lock().await?;
/// assert!(orders.try_lock().await?.is_none()); // busy is a value, not an error
/// guard.release().await?;
/// assert!(orders.try_lock().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Mutex {
    engine: Arc<Engine>,
    claim: Claim,
}

impl Mutex {
    pub(crate) fn new(client: &Client, name: Result<Name>) -> Self {
        Mutex { engine: client.engine.clone(), claim: client.claim(name, Want::Exclusive) }
    }

    claim_options!();

    /// Waits for the lock as long as it takes. An error means that it can't be had: the store is out of reach for longer than
    /// the client's patience, or the claim is not a possible one.
    pub async fn lock(&self) -> Result<Guard> {
        lock(&self.engine, &self.claim).await
    }

    /// Takes the lock if it is free, and leaves nothing behind if it is not. An error if the store gives no answer within one
    /// [time-out](crate::ClientBuilder::try_for). The store is not asked where another task of this client has it.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        try_lock(&self.engine, &self.claim).await
    }

    /// Waits for the lock no longer than `time`, and for an answer that is on its way then no longer than 100 ms (a
    /// [time-out](crate::ClientBuilder::try_for), if it [spins](leasehold_core::Order::Spin)). `None` if another one
    /// has it then; an error if the store is not available then.
    ///
    /// `None` is what the store said last. A claim that waits asks again every third of the client's
    /// [lease](crate::ClientBuilder::default_lease), and is behind another one until then: an outage that began since
    /// is not noticed.
    pub async fn lock_within(&self, time: Duration) -> Result<Option<Guard>> {
        lock_within(&self.engine, &self.claim, time).await
    }
}
