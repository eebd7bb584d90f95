//! What the user's code holds.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_background::confined;
use leasehold_core::view::Lost;
use leasehold_core::{Error, Kind, Name, Owner, Result, Tick, Token, Want};

use crate::engine::Engine;
use crate::local::LaneKey;
use crate::local::hold::Hold;
use crate::local::reentrancy::{Denied, HoldCount};
use crate::local::waiter::Handed;
use crate::telemetry;

/// A lock that is held. Dropping it gives the lock back in the background; [`release`](Guard::release) does it and reports.
///
/// Holding a guard means: at the moment when [`is_held`](Guard::is_held) is true, nobody else holds the lock, as far as the
/// store's [promises](leasehold_core::Traits) go. A guard turns *lost* by itself, on a local and pessimistic clock, before
/// anybody else can hold. What happens after a loss is up to the holder: watch [`lost`](Guard::lost), run the work under
/// [`protect`](Guard::protect), and hand the [`token`](Guard::token) to what the lock guards.
///
/// # At the end of the process
///
/// A guard that is dropped, by the end of `main`, a panic that unwinds or the end of a thread, is given back before the
/// process ends, which waits for its releases for up to a second in all. `std::process::exit` drops no guards
/// ([close](crate::Client::close) the client before), and a signal that is not handled, `abort` or a panic that aborts
/// runs nothing: the lock stays as after a crash.
///
/// In a child that was forked without exec the guard is lost, and dropping it gives nothing back: the lock is the
/// parent's.
#[must_use = "a lock is released as soon as its guard is dropped"]
pub struct Guard {
    /// `None` once it is given back.
    held: Option<Held>,
    /// Set if the claim had an owner, who may take the lock again.
    again: Option<Arc<Again>>,
}

/// One hold of a lock.
#[derive(Clone)]
pub(crate) struct Held {
    engine: Arc<Engine>,
    key: LaneKey,
    hold: Arc<Hold>,
    token: Token,
    want: Want,
    since: Tick,
}

/// A hold that its owner can share: the guards count, and the last one releases.
pub(crate) struct Again {
    held: Held,
    owner: Owner,
    count: HoldCount,
}

impl Held {
    pub(crate) fn since(&self) -> Tick {
        self.since
    }

    fn want(&self) -> Want {
        if self.hold.is_downgraded() { Want::Shared } else { self.want }
    }

    fn is_good(&self) -> bool {
        self.hold.is_good(self.engine.now()) && !self.engine.is_forked()
    }
}

impl Again {
    pub(crate) fn name(&self) -> &Name {
        &self.held.key.name
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn want(&self) -> Want {
        self.held.want()
    }

    pub(crate) fn is_good(&self) -> bool {
        self.held.is_good() && self.count.get() > 0
    }

    /// Whether the lock was held until now, for a guard that is given back before others of its owner.
    fn check_not_lost(&self) -> Result<()> {
        let Held { engine, key, hold, .. } = &self.held;
        match hold.lost_by(engine.now()) {
            Some(why) => Err(engine.lost_before("released", Some(why), &key.name)),
            None => Ok(()),
        }
    }

    /// The same hold once more, unless it has just been released or was lost, or is a reader's and `writes` is set.
    pub(crate) fn guard(self: Arc<Self>, writes: bool) -> Result<Guard, Denied> {
        if !self.held.is_good() {
            return Err(Denied::Over);
        }
        self.count.enter(writes)?;
        Ok(Guard { held: Some(self.held.clone()), again: Some(self) })
    }
}

impl Guard {
    pub(crate) fn new(engine: Arc<Engine>, key: LaneKey, handed: Handed, want: Want, since: Tick) -> Self {
        let held = Held { engine, key, hold: handed.hold, token: handed.token, want, since };
        Guard { held: Some(held), again: None }
    }

    pub(crate) fn held(&self) -> &Held {
        self.held.as_ref().expect("a guard is emptied only when it is consumed")
    }

    /// Lets its owner take the lock again.
    pub(crate) fn share_with(&mut self, owner: Owner) -> &Arc<Again> {
        let held = self.held().clone();
        let count = HoldCount::new(held.want() == Want::Exclusive);
        self.again.insert(Arc::new(Again { held, owner, count }))
    }

