//! Which locks this session left idle, as far as it remembers: their rows are there, and likely they are free.
//!
//! It is a guess that saves work where it is right. Where it is wrong it costs one statement, which then does nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::Name;

/// How many are remembered at most. A name takes the place of another one.
const PLACES: usize = 4096;

/// A place for each of many names, which share them by their hashes.
pub(crate) struct Idle(Box<[AtomicU64]>);

impl Default for Idle {
    fn default() -> Self {
        Idle((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Idle {
    /// The place of a name, and what stands there if it is this one. Never 0, which is nobody.
    fn place(&self, name: &Name) -> (&AtomicU64, u64) {
        let hash = name.stable_hash();
        (&self.0[(hash >> 64) as usize % PLACES], hash as u64 | 1)
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        let (place, mark) = self.place(name);
        place.load(Ordering::Relaxed) == mark
    }

    pub(crate) fn note(&self, name: &Name) {
        let (place, mark) = self.place(name);
        place.store(mark, Ordering::Relaxed);
    }

    pub(crate) fn forget(&self, name: &Name) {
        let (place, mark) = self.place(name);
        // Another name may have come meanwhile.
        let _ = place.compare_exchange(mark, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_remembered_until_it_is_forgotten() {
        let idle = Idle::default();
        let (one, other) = (Name::new("one").unwrap(), Name::new("other").unwrap());
        assert!(!idle.has(&one));
        idle.note(&one);
        assert!(idle.has(&one) && !idle.has(&other));
        idle.forget(&other);
        assert!(idle.has(&one));
        idle.forget(&one);
        assert!(!idle.has(&one));
    }
}
