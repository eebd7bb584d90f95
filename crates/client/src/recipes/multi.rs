//! Several locks as one.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::view::Lost;
use leasehold_core::{Error, IntoName, Kind, Name, Order, Owner, Result, Token, Want};

use crate::claim::Claim;
use crate::client::Client;
use crate::engine::{Engine, Patience};
use crate::guard::Guard;

/// One of the locks of a [`Multi`].
#[derive(Debug, Clone)]
pub struct Part {
    name: Result<Name>,
    want: Result<Want>,
}

impl Part {
    /// A mutex.
    pub fn mutex(name: impl IntoName) -> Self {
        Part { name: name.into_name(), want: Ok(Want::Exclusive) }
    }

    /// A read lock.
    pub fn read(name: impl IntoName) -> Self {
        Part { name: name.into_name(), want: Ok(Want::Shared) }
    }

    /// A write lock.
    pub fn write(name: impl IntoName) -> Self {
        Self::mutex(name)
    }

    /// `n` of the `limit` permits of a semaphore.
    pub fn permits(name: impl IntoName, n: u32, limit: u32) -> Self {
        Part { name: name.into_name(), want: Want::permits(n, limit) }
    }
}

/// Several locks as one: all or nothing, within one budget of time.
///
/// The parts are always taken in the order of their names, whatever order the caller gives, so that callers with overlapping sets
/// never wait for each other in a circle. (Nesting a multi-lock inside another lock gives that up, as always.) It costs one
/// trip to the store a part.
///
/// A name given twice is taken once, with the stronger want.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// # let client = leasehold_client::Client::open(leasehold_memory::Memory::new()).await?;
/// use leasehold_client::Part;
/// let transfer = client.multi([Part::mutex("account/7"), Part::mutex("account/3"), Part::read("rates")]);
/// let guard = transfer.lock().await?;
/// assert!(client.mutex("account/3").try_lock().await?.is_none());
/// guard.release().await
/// # }
/// ```
#[derive(Clone)]
pub struct Multi {
    engine: Arc<Engine>,
    parts: Result<Vec<(Name, Want)>>,
    lease: Option<Duration>,
    order: Order,
    owner: Option<Owner>,
    reentrant: bool,
}

impl Multi {
    pub(crate) fn new(client: &Client, parts: impl IntoIterator<Item = Part>) -> Self {
        let parts = ordered(parts.into_iter().map(|part| Ok((client.full_name(part.name?)?, part.want?))));
        Multi {
            engine: client.engine.clone(),
            parts,
            lease: None,
            order: Order::Queue,
            owner: None,
            reentrant: false,
        }
    }

    /// A fixed lease for each part: each ends by itself this long after it was taken.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// In which order claims get in, for each part.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// For whom the claims are made.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Lets the owner take parts again that it holds.
    pub fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// Waits for all parts as long as it takes.
    pub async fn lock(&self) -> Result<MultiGuard> {
        match self.acquire(Patience::Forever).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::new(Kind::Store, "the store said busy to a claim that waits")),
        }
    }

    /// Takes all parts if all can be had at once; else none.
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>> {
        self.acquire(Patience::Try).await
    }

    /// Waits for all parts no longer than `time` in all; if that is not enough, none is kept.
    pub async fn lock_within(&self, time: Duration) -> Result<Option<MultiGuard>> {
        match tokio::time::timeout(time, self.acquire(Patience::Forever)).await {
            Ok(done) => done,
            // What was taken so far went with the future.
            Err(_) => Ok(None),
        }
    }

    async fn acquire(&self, patience: Patience) -> Result<Option<MultiGuard>> {
        let parts = self.parts.clone()?;
        let mut guards = Vec::with_capacity(parts.len());
        for (name, want) in parts {
            let claim = Claim {
                name: Ok(name),
                want: Ok(want),
                lease: self.lease,
                order: self.order,
                owner: self.owner.clone(),
                reentrant: self.reentrant,
            };
            // On an error or a busy part the guards so far are dropped, and with them the locks.
            match self.engine.acquire(&claim, patience).await? {
                Some(guard) => guards.push(guard),
                None => return Ok(None),
            }
        }
        // The first part may have ended while the last one was waited for.
        if let Some(lost) = guards.iter().find(|g| !g.is_held()) {
            let what = format!("the lock {:?} ended while the others were waited for", lost.name());
            return Err(Error::new(Kind::Lost, what).advice("choose a longer lease, or none"));
        }
        Ok(Some(MultiGuard { guards }))
    }
}

/// One order for all callers, each name once.
fn ordered(parts: impl Iterator<Item = Result<(Name, Want)>>) -> Result<Vec<(Name, Want)>> {
    let mut ordered: BTreeMap<Name, Want> = BTreeMap::new();
    for part in parts {
        let (name, want) = part?;
        let want = match (ordered.get(&name).copied(), want) {
            (None, want) => want,
            (Some(Want::Shared), Want::Shared) => Want::Shared,
            (Some(Want::Shared | Want::Exclusive), Want::Shared | Want::Exclusive) => Want::Exclusive,
            (Some(Want::Permits { n: a, of }), Want::Permits { n: b, of: same }) if of == same => {
                Want::permits(a.saturating_add(b), of)?
            }
            _ => {
                let what = "a multi-lock names the same lock in two ways that don't go together";
                return Err(Error::new(Kind::Invalid, what)
                    .on(&name)
                    .advice("give each name one kind and one limit"));
            }
        };
        ordered.insert(name, want);
    }
    if ordered.is_empty() {
        return Err(Error::new(Kind::Invalid, "a multi-lock needs at least one part"));
    }
    Ok(ordered.into_iter().collect())
}

/// Several locks that are held as one. Lost as soon as one of them is.
#[derive(Debug)]
#[must_use = "the locks are released as soon as their guard is dropped"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The guards of the parts, in the order of their names.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The token of each part, in the order of their names.
    pub fn tokens(&self) -> Vec<(Name, Token)> {
        self.guards.iter().filter_map(|g| Some((Name::new(g.name()).ok()?, g.token()))).collect()
    }

    /// Whether all parts are certainly held now.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// How long all parts are certainly held if nothing renews them; `None` if they end only with the session.
    pub fn remaining(&self) -> Option<Duration> {
        self.guards.iter().filter_map(Guard::remaining).min()
    }

    /// Resolves when the first of the parts is lost.
    pub async fn lost(&self) -> Lost {
        first_of(self.guards.iter().map(Guard::lost)).await
    }

    /// Whether somebody asked for one of the parts back.
    pub fn is_release_requested(&self) -> bool {
        self.guards.iter().any(Guard::is_release_requested)
    }

    /// Resolves when somebody has asked for one of the parts back. As [`Guard::release_requested`].
    pub async fn release_requested(&self) {
        first_of(self.guards.iter().map(Guard::release_requested)).await;
    }

    /// As [`Guard::protect`], for all parts.
    pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        tokio::select! {
            biased;
            why = self.lost() => Err(why),
            output = future => Ok(output),
        }
    }

    /// Gives all parts back, the last one taken first. Every part is tried, whatever happens to the others; the first error is
    /// reported.
    pub async fn release(mut self) -> Result<()> {
        let mut result = Ok(());
        while let Some(guard) = self.guards.pop() {
            result = result.and(guard.release().await);
        }
        result
    }
}

/// The output of the first of these futures that ends.
async fn first_of<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> T {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        let first = futures.iter_mut().find_map(|future| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        });
        first.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
