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
pub struct Confined<F> {
    generation: u32,
    /// `None` in a child: it was forgotten.
    future: Option<Pin<Box<F>>>,
}

/// Confines a future to this process.
pub fn confined<F: Future>(future: F) -> Confined<F> {
    Confined { generation: fork::generation(), future: Some(Box::pin(future)) }
}

impl<F> Confined<F> {
    /// Leaks the future if this is a forked child.
    fn forget_in_child(&mut self) {
        if self.generation != fork::generation() {
            std::mem::forget(self.future.take());
        }
    }
}

impl<F: Future> Future for Confined<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.forget_in_child();
        match &mut self.future {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for Confined<F> {
    fn drop(&mut self) {
        self.forget_in_child();
    }
}
