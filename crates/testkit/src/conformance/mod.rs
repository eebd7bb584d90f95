//! The scenarios, each a plain async function over a [`Stage`](crate::Stage), grouped by what they are about.
//!
//! A new function goes into `list.rs` as well; from then on it runs on every store.
//!
//! # The numbered scenarios
//!
//! What other lock libraries were hurt by; comments name them by number. Those that need a server that dies (1, 8, 9, 18, 20)
//! run with the stores that have one; what a client does about faults (1, 16) is in `tests/faults.rs`.
//!
//! 1. A store that dies while we wait: an error, not a hang; if it returns in time, the waiter goes on.
//! 2. Three re-entries and two releases: still held, renewed; the third frees it.
//! 3. A timed try on a held lock returns in about its time and leaves nothing in the queue.
//! 4. Force release frees it for all; the old holder is told.
//! 5. An expired lease hands over; the old owner's release reports Lost and harms nobody.
//! 6. A client's end frees all; a killed client's locks free within the store's stated time.
//! 7. A non-atomic counter stays exact over many clients and processes.
//! 8. A restart under load: the next lock on that name still renews.
//! 9. A failover under load: locking works after it, and tokens catch what the store can't prevent.
//! 10. 500 waiters in strict order; timed-out, cancelled and killed ones are skipped; short waits leave nothing behind.
//! 11. Many names over one session: nothing is left at the end.
//! 12. Tokens rise on every kind of grant, over restarts and after deletion.
//! 13. Multi-lock: one acquire fails, the others roll back; one release fails, the others still release; ten clients with
//!     overlapping sets never deadlock.
//! 14. Read/write: a writer waits for the longest reader; a queued writer holds back later readers; a downgrade keeps the
//!     place; an upgrade is an error; a crashed reader doesn't block writers.
//! 15. Semaphore: never more than the limit; raising it wakes; a mismatch is refused; a crashed holder's permits return;
//!     claims for many aren't starved.
//! 16. A connection cut right after a request: one entry, no orphan.
//! 17. A waiter whose entry was deleted from outside recovers.
//! 18. Quorum lost and back; leadership moves exactly once.
//! 19. Names with `{}`, `:`, `/`, spaces, 1 kB, emoji, and two that differ only in case.
//! 20. Redlock: minorities down, hanging, empty; quorum down; slow nodes; split votes.

pub mod cancellation;
pub mod crash;
pub mod exclusion;
pub mod inspection;
pub mod leader;
pub mod loss;
pub mod multi;
pub mod names;
pub mod order;
pub mod programs;
pub mod read_write;
pub mod reentrance;
pub mod requests;
pub mod semaphore;
pub mod striped;
pub mod tokens;
pub mod traits;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use leasehold_client::{Client, Guard, Mutex};
use leasehold_core::Result;
use tokio::task::JoinHandle;

use crate::wait::soon;

/// A fixed lease whose end is waited for. A lock with a shorter one could be over before its answer is read, on a machine
/// that stalls.
const FIXED: Duration = Duration::from_secs(1);

/// A kept lease that must not end while its client lives: much longer than a machine stalls.
const KEPT: Duration = Duration::from_secs(3);

/// A claim that is being waited for in a task of its own.
type Waiter<T = Guard> = JoinHandle<Result<T>>;

/// Waits for a mutex in a task of its own.
fn waiter(mutex: &Mutex) -> Waiter {
    let mutex = mutex.clone();
    tokio::spawn(async move { mutex.lock().await })
}

/// The guard of a claim that should be granted soon.
async fn granted<T>(waiter: Waiter<T>) -> T {
    soon("a grant", waiter).await.expect("the waiter's task").expect("a lock")
}

/// Takes a mutex that should be free.
async fn take(client: &Client, name: &str) -> Guard {
    soon("a free lock", client.mutex(name).try_lock()).await.expect("a try").expect("a free lock")
}

/// A future that is polled by hand.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
