//! The background thread of Leasehold: one a process, started with the first client.
//!
//! Whatever keeps a lock alive and ends it well runs here and not on the user's runtime: connections, renewals,
//! notifications, timers, and releases whose future is gone. So a task that computes without yielding keeps its lock, a
//! client works from any runtime, and a runtime that is shut down takes no lock with it.
//!
//! # Layout
//!
//! - this file: the thread and its runtime.
//! - `confined`: futures that are dead in forked children.
//! - `exit`: the exit of the process waits a moment for releases in flight.
//! - `fork`: a child that was forked without exec has no background thread, and its clients are dead.
//! - `timer`: timers that count the time while the machine sleeps.
//! - `sys`: the few calls that the operating system offers only through `unsafe`.

mod confined;
mod exit;
mod fork;
mod sys;
mod timer;

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::Poll;
use std::time::{Duration, Instant};

use leasehold_core::{Clock, Tick};
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::task::JoinHandle;

use exit::InFlightCount;
use timer::Timers;

pub use confined::{Confined, confined};
pub use exit::{EXIT_PATIENCE, InFlight};
pub use fork::{ClosedInForkedChild, close_in_forked_child};
pub use timer::Sleep;

/// The background thread of this process. Cheap to copy.
#[derive(Clone, Copy)]
pub struct Background {
    thread: &'static Thread,
}

struct Thread {
    /// Which process it belongs to: a forked child counts one more.
    generation: u32,
    runtime: Handle,
    in_flight: InFlightCount,
    timers: Timers,
}

/// The thread of this process, or null before the first client and in a forked child. It is never freed.
static THREAD: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());

impl Background {
    /// The background thread of this process. The first call starts it.
    pub fn get() -> io::Result<Background> {
        if let Some(running) = Self::running() {
            return Ok(running);
        }
        sys::prepare_process()?;
        // Published only once it is started: nobody gets a thread that may fail to start.
        let (thread, publish) = Thread::start()?;
        let thread = Box::into_raw(Box::new(thread));
        let none = std::ptr::null_mut();
        if THREAD.compare_exchange(none, thread, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            let _ = publish.send(());
        }
        // Else another caller was faster, and this thread ends when `publish` is dropped.
        Self::running().ok_or_else(|| io::Error::other("the background thread could not be started"))
    }

    fn running() -> Option<Background> {
        sys::leaked(THREAD.load(Ordering::Acquire)).map(|thread| Background { thread })
    }

    /// Whether this is still the process that the thread was started in. `false` in a child that was forked since: no
    /// thread runs there, and nothing of it may be used. Costs one look at memory.
    pub fn is_alive(&self) -> bool {
        self.thread.generation == fork::generation()
    }

    /// Runs a future on the background thread.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.thread.runtime.spawn(future)
    }

    /// As [`spawn`](Self::spawn), for what the exit of the process should wait for.
    pub fn spawn_in_flight<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let in_flight = self.in_flight();
        self.spawn(async move {
            let output = future.await;
            drop(in_flight);
            output
        })
    }

    /// While this value lives, the exit of the process waits, for up to [`EXIT_PATIENCE`].
    pub fn in_flight(&self) -> InFlight {
        self.thread.in_flight.begin()
    }

    /// Until the value is dropped, timers, sockets and tasks that this thread makes belong to the background thread.
    /// Panics on a thread that [is ending](is_thread_ending).
    pub fn enter(&self) -> EnterGuard<'_> {
        self.thread.runtime.enter()
    }

    /// The runtime of the background thread.
    pub fn runtime(&self) -> &Handle {
        &self.thread.runtime
    }

    /// Waits for a future, but no longer than this; `None` if that was not enough. Needs no timers of the caller's runtime.
    pub async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut elapsed = pin!(self.sleep_until(Clock::system().now() + time));
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => elapsed.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// Blocks this thread until the future is done, for a destructor of the user's thread. All such waits and the one
    /// at the exit of the process share [`EXIT_PATIENCE`]: a store that does not answer holds up the end of a program
    /// once. `None` if that was not enough.
    pub fn block_on_at_drop<F: Future>(&self, future: F) -> Option<F::Output> {
        let patience = self.thread.in_flight.patience();
        let began = Instant::now();
        let output = self.thread.runtime.block_on(self.timeout(patience, future));
        if output.is_none() {
            self.thread.in_flight.spend(began.elapsed());
        }
        output
    }

    /// Sleeps for this long. Needs no timers of the caller's runtime.
    pub fn sleep(&self, time: Duration) -> Sleep {
        self.sleep_until(Clock::system().now() + time)
    }

    /// Sleeps until this moment, on a clock that also runs while the machine sleeps.
    pub fn sleep_until(&self, deadline: Tick) -> Sleep {
        self.thread.timers.sleep_until(deadline)
    }
}

impl Thread {
    /// Starts the thread, which begins to work when it is told to, and ends if it is not.
    fn start() -> io::Result<(Thread, SyncSender<()>)> {
        let runtime = OwnedRuntime(Some(Builder::new_current_thread().enable_all().build()?));
        let handle = runtime.handle()?;
        let timers = {
            let _context = handle.enter();
            Timers::new()?
        };
        let (publish, published) = sync_channel(1);
        let work = move || {
            if published.recv().is_ok()
                && let Some(runtime) = &runtime.0
            {
                runtime.block_on(std::future::pending::<()>());
            }
        };
        spawn_thread("leasehold", work)?;
        let (generation, in_flight) = (fork::generation(), InFlightCount::default());
        Ok((Thread { generation, runtime: handle, in_flight, timers }, publish))
    }
}

/// A runtime that can be dropped inside another one, where tokio's own would panic.
struct OwnedRuntime(Option<Runtime>);

impl OwnedRuntime {
    fn handle(&self) -> io::Result<Handle> {
        let runtime = self.0.as_ref().ok_or_else(|| io::Error::other("the runtime has ended"))?;
        Ok(runtime.handle().clone())
    }
}

impl Drop for OwnedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts a thread that leaves the signals of the process to the threads of the user.
pub fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = move || {
        sys::block_signals();
        work();
    };
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// Runs code of the user that must not end the thread or the task that calls it: a panic ends here, and the panic hook
/// has reported it.
pub fn contain_panic(code: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(code));
}

/// Whether the calling thread is at its end, where the destructors of its thread-locals run and those of tokio may have
/// run before. No future of a store can be polled there, and no runtime be [entered](Background::enter): that would
/// panic, and abort the process.
pub fn is_thread_ending() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// Called by `exit(3)`, also when `main` returns.
fn at_exit() {
    if let Some(background) = Background::running() {
        background.thread.in_flight.wait();
    }
}

/// Called in a child right after `fork(2)`. The thread and whatever locks it held did not come along: all is left as
/// it is, and the next client of this process starts a thread of its own.
fn in_forked_child() {
    fork::next_generation();
    THREAD.store(std::ptr::null_mut(), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_thread_whoever_asks() {
        let threads: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| Background::get().unwrap().thread as *const Thread as usize))
            .collect();
        let mut seen: Vec<usize> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        seen.dedup();
        assert_eq!(seen.len(), 1);
        assert!(Background::get().unwrap().is_alive());
    }

    #[test]
    fn what_is_spawned_runs_without_the_caller_s_runtime() {
        let background = Background::get().unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        background.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            let _ = send.send(std::thread::current().name().map(str::to_owned));
        });
        assert_eq!(receive.recv().unwrap().as_deref(), Some("leasehold"));
    }
}
