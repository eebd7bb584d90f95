//! A task that ends with its owner.

use std::future::Future;

use tokio::task::JoinHandle;

/// A spawned task. Dropping it aborts the task.
#[derive(Debug)]
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    /// Spawns it on the current runtime.
    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Task(tokio::spawn(future))
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
