//! The thread behind a blocking client.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, Kind, Result};

/// A runtime of one thread, shared by a client, its locks and its guards.
#[derive(Clone)]
pub(crate) struct Runtime(Arc<Inner>);

struct Inner(Option<tokio::runtime::Runtime>);

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Never waits: it may be dropped where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}

impl Runtime {
    pub(crate) fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("leasehold")
            .enable_all()
            .build()
            .map_err(|e| {
                Error::new(Kind::Unavailable, "the client's thread could not be started").because(e)
            })?;
        Ok(Runtime(Arc::new(Inner(Some(runtime)))))
    }

    fn inner(&self) -> &tokio::runtime::Runtime {
        self.0.0.as_ref().expect("taken only when dropped")
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
        Ok(self.inner().block_on(future))
    }

    /// Gives a lock back from a destructor: waits a moment for it, so that a program that ends right after has given back its
    /// locks, but never for long, and not at all inside an async task.
    pub(crate) fn give_back(&self, release: impl Future<Output = Result<()>>) {
        let _ = self.wait(async { tokio::time::timeout(Duration::from_secs(1), release).await });
    }
}
