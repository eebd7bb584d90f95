//! How a thread waits for the async client, whose work is done on the background thread of the process.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_background::{Background, is_thread_ending};
use leasehold_core::{Error, Kind, Result};

/// Shared by a blocking client, its locks and its guards.
#[derive(Clone, Copy)]
pub(crate) struct Runtime(Background);

impl Runtime {
    pub(crate) fn new() -> Result<Self> {
        let not_started =
            |e| Error::new(Kind::Unavailable, "the background thread could not be started").because(e);
        Background::get().map(Runtime).map_err(not_started)
    }

    /// Blocks until it is done.
    pub(crate) fn run<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        self.wait(future)?
    }

    /// Blocks until it is done. Refused inside an async task, which must not block, and on a thread whose thread-locals
    /// are being destroyed, which can't. In a forked child, where nothing runs that could be waited for, only what is
    /// known at once is answered.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        self.check_may_block()?;
        if self.0.is_alive() {
            return Ok(self.0.runtime().block_on(future));
        }
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Ok(output),
            Poll::Pending => {
                let what = "this process was forked from the one that opened the client";
                Err(Error::new(Kind::Refused, what)
                    .advice("connect again in the child: the locks are still the parent's"))
            }
        }
    }

    fn check_may_block(&self) -> Result<()> {
        if is_thread_ending() {
            return Err(Error::new(Kind::Invalid, "the blocking API was called while its thread ends")
                .advice("call it before the destructors of thread-locals run"));
        }
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(Error::new(Kind::Invalid, "the blocking API was called inside an async runtime")
                .advice(
                    "use the async API there, or call this from a thread that does not belong to a runtime \
                     (std::thread::spawn, not spawn_blocking)",
                ));
        }
        Ok(())
    }

    /// As [`wait`](Self::wait), but no longer than `time`.
    pub(crate) fn wait_within<T>(
        &self,
        time: Duration,
        future: impl Future<Output = T>,
    ) -> Result<Option<T>> {
        if self.0.is_alive() {
            return self.wait(self.0.timeout(time, future));
        }
        self.wait(future).map(Some)
    }

    /// Gives a lock back from a destructor: waits a moment for it, so that the lock is free when the guard is gone, but never
    /// for long, and not at all inside an async task. A release that is not waited for goes on in the background.
    pub(crate) fn give_back(&self, release: impl Future<Output = Result<()>>) {
        if self.0.is_alive() && self.check_may_block().is_ok() {
            let _ = self.0.block_on_at_drop(release);
        }
    }
}
