//! One name cut into many locks.

use std::time::Duration;

use leasehold_core::name::stable_hash;
use leasehold_core::{Error, Kind, Name, Order, Owner, Result};

use super::{Multi, MultiGuard, Mutex, Part};
use crate::client::Client;
use crate::guard::Guard;

/// One name cut into `n` locks, of which a key picks one by a stable hash: the way to raise concurrency on one hot resource
/// without a lock per key.
///
/// Two keys may share a stripe, so never lock a second key while holding a first: use [`lock_all`](Striped::lock_all), or a
/// [`Multi`](crate::Multi) over names of your own. The number of stripes is part of the locks' names: all who share a resource
/// must use the same number, and a change of it needs a moment in which nobody holds.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// # let client = leasehold_client::Client::open(leasehold_memory::Memory::new()).await?;
/// let accounts = client.striped("accounts", 16);
/// let guard = accounts.lock("customer 42").await?;
/// assert_eq!(guard.name(), format!("accounts[{}/16]", accounts.stripe_of("customer 42")));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Striped {
    stripes: Result<Vec<Mutex>>,
    all: Option<Multi>,
    count: u32,
}

impl Striped {
    /// More stripes than this gain nothing and make [`lock_all`](Striped::lock_all) slow.
    pub const MOST: u32 = 4096;

    pub(crate) fn new(client: &Client, name: Result<Name>, count: u32) -> Self {
        let names = stripe_names(name, count);
        let all = names.as_ref().ok().map(|names| client.multi(names.iter().map(Part::mutex)));
        let stripes = names.map(|names| names.iter().map(|name| client.mutex(name)).collect());
        Striped { stripes, all, count }
    }

    fn with(mut self, one: impl Fn(Mutex) -> Mutex, all: impl FnOnce(Multi) -> Multi) -> Self {
        self.stripes = self.stripes.map(|stripes| stripes.into_iter().map(one).collect());
        self.all = self.all.map(all);
        self
    }

    /// A fixed lease: each stripe ends by itself after this time and is never renewed.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|m| m.lease(lease), |m| m.lease(lease))
    }

    /// In which order claims get in.
    pub fn order(self, order: Order) -> Self {
        self.with(|m| m.order(order), |m| m.order(order))
    }

    /// For whom the claims are made.
    pub fn owner(self, owner: Owner) -> Self {
        let same = owner.clone();
        self.with(|m| m.owner(owner.clone()), |m| m.owner(same))
    }

    /// Lets the owner take a stripe again that it holds.
    pub fn reentrant(self) -> Self {
        self.with(Mutex::reentrant, Multi::reentrant)
    }

    /// How long a store that is not available is asked again before a verb fails that has no limit of its own.
    pub fn retry_for(self, time: Duration) -> Self {
        self.with(|m| m.retry_for(time), |m| m.retry_for(time))
    }

    /// The stripe that a key falls on: the same on every machine and in every version.
    pub fn stripe_of(&self, key: impl AsRef<[u8]>) -> u32 {
        (stable_hash(key.as_ref()) % u128::from(self.count.max(1))) as u32
    }

    fn stripe(&self, key: impl AsRef<[u8]>) -> Result<&Mutex> {
        let stripes = self.stripes.as_ref().map_err(Error::clone)?;
        Ok(&stripes[self.stripe_of(key) as usize])
    }

    /// Waits for the stripe of `key` as long as it takes.
    pub async fn lock(&self, key: impl AsRef<[u8]>) -> Result<Guard> {
        self.stripe(key)?.lock().await
    }

    /// Takes the stripe of `key` if it is free.
    pub async fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<Option<Guard>> {
        self.stripe(key)?.try_lock().await
    }

    /// Waits for the stripe of `key` no longer than `time`. As [`Mutex::lock_within`](crate::Mutex::lock_within).
    pub async fn lock_within(&self, key: impl AsRef<[u8]>, time: Duration) -> Result<Option<Guard>> {
        self.stripe(key)?.lock_within(time).await
    }

    /// Waits for all stripes as long as it takes.
    pub async fn lock_all(&self) -> Result<MultiGuard> {
        self.everything()?.lock().await
    }

    /// Waits for all stripes no longer than `time`.
    pub async fn lock_all_within(&self, time: Duration) -> Result<Option<MultiGuard>> {
        self.everything()?.lock_within(time).await
    }

    fn everything(&self) -> Result<&Multi> {
        self.stripes.as_ref().map_err(Error::clone)?;
        self.all.as_ref().ok_or_else(|| Error::new(Kind::Invalid, "a striped lock needs at least 1 stripe"))
    }
}

fn stripe_names(name: Result<Name>, count: u32) -> Result<Vec<Name>> {
    let name = name?;
    if count == 0 || count > Striped::MOST {
        let what = format!("a striped lock can't have {count} stripes");
        return Err(Error::new(Kind::Invalid, what)
            .on(&name)
            .advice(format!("choose 1 to {}", Striped::MOST)));
    }
    (0..count).map(|at| Name::new(format!("{name}[{at}/{count}]"))).collect()
}