    /// Takes the hold out to release it: `None` if other guards of its owner live on it, or if it was taken before.
    fn take(&mut self) -> Option<(Held, Tick)> {
        let held = self.held.take()?;
        if held.engine.is_forked() {
            // The lock is the parent's: it is not given back here.
            std::mem::forget((held, self.again.take()));
            return None;
        }
        let now = held.engine.now();
        if let Some(again) = self.again.take() {
            if !again.count.leave() {
                return None;
            }
            held.engine.owners.forget(&again);
        }
        telemetry::held_for(now.since(held.since));
        Some((held, now))
    }

    /// The fencing token of this hold: higher than that of every earlier holder of this name.
    pub fn token(&self) -> Token {
        self.held().token
    }

    /// The name of the lock, without the client's namespace.
    pub fn name(&self) -> &str {
        let held = self.held();
        &held.key.name.as_str()[held.engine.about.namespace.len()..]
    }

    /// What is certainly held. A write lock whose [downgrade](crate::WriteGuard::downgrade) has begun counts as shared, unless it is
    /// certain that nothing came of it.
    pub fn want(&self) -> Want {
        self.held().want()
    }

    /// Whether the lock is certainly held now. Costs one look at the clock.
    pub fn is_held(&self) -> bool {
        self.held().is_good()
    }

    /// How long the lock is certainly held if nothing renews it; zero if it is lost, `None` if it ends only with the
    /// session (a kept lease on a store that notices deaths by itself).
    pub fn remaining(&self) -> Option<Duration> {
        let held = self.held();
        let now = held.engine.now();
        if !held.is_good() {
            return Some(Duration::ZERO);
        }
        match held.hold.valid_until() {
            Tick::NEVER => None,
            until => Some(until.since(now)),
        }
    }

    /// How much is left of a fixed lease (`.lease(d)`); zero if it is over or the lock is lost, `None` if the lease is kept.
    ///
    /// A store may be certain of less than that at a time, and then [`remaining`](Guard::remaining) is less: on ZooKeeper a
    /// lock is certain for a part of the session's length, and the client renews that until the lease ends.
    pub fn lease_left(&self) -> Option<Duration> {
        let held = self.held();
        let now = held.engine.now();
        match held.hold.ends() {
            Tick::NEVER => None,
            _ if !held.hold.is_good(now) => Some(Duration::ZERO),
            ends => Some(ends.since(now)),
        }
    }

    /// The moment until which the lock is certainly held if nothing renews it; `None` as for
    /// [`remaining`](Guard::remaining).
    pub fn deadline(&self) -> Option<Tick> {
        Some(self.held().hold.valid_until()).filter(|until| *until != Tick::NEVER)
    }

    /// Resolves with the reason when the lock is lost, and never while it is held. A loss is final: a guard that has said so once, here or by
    /// [`is_held`](Guard::is_held), is never held again.
    ///
    /// # Cancel safety
    ///
    /// Can be dropped and called again at any time.
    pub async fn lost(&self) -> Lost {
        let held = self.held();
        let clock = &held.engine.table.clock;
        // It waits in lists that a forked child must not touch, not even when it drops the future.
        let mut lost = pin!(confined(held.hold.lost(clock, |moment| held.engine.sleep_until(moment))));
        poll_fn(|cx| match held.engine.is_forked() {
            true => Poll::Ready(Lost::SessionGone),
            false => lost.as_mut().poll(cx),
        })
        .await
    }

    /// Whether somebody asked for the lock back ([`Client::request_release`](crate::Client::request_release)). Costs one look
    /// at memory.
    pub fn is_release_requested(&self) -> bool {
        self.held().hold.is_release_requested()
    }

