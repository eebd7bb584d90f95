//! The one place that says which mutex the local queue runs on: the system's, or the one of the `shuttle` checker, which
//! explores the orders in which threads can meet.

pub(crate) use std::sync::Arc;

pub(crate) use std::sync::atomic::Ordering;

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::AtomicU32;
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::AtomicU32;
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locks, and goes on after a panic elsewhere: what these mutexes guard is never left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
