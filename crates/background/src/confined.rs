//! Futures that are dead in forked children.
//!
//! A task of the user's runtime goes on in a child that is forked inside that runtime, with the sockets of its parent: it would read the
//! parent's answers, and closing a socket there takes it off the parent's event queue.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::fork;

/// A future that runs only in the process in which it was made. In a forked child it never does anything again, not even when it is
/// dropped.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Confined<T> {
    generation: u32,
    /// `None` in a child: it was forgotten.
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

/// Confines a future to this process.
pub fn confined<T>(future: impl Future<Output = T> + Send + 'static) -> Confined<T> {
    Confined { generation: fork::generation(), future: Some(Box::pin(future)) }
}

impl<T> Confined<T> {
    /// Leaks the future if this is a forked child.
    fn forget_in_child(&mut self) {
        if self.generation != fork::generation() {
            std::mem::forget(self.future.take());
        }
    }
}

impl<T> Future for Confined<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.forget_in_child();
        match &mut self.future {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Confined<T> {
    fn drop(&mut self) {
        self.forget_in_child();
    }
}
