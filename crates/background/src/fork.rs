//! What a fork without exec leaves: a child with the memory and the open files of its parent, but without its threads.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use crate::sys;

static GENERATION: AtomicU32 = AtomicU32::new(0);

const NO_FILE: i32 = -1;

/// The files that are registered. Plain atomics: nothing else may be looked at in the child of a process with threads.
static FILES: Slots = Slots::new();

/// A list that grows and is never freed.
struct Slots {
    files: [AtomicI32; 64],
    more: AtomicPtr<Slots>,
}

impl Slots {
    const fn new() -> Self {
        Slots { files: [const { AtomicI32::new(NO_FILE) }; 64], more: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn more(&self) -> Option<&'static Slots> {
        sys::leaked(self.more.load(Ordering::Acquire))
    }

    /// The next part of the list, which is made if there is none.
    fn next(&self) -> Option<&'static Slots> {
        self.more().or_else(|| {
            let made = Box::into_raw(Box::new(Slots::new()));
            // If another thread was faster this one stays unused.
            let _ =
                self.more.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
            self.more()
        })
    }

    /// Registers a file in a free slot.
    fn take(&'static self, fd: i32) -> Option<&'static AtomicI32> {
        let mut slots = self;
        loop {
            let free = |slot: &&AtomicI32| {
                slot.compare_exchange(NO_FILE, fd, Ordering::AcqRel, Ordering::Acquire).is_ok()
            };
            match slots.files.iter().find(free) {
                Some(slot) => return Some(slot),
                None => slots = slots.next()?,
            }
        }
    }
}

/// Differs between a process and a child that was forked from it.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// This is a forked child.
pub(crate) fn next_generation() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
    let mut slots = Some(&FILES);
    while let Some(part) = slots {
        for file in &part.files {
            let fd = file.swap(NO_FILE, Ordering::AcqRel);
            if fd != NO_FILE {
                sys::close_copy(fd);
            }
        }
        slots = part.more();
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
    ClosedInForkedChild { slot: FILES.take(fd), fd }
}

impl Drop for ClosedInForkedChild {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let _ = slot.compare_exchange(self.fd, NO_FILE, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_are_closed_in_a_child_however_many_there_are() {
        // The first client asks to be told of forks.
        crate::Background::get().unwrap();
        // A pipe for each would need more descriptors than a process may have by default.
        let (reader, writer) = std::io::pipe().unwrap();
        let copies: Vec<_> = (0..300).map(|_| writer.try_clone().unwrap()).collect();
        let registered: Vec<_> = copies.iter().map(close_in_forked_child).collect();
        let fds: Vec<i32> = copies.iter().map(|copy| copy.as_raw_fd()).collect();
        assert!(sys::is_true_in_forked_child(|| fds.iter().all(|fd| !sys::is_open(*fd))));
        assert!(fds.iter().all(|fd| sys::is_open(*fd)), "the parent's are its own");
        drop((registered, copies, reader));
    }
}
