//! How a thread waits for the async client, whose work is done on the background thread of the process.

use std::future::Future;
use std::time::Duration;

use leasehold_background::Background;
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

    /// Blocks until it is done; refused inside an async task, which must not block.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(Error::new(Kind::Invalid, "the blocking API was called inside an async runtime")
                .advice("use the async API there, or call this from a thread of its own (spawn_blocking)"));
        }
        Ok(self.0.runtime().block_on(future))
    }

    /// As [`wait`](Self::wait), but no longer than `time`.
    pub(crate) fn wait_within<T>(
        &self,
        time: Duration,
        future: impl Future<Output = T>,
    ) -> Result<Option<T>> {
        self.wait(self.0.timeout(time, future))
    }

    /// Gives a lock back from a destructor: waits a moment for it, so that the lock is free when the guard is gone, but never
    /// for long, and not at all inside an async task.
    pub(crate) fn give_back(&self, release: impl Future<Output = Result<()>>) {
        let _ = self.wait_within(Duration::from_secs(1), release);
    }
}