    /// Resolves when somebody has asked for the lock back, also if that was before the call; never otherwise, not even when
    /// the lock is lost (see [`lost`](Guard::lost)), and never in a forked child.
    ///
    /// What follows is up to the holder: nothing is taken away, and the lock is renewed as before. If it is given back, it
    /// really leaves: no task of this client gets it without queueing at the store again.
    ///
    /// The store tells at once. Should that message be lost, the next renewal brings the news: after a third of the lease, or
    /// after 10 s where a lease has no end. A lease that is not renewed (`.lease(d)`) may then never hear of it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
    /// # let client = leasehold_client::Client::open(leasehold_memory::Memory::new()).await?;
    /// let guard = client.mutex("reindex").lock().await?;
    /// let asked = client.request_release("reindex", None).await?; // most often by somebody else
    /// assert_eq!(asked.len(), 1);
    /// guard.release_requested().await;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Can be dropped and called again at any time.
    pub async fn release_requested(&self) {
        let held = self.held();
        // Never in a forked child: the lock is the parent's.
        if held.engine.is_forked() {
            return std::future::pending().await;
        }
        confined(held.hold.release_requested()).await;
    }

    /// Runs a future for as long as the lock is held: if the lock is lost first, the future is dropped at its next await, and
    /// the reason is returned.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
    /// # let client = leasehold_client::Client::open(leasehold_memory::Memory::new()).await?;
    /// let guard = client.mutex("report").lock().await?;
    /// let answer = guard.protect(async { 6 * 7 }).await;
    /// assert_eq!(answer, Ok(42));
    /// # Ok(()) }
    /// ```
    pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        tokio::select! {
            biased;
            why = self.lost() => Err(why),
            output = future => Ok(output),
        }
    }

    /// How many guards of this owner share the hold: 1 unless the claim was [reentrant](crate::Mutex::reentrant).
    pub fn hold_count(&self) -> u32 {
        self.again.as_ref().map_or(1, |again| again.count.get())
    }

    /// Gives the lock back and reports. An error of kind [`Lost`](leasehold_core::Kind::Lost) says that the lease had ended
    /// before: somebody else may have held the lock while this guard was thought to. One of kind
    /// [`Unavailable`](leasehold_core::Kind::Unavailable) says that the store did not confirm it within the client's
    /// [patience](crate::ClientBuilder::retry_for): the release is tried again in the background until the lease ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future does not stop the release.
    pub async fn release(self) -> Result<()> {
        self.give_back(None).await
    }

    /// As [`release`](Guard::release), but waits for the store no longer than `time`.
    pub async fn release_within(self, time: Duration) -> Result<()> {
        self.give_back(Some(time)).await
    }

    async fn give_back(mut self, limit: Option<Duration>) -> Result<()> {
        if let Some(held) = &self.held {
            held.engine.check_not_forked()?;
        }
        let again = self.again.clone();
        match self.take() {
            // The owner has other guards of this hold: nothing is given back yet.
            None => again.map_or(Ok(()), |again| again.check_not_lost()),
            Some((held, now)) => held.engine.release(held.key, &held.hold, now, limit).await,
        }
    }

    /// How long its release is waited for.
    pub(crate) fn patience(&self) -> Duration {
        self.held().engine.table.rules.retry_for
    }

    /// A writer becomes a reader. On an error it comes back: [`want`](Guard::want) tells whether it is certainly a writer still.
    pub(crate) async fn downgrade(self, limit: Option<Duration>) -> Result<Self, (Error, Self)> {
        let held = self.held();
        if self.again.as_ref().is_some_and(|again| !again.count.downgrade()) {
            let what = "a write lock that is held more than once can't be downgraded";
            let error = Error::new(Kind::Refused, what).on(&held.key.name);
            return Err((error.advice("release the inner guards first"), self));
        }
        match held.engine.downgrade(&held.key, &held.hold, held.token, limit).await {
            Ok(()) => Ok(self),
            Err(error) => {
                if let Some(again) = self.again.as_ref().filter(|_| !held.hold.is_downgraded()) {
                    again.count.downgrade_undone();
                }
                Err((error, self))
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((held, now)) = self.take() {
            held.engine.release_in_background(held.key, &held.hold, now);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(held) = &self.held else { return f.write_str("Guard(released)") };
        f.debug_struct("Guard")
            .field("name", &held.key.name)
            .field("token", &held.token)
            .field("want", &held.want())
            .field("held", &held.is_good())
            .finish()
    }
}
