//! A task that ends with its owner.

use std::future::Future;

use leasehold_background::confined;
use tokio::task::{AbortHandle, JoinHandle};

/// A spawned task. Dropping it aborts the task.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    /// Spawns it on the current runtime. It is dead in forked children: its connection is the parent's.
    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Task(tokio::spawn(confined(future)))
    }

    /// Ends it from elsewhere.
    pub(crate) fn abort_handle(&self) -> AbortHandle {
        self.0.abort_handle()
    }

    /// Waits until it ends, also by a panic.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.0).await;
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.is_finished()
    }

    /// Makes it end.
    pub(crate) fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.abort();
    }
}
