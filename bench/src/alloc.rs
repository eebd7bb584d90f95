//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// The system's allocator. It counts only while asked to, so that counting is not part of what is timed.
pub(crate) struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

/// What was allocated while counting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    /// How often memory was asked for, growing included.
    pub(crate) allocations: u64,
    /// By how many bytes the memory in use has grown.
    pub(crate) live_bytes: i64,
}

/// Starts counting from zero.
pub(crate) fn start() {
    ALLOCATIONS.store(0, Relaxed);
    LIVE_BYTES.store(0, Relaxed);
    ON.store(true, Relaxed);
}

/// What was counted since the start. Counting goes on.
pub(crate) fn so_far() -> Counted {
    Counted { allocations: ALLOCATIONS.load(Relaxed), live_bytes: LIVE_BYTES.load(Relaxed) }
}

/// Stops counting.
pub(crate) fn stop() -> Counted {
    ON.store(false, Relaxed);
    so_far()
}

fn count(allocations: u64, bytes: i64) {
    if ON.load(Relaxed) {
        ALLOCATIONS.fetch_add(allocations, Relaxed);
        LIVE_BYTES.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only atomics and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(1, new_size as i64 - layout.size() as i64);
        // SAFETY: as above; `at` came from `System`.
        unsafe { System.realloc(at, layout, new_size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: as above; `at` came from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_and_given_back_is_counted() {
        start();
        let held = vec![0u8; 100_000_000];
        let with = so_far();
        drop(held);
        let after = stop();
        // Other threads of the test program allocate at the same time, but nothing near that size.
        assert!(with.allocations >= 1 && with.live_bytes > 90_000_000, "{with:?}");
        assert!(after.live_bytes < 10_000_000, "{after:?}");
    }
}
