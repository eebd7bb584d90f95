//! Who may re-enter.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The one for whom a claim is made, where that matters: re-entrance, and the refusal to deadlock with oneself.
///
/// Local to a process and explicit: an owner is made, cloned and handed on, never guessed from the task that runs,
/// because two futures of one task interleave and both would enter.
///
/// ```
/// use leasehold_core::Owner;
/// let (a, b) = (Owner::new(), Owner::new());
/// assert_ne!(a, b);
/// assert_eq!(a, a.clone());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(u64);

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static THIS_THREAD: Owner = Owner::new();
}

impl Owner {
    /// A new owner, different from all others of this process.
    #[allow(clippy::new_without_default)] // `default()` would hide that every call gives another owner.
    pub fn new() -> Self {
        Owner(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The owner that stands for the calling thread: what the blocking API uses unless it is given another.
    pub fn this_thread() -> Self {
        THIS_THREAD.with(Owner::clone)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.0)
    }
}
