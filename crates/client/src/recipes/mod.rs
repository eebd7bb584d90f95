//! The locks that people use: faces of one rule, one file each.
//!
//! | recipe | held by |
//! | --- | --- |
//! | [`Mutex`] | one |
//! | [`RwLock`] | many readers or one writer |
//! | [`Semaphore`] | as many as there are permits |
//! | [`Multi`] | one, over several names at once |
//! | [`Striped`] | one a stripe |
//! | [`Leader`] | one, for as long as it can |
//!
//! Every recipe has its verb in three forms: wait as long as it takes, try, wait no longer than. `None` means that another one has
//! the lock, and is never an error; a store that is not available is one, of kind
//! [`Unavailable`](leasehold_core::Kind::Unavailable), when the verb's [limit](crate::ClientBuilder::retry_for) is reached. What this
//! client gave up, a dropped guard or claim, leaves the store in the background: a try waits for that. Handles are cheap to clone;
//! options are given before the verb.
//!
//! # Cancel safety
//!
//! Dropping the future of a verb at any await leaves nothing behind: the claim leaves the queue, and a grant that arrives
//! late goes to the next waiter.

mod leader;
mod multi;
mod mutex;
mod rwlock;
mod semaphore;
mod striped;

pub use leader::{Leader, Leadership, Observe};
pub use multi::{Multi, MultiGuard, Part};
pub use mutex::Mutex;
pub use rwlock::{DowngradeError, RwLock, WriteGuard};
pub use semaphore::Semaphore;
pub use striped::Striped;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, Kind, Result};

use crate::claim::Claim;
use crate::engine::{Engine, Patience};
use crate::guard::Guard;

/// Waits as long as it takes.
async fn lock(engine: &Arc<Engine>, claim: &Claim) -> Result<Guard> {
    match engine.acquire(claim, Patience::Forever).await? {
        Some(guard) => Ok(guard),
        None => Err(Error::new(Kind::Store, "the store said busy to a claim that waits")),
    }
}

/// Takes it at once or not at all.
async fn try_lock(engine: &Arc<Engine>, claim: &Claim) -> Result<Option<Guard>> {
    engine.acquire(claim, Patience::Try).await
}

/// Waits no longer than that.
async fn lock_within(engine: &Arc<Engine>, claim: &Claim, time: Duration) -> Result<Option<Guard>> {
    engine.acquire(claim, Patience::Within(time)).await
}
