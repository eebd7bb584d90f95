//! How many guards of one owner share a hold, and whether its owner may still write.
//!
//! Both are in one atomic word. A downgrade needs a hold that has one guard, and a re-entry as writer needs a hold that no
//! downgrade has begun on: each is one compare-and-swap, so of two that run at the same time exactly one succeeds.

use crate::sync::{AtomicU32, Ordering};

/// The number of guards, and [`READS`].
pub(crate) struct HoldCount(AtomicU32);

/// The owner reads, or a downgrade has begun.
const READS: u32 = 1 << 31;

/// Why an owner can't enter again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The last guard is gone.
    Over,
    /// It asks to write, and the hold is a reader's or is becoming one.
    Reads,
}

impl HoldCount {
    /// The first guard.
    pub(crate) fn new(writes: bool) -> Self {
        HoldCount(AtomicU32::new(if writes { 1 } else { 1 | READS }))
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst) & !READS
    }

    /// One guard more.
    pub(crate) fn enter(&self, writes: bool) -> Result<(), Denied> {
        let mut now = self.0.load(Ordering::SeqCst);
        loop {
            if now & !READS == 0 || now & !READS == !READS {
                return Err(Denied::Over);
            }
            if writes && now & READS != 0 {
                return Err(Denied::Reads);
            }
            match self.0.compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Ok(()),
                Err(other) => now = other,
            }
        }
    }

    /// One guard less. Tells whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::SeqCst) & !READS == 1
    }

    /// A downgrade begins: from now on the owner can't enter again as writer. `false` if there are other guards.
    pub(crate) fn downgrade(&self) -> bool {
        self.0.compare_exchange(1, 1 | READS, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Nothing came of the downgrade.
    pub(crate) fn downgrade_undone(&self) {
        self.0.fetch_and(!READS, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_hold_with_two_guards_is_not_downgraded() {
        let count = HoldCount::new(true);
        assert_eq!((count.enter(true), count.get()), (Ok(()), 2));
        assert!(!count.downgrade());
        assert!(!count.leave());
        assert!(count.downgrade());
    }

    #[test]
    fn a_hold_that_is_being_downgraded_is_entered_by_readers_only() {
        let count = HoldCount::new(true);
        assert!(count.downgrade());
        assert_eq!((count.enter(true), count.enter(false)), (Err(Denied::Reads), Ok(())));
        count.downgrade_undone();
        assert_eq!((count.enter(true), count.get()), (Ok(()), 3));
    }

    #[test]
    fn a_hold_without_a_guard_is_over() {
        let count = HoldCount::new(false);
        assert_eq!(count.enter(true), Err(Denied::Reads));
        assert!(count.leave());
        assert_eq!((count.enter(true), count.enter(false)), (Err(Denied::Over), Err(Denied::Over)));
    }
}
