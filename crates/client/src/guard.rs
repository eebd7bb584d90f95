//! What the user's code holds.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::view::Lost;
use leasehold_core::{Owner, Result, Tick, Token, Want};

use crate::engine::Engine;
use crate::local::LaneKey;
use crate::local::hold::Hold;
use crate::local::waiter::Handed;
use crate::telemetry;

/// A lock that is held. Dropping it gives the lock back in the background; [`release`](Guard::release) does it and reports.
///
/// Holding a guard means: at the moment when [`is_held`](Guard::is_held) is true, nobody else holds the lock, as far as the
/// store's [promises](leasehold_core::Traits) go. A guard turns *lost* by itself, on a local and pessimistic clock, before
/// anybody else can hold. What happens after a loss is up to the holder: watch [`lost`](Guard::lost), run the work under
/// [`protect`](Guard::protect), and hand the [`token`](Guard::token) to what the lock guards.
#[must_use = "a lock is released as soon as its guard is dropped"]
pub struct Guard(Option<Arc<Held>>);

/// What the guards of one owner share: one hold of the lock.
pub(crate) struct Held {
    engine: Arc<Engine>,
    key: LaneKey,
    hold: Arc<Hold>,
    token: Token,
    want: Want,
    /// A writer that became a reader.
    downgraded: AtomicBool,
    since: Tick,
    count: AtomicU32,
    owner: OnceLock<Owner>,
}

impl Held {
    pub(crate) fn key(&self) -> &LaneKey {
        &self.key
    }

    pub(crate) fn since(&self) -> Tick {
        self.since
    }

    pub(crate) fn want(&self) -> Want {
        if self.downgraded.load(Ordering::SeqCst) { Want::Shared } else { self.want }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.hold.is_good(self.engine.now())
    }

    pub(crate) fn owned_by(&self, owner: Owner) {
        let _ = self.owner.set(owner);
    }

    /// One guard less; `true` for the last one.
    fn count_down(&self, now: Tick) -> bool {
        let last = self.count.fetch_sub(1, Ordering::SeqCst) == 1;
        if last {
            if let Some(owner) = self.owner.get() {
                self.engine.owners.forget(self, owner);
            }
            telemetry::held_for(now.since(self.since));
        }
        last
    }
}

impl Guard {
    pub(crate) fn new(engine: Arc<Engine>, key: LaneKey, handed: Handed, want: Want, since: Tick) -> Self {
        Guard(Some(Arc::new(Held {
            engine,
            key,
            hold: handed.hold,
            token: handed.token,
            want,
            downgraded: AtomicBool::new(false),
            since,
            count: AtomicU32::new(1),
            owner: OnceLock::new(),
        })))
    }

    /// The same hold once more, unless it has just been released or was lost.
    pub(crate) fn again(held: Arc<Held>) -> Option<Self> {
        if !held.is_good() {
            return None;
        }
        let more = |count: u32| if count == 0 { None } else { count.checked_add(1) };
        held.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Guard(Some(held)))
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        self.0.as_ref().expect("a guard is emptied only when it is consumed")
    }

    /// The fencing token of this hold: higher than that of every earlier holder of this name.
    pub fn token(&self) -> Token {
        self.held().token
    }

    /// The name of the lock, without the client's namespace.
    pub fn name(&self) -> &str {
        let held = self.held();
        &held.key.name.as_str()[held.engine.namespace.len()..]
    }

    /// What is held.
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
        if !held.hold.is_good(now) {
            return Some(Duration::ZERO);
        }
        match held.hold.valid_until() {
            Tick::NEVER => None,
            until => Some(until.since(now)),
        }
    }

    /// The moment until which the lock is certainly held if nothing renews it; `None` as for
    /// [`remaining`](Guard::remaining).
    pub fn deadline(&self) -> Option<Tick> {
        Some(self.held().hold.valid_until()).filter(|until| *until != Tick::NEVER)
    }

    /// Resolves with the reason when the lock is lost, and never while it is held.
    ///
    /// # Cancel safety
    ///
    /// Can be dropped and called again at any time.
    pub async fn lost(&self) -> Lost {
        let held = self.held();
        held.hold.lost(&held.engine.table.clock).await
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
        self.held().count.load(Ordering::SeqCst)
    }

    /// Gives the lock back and reports. An error of kind [`Lost`](leasehold_core::Kind::Lost) says that the lease had ended
    /// before: somebody else may have held the lock while this guard was thought to.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future does not stop the release.
    pub async fn release(mut self) -> Result<()> {
        let held = self.0.take().expect("a guard is emptied only when it is consumed");
        let now = held.engine.now();
        if !held.count_down(now) {
            return Ok(());
        }
        held.engine.release(&held.key, &held.hold, now).await
    }

    pub(crate) async fn downgrade(self) -> Result<Self> {
        let held = self.held();
        if held.count.load(Ordering::SeqCst) > 1 {
            use leasehold_core::{Error, Kind};
            return Err(Error::new(Kind::Refused, "a write lock that is held more than once can't be downgraded")
                .on(&held.key.name)
                .advice("release the inner guards first"));
        }
        held.engine.downgrade(&held.key, &held.hold).await?;
        held.downgraded.store(true, Ordering::SeqCst);
        Ok(self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(held) = self.0.take() else { return };
        let now = held.engine.now();
        if held.count_down(now) {
            held.engine.release_in_background(&held.key, &held.hold, now);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(held) = &self.0 else { return f.write_str("Guard(released)") };
        f.debug_struct("Guard")
            .field("name", &held.key.name)
            .field("token", &held.token)
            .field("want", &held.want())
            .field("held", &held.is_good())
            .finish()
    }
}
