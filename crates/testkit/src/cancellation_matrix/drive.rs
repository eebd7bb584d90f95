//! A future that is polled by hand.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::Boxed;

/// A future that is polled by hand, and only after it was woken: each poll finds something new.
pub struct Stepped<T> {
    future: Boxed<T>,
    woken: Arc<Woken>,
    polls: usize,
}

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<T> Stepped<T> {
    /// Not polled yet.
    pub fn new(future: Boxed<T>) -> Self {
        Stepped { future, woken: Arc::new(Woken(Notify::new())), polls: 0 }
    }

    /// Polls it once.
    pub fn poll(&mut self) -> Option<T> {
        self.polls += 1;
        let waker = Waker::from(self.woken.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// How often it was polled.
    pub fn polls(&self) -> usize {
        self.polls
    }

    /// Waits until it wants to be polled again. `false` if it does not within this time.
    pub async fn woken(&mut self, within: Duration) -> bool {
        timeout(within, self.woken.0.notified()).await.is_ok()
    }

    /// Leaves it to the runtime.
    pub async fn finish(self) -> T {
        self.future.await
    }
}
