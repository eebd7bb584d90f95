//! Writing to stderr without waiting for it: a thread of its own writes what is said. A reader that stopped reading
//! (Ctrl-S on a terminal, a pager, a full pipe) blocks that thread and nothing else. What does not fit into a short
//! queue meanwhile is dropped.
//!
//! It writes to the file itself: a thread that is blocked while it writes to [`std::io::stderr`] keeps its lock.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::stdio::stderr;

use crate::sys;

/// How many lines may wait. Far more than a program says that has a reader.
const MAX_QUEUED: usize = 64;
/// How long [`flush`] waits for a reader that takes nothing, and how long for any.
const NO_READER: Duration = Duration::from_millis(100);
const MAX_FLUSH: Duration = Duration::from_secs(5);

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { texts: VecDeque::new(), writing: false, has_thread: false, written: 0 });
static CHANGED: Condvar = Condvar::new();

struct Queue {
    texts: VecDeque<Vec<u8>>,
    /// Whether the thread has taken a text out and is not done with it.
    writing: bool,
    has_thread: bool,
    /// How many texts were written.
    written: u64,
}

impl Queue {
    fn is_idle(&self) -> bool {
        !self.writing && self.texts.is_empty()
    }
}

/// Has this written as soon as there is room. Never waits. Not to be called before a fork.
pub(crate) fn say(text: impl Into<Vec<u8>>) {
    let mut queue = lock();
    if queue.texts.len() < MAX_QUEUED {
        queue.texts.push_back(text.into());
    }
    if !queue.has_thread {
        queue.has_thread = std::thread::Builder::new().name("stderr".to_owned()).spawn(serve).is_ok();
    }
    if !queue.has_thread {
        // The system has no thread for us. A short line does not block where there is room.
        while let Some(text) = queue.texts.pop_front() {
            if has_room() {
                write(&text);
            }
        }
    }
    CHANGED.notify_all();
}

/// Whether all that was said has been written.
pub(crate) fn is_idle() -> bool {
    lock().is_idle()
}

/// Waits until all that was said has been written, but not for a reader that does not read.
pub(crate) fn flush() {
    let until = Instant::now() + MAX_FLUSH;
    let mut queue = lock();
    while !queue.is_idle() && Instant::now() < until {
        let before = queue.written;
        let (after, waited) = CHANGED.wait_timeout(queue, NO_READER).unwrap_or_else(PoisonError::into_inner);
        queue = after;
        // Where there is room the thread is just slow.
        if waited.timed_out() && queue.written == before && !has_room() {
            return;
        }
    }
}

fn serve() {
    // The signals of this program are for its other threads. And SIGTTOU would stop us (`stty tostop`) in the middle of
    // stopping the command.
    sys::block_all_but(Signal::CHILD);
    let mut queue = lock();
    loop {
        match queue.texts.pop_front() {
            Some(text) => {
                queue.writing = true;
                drop(queue);
                write(&text);
                queue = lock();
                queue.writing = false;
                queue.written += 1;
                CHANGED.notify_all();
            }
            None => queue = CHANGED.wait(queue).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// That stderr may be closed is no reason to fail.
fn write(mut text: &[u8]) {
    while !text.is_empty() {
        match rustix::io::write(stderr(), text) {
            Ok(0) => return,
            Ok(n) => text = &text[n..],
            Err(Errno::INTR) => {}
            // Another program that has this file as well made it non-blocking.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&stderr(), PollFlags::OUT)], None);
            }
            Err(_) => return,
        }
    }
}

fn has_room() -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::new(&stderr(), PollFlags::OUT)], Some(&at_once)), Ok(1..))
}

fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}
