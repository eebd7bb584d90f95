//! Several locks as one.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use leasehold_core::view::Lost;
use leasehold_core::{Error, IntoName, Kind, Name, Order, Owner, Result, Retry, Token, Want};

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
/// A claim queues for one part and holds nothing meanwhile. When it has that part it takes the others. If one of them
/// stays busy for longer than a pause, the claim gives everything back and queues for the busy one first. So parts are
/// held while another one is waited for, but for no longer than the pause: 100 ms, doubled with every new round, 10 s
/// at most (and the time that the store takes to answer). In the end that gets a set whose locks are all in constant
/// demand, if no claim waits longer than 10 s in their queues. A multi-lock is therefore not served strictly in the
/// order of any one queue.
///
/// Callers with overlapping sets never wait for each other in a circle, whatever order they name the parts in: one that holds a
/// part waits only for names that come after it. (Nesting a multi-lock inside another lock gives that up, as always.) A set that
/// is free costs one trip to the store a part.
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
    retry_for: Option<Duration>,
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
            retry_for: client.retry_for,
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

    /// How long a store that is not available is asked again before a verb fails that has no limit of its own.
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.retry_for = Some(time);
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

    /// Waits for all parts no longer than `time` in all; if that is not enough, none is kept. No time at all is one
    /// try. An answer that is on its way then is waited for as long as one request to the store may take, if the store
    /// has answered for another part. `None` is what the store said last, as in
    /// [`Mutex::lock_within`](crate::Mutex::lock_within).
    pub async fn lock_within(&self, time: Duration) -> Result<Option<MultiGuard>> {
        self.acquire(Patience::Within(time)).await
    }

    /// Round after round: wait for one part, holding nothing, then take the others. What was busy is waited for first in the next
    /// round.
    async fn acquire(&self, patience: Patience) -> Result<Option<MultiGuard>> {
        let parts = self.parts.clone()?;
        let time = Time {
            began: Instant::now(),
            limit: match patience {
                Patience::Try => Some(Duration::ZERO),
                Patience::Within(time) => Some(time),
                Patience::Forever => None,
            },
            try_for: match patience {
                Patience::Within(time) if !time.is_zero() => self.engine.table.rules.try_for,
                _ => self.retry_for.unwrap_or(self.engine.table.rules.try_for),
            },
        };
        let (mut first, mut pause) = (0, FIRST_PAUSE);
        let mut answered = false;
        loop {
            match self.round(&parts, first, pause, &time, answered).await? {
                Round::All(guards) => return all_held(guards),
                Round::Missed(_, why) if time.is_over() => return why.map_or(Ok(None), Err),
                // A part before the one that was waited for is best had by beginning with the very first: from there on every
                // other one can be waited for.
                Round::Missed(at, why) => {
                    answered = why.is_none();
                    first = if at > first { at } else { 0 };
                    pause = longer(pause);
                }
            }
        }
    }

    /// Waits for one part as long as there is time, then takes all others. A part whose name comes after all that are held is waited for
    /// during `pause`: that can't make a circle, as everybody who holds something waits for later names only. For an earlier
    /// one there is no waiting. `answered` tells whether the store has answered the round before.
    async fn round(
        &self,
        parts: &[(Name, Want)],
        first: usize,
        pause: Duration,
        time: &Time,
        answered: bool,
    ) -> Result<Round> {
        let patience = time.left().map_or(Patience::Forever, Patience::Within);
        let Some(guard) = self.part(&parts[first], patience, time, answered).await? else {
            return Ok(Round::Missed(first, None));
        };
        let mut guards = BTreeMap::from([(first, guard)]);
        let until = Instant::now() + time.left().map_or(pause, |left| left.min(pause));
        for (at, part) in parts.iter().enumerate().filter(|(at, _)| *at != first) {
            let later = guards.keys().all(|held| *held < at);
            let wait = if later { until.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
            // Where a part is missed the guards so far are dropped, and with them the locks.
            match self.part(part, Patience::Within(wait), time, time.limit.is_some()).await {
                Ok(Some(guard)) => drop(guards.insert(at, guard)),
                Ok(None) => return Ok(Round::Missed(at, None)),
                Err(error) if error.retry_advice() == Retry::Never => return Err(error),
                // A store that did not answer in a moment has all the time there is in the next round.
                Err(error) => return Ok(Round::Missed(at, Some(error))),
            }
        }
        Ok(Round::All(guards.into_values().collect()))
    }

    async fn part(
        &self,
        part: &(Name, Want),
        patience: Patience,
        time: &Time,
        answered: bool,
    ) -> Result<Option<Guard>> {
        let claim = Claim {
            name: Ok(part.0.clone()),
            want: Ok(part.1),
            lease: self.lease,
            order: self.order,
            owner: self.owner.clone(),
            reentrant: self.reentrant,
            retry_for: match patience {
                Patience::Try | Patience::Within(Duration::ZERO) => Some(time.for_a_try()),
                _ => self.retry_for,
            },
            answered,
        };
        self.engine.acquire(&claim, patience).await
    }
}

