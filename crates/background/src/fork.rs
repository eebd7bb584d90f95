//! What a fork without exec leaves: a child with the memory and the open files of its parent, but without its threads.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::sys;

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many files can be registered at a time. Further ones stay open in forked children.
const MAX_FILES: usize = 256;

const NO_FILE: i32 = -1;

/// Plain atomics: nothing else may be looked at in the child of a process with threads.
static FILES: [AtomicI32; MAX_FILES] = [const { AtomicI32::new(NO_FILE) }; MAX_FILES];

/// Differs between a process and a child that was forked from it.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// This is a forked child.
pub(crate) fn next_generation() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
    for file in &FILES {
        let fd = file.swap(NO_FILE, Ordering::AcqRel);
        if fd != NO_FILE {
            sys::close_copy(fd);
        }
    }
}

/// A file that forked children close, until this value is dropped.
#[must_use = "the file is forgotten as soon as this is dropped"]
pub struct ClosedInForkedChild {
    slot: Option<&'static AtomicI32>,
    fd: i32,
}

/// Has forked children close their copy of this file: one whose being open means that this process lives. The value must be
/// dropped before the file is closed, and neither may be used in the child.
pub fn close_in_forked_child(file: impl AsFd) -> ClosedInForkedChild {
    let fd = file.as_fd().as_raw_fd();
    let free =
        |slot: &&AtomicI32| slot.compare_exchange(NO_FILE, fd, Ordering::AcqRel, Ordering::Acquire).is_ok();
    ClosedInForkedChild { slot: FILES.iter().find(free), fd }
}

impl Drop for ClosedInForkedChild {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let _ = slot.compare_exchange(self.fd, NO_FILE, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}