/// For how long the parts that were had are held in the first round while others are waited for.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// For how long in any round. A set whose parts are all in demand is had when their queues move within a pause, so it must grow; what is held
/// for nothing is lost to all others, so it must end.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The pause of the next round.
fn longer(pause: Duration) -> Duration {
    pause.saturating_mul(2).min(MAX_PAUSE)
}

/// How long a multi-lock waits in all.
struct Time {
    began: Instant,
    /// Zero for a try, which has the time of one that the store may need to answer.
    limit: Option<Duration>,
    /// How long one request may take.
    try_for: Duration,
}

impl Time {
    fn left(&self) -> Option<Duration> {
        self.limit.map(|limit| limit.saturating_sub(self.began.elapsed()))
    }

    fn is_over(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    /// A try has the time of a request, also where the limit ends meanwhile; all that are made after the limit have it
    /// together.
    fn for_a_try(&self) -> Duration {
        let all = self.limit.map_or(Duration::MAX, |limit| limit.saturating_add(self.try_for));
        self.try_for.min(all.saturating_sub(self.began.elapsed()))
    }
}

/// What came of one round.
enum Round {
    All(Vec<Guard>),
    /// This part could not be had, because another one has it or for this reason, and nothing is held.
    Missed(usize, Option<Error>),
}

/// The first part may have ended while the last one was waited for.
fn all_held(guards: Vec<Guard>) -> Result<Option<MultiGuard>> {
    if let Some(lost) = guards.iter().find(|g| !g.is_held()) {
        let what = format!("the lock {:?} ended while the others were waited for", lost.name());
        return Err(Error::new(Kind::Lost, what).advice("choose a longer lease, or none"));
    }
    Ok(Some(MultiGuard { guards }))
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

    /// How much is left of the fixed lease that ends first; `None` if the leases are kept. As [`Guard::lease_left`].
    pub fn lease_left(&self) -> Option<Duration> {
        self.guards.iter().filter_map(Guard::lease_left).min()
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
    pub async fn release(self) -> Result<()> {
        let patience = self.guards.first().map_or(Duration::ZERO, Guard::patience);
        self.release_within(patience).await
    }

    /// As [`release`](MultiGuard::release), but waits for the store no longer than `time` in all.
    pub async fn release_within(mut self, time: Duration) -> Result<()> {
        let began = Instant::now();
        let mut result = Ok(());
        while let Some(guard) = self.guards.pop() {
            result = result.and(guard.release_within(time.saturating_sub(began.elapsed())).await);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_from_100_ms_to_10_s() {
        let pauses: Vec<_> =
            std::iter::successors(Some(FIRST_PAUSE), |pause| Some(longer(*pause))).take(20).collect();
        assert_eq!(pauses[..3], [100, 200, 400].map(Duration::from_millis));
        assert!(pauses[8..].iter().all(|pause| *pause == Duration::from_secs(10)), "{pauses:?}");
    }
}
