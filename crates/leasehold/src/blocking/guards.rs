//! What a thread holds.

use std::ops::Deref;
use std::time::Duration;

use leasehold_client::{Error, Lost, Result};

use super::runtime::Runtime;

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident of $inner:ty, $release:ident, $release_within:ident) => {
        $(#[$doc])*
        #[must_use = "the lock is released as soon as its guard is dropped"]
        pub struct $name {
            inner: Option<$inner>,
            runtime: Runtime,
        }

        impl $name {
            pub(super) fn new(inner: $inner, runtime: &Runtime) -> Self {
                Self { inner: Some(inner), runtime: *runtime }
            }

            fn take(&mut self) -> $inner {
                self.inner.take().expect("emptied only when it is consumed")
            }

            /// Gives the lock back and reports whether it was still held.
            pub fn $release(mut self) -> Result<()> {
                let inner = self.take();
                self.runtime.run(inner.$release())
            }

            /// The same, but waits for the store no longer than `time`: the release itself goes on after it.
            pub fn $release_within(mut self, time: Duration) -> Result<()> {
                let inner = self.take();
                self.runtime.run(inner.$release_within(time))
            }

            /// Waits until the lock is lost, but no longer than `time`. `None` if it is held then.
            pub fn lost_within(&self, time: Duration) -> Result<Option<Lost>> {
                self.runtime.wait_within(time, self.lost())
            }

            /// Waits until somebody asks for the lock back, but no longer than `time`. Tells whether somebody did.
            pub fn release_requested_within(&self, time: Duration) -> Result<bool> {
                Ok(self.runtime.wait_within(time, self.release_requested())?.is_some())
            }
        }

        /// Everything that needs no waiting: token, name, validity.
        impl Deref for $name {
            type Target = $inner;

            fn deref(&self) -> &$inner {
                self.inner.as_ref().expect("emptied only when it is consumed")
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                if let Some(inner) = self.inner.take() {
                    self.runtime.give_back(inner.$release());
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.inner, f)
            }
        }
    };
}

guard! {
    /// As [`leasehold::Guard`](crate::Guard), for threads.
    Guard of leasehold_client::Guard, release, release_within
}

guard! {
    /// As [`leasehold::WriteGuard`](crate::WriteGuard), for threads.
    WriteGuard of leasehold_client::WriteGuard, release, release_within
}

guard! {
    /// As [`leasehold::MultiGuard`](crate::MultiGuard), for threads.
    MultiGuard of leasehold_client::MultiGuard, release, release_within
}

guard! {
    /// As [`leasehold::Leadership`](crate::Leadership), for threads.
    Leadership of leasehold_client::Leadership, resign, resign_within
}

impl WriteGuard {
    /// As [`leasehold::WriteGuard::downgrade`](crate::WriteGuard::downgrade).
    pub fn downgrade(self) -> Result<Guard, DowngradeError> {
        self.downgrade_or_keep(None)
    }

    /// As [`leasehold::WriteGuard::downgrade_within`](crate::WriteGuard::downgrade_within).
    pub fn downgrade_within(self, time: Duration) -> Result<Guard, DowngradeError> {
        self.downgrade_or_keep(Some(time))
    }

    fn downgrade_or_keep(mut self, limit: Option<Duration>) -> Result<Guard, DowngradeError> {
        let runtime = self.runtime;
        let asked = runtime.wait(async {
            // Taken when it is polled: a call that is refused leaves the lock here.
            let writer = self.take();
            match limit {
                None => writer.downgrade().await,
                Some(limit) => writer.downgrade_within(limit).await,
            }
        });
        let (error, guard) = match asked {
            Ok(Ok(reader)) => return Ok(Guard::new(reader, &runtime)),
            Ok(Err(failed)) => {
                let error = failed.error().clone();
                let guard = match failed.into_writer() {
                    Ok(writer) => Ok(WriteGuard::new(writer, &runtime)),
                    Err(reader) => Err(Guard::new(reader, &runtime)),
                };
                (error, guard)
            }
            Err(refused) => (refused, Ok(self)),
        };
        Err(DowngradeError(Box::new(Kept { error, guard })))
    }
}

/// As [`leasehold::DowngradeError`](crate::DowngradeError), for threads.
pub struct DowngradeError(Box<Kept>);

#[derive(Debug)]
struct Kept {
    error: Error,
    guard: Result<WriteGuard, Guard>,
}

impl DowngradeError {
    /// What went wrong.
    pub fn error(&self) -> &Error {
        &self.0.error
    }

    /// Whether the lock is certainly a write lock still.
    pub fn is_writer(&self) -> bool {
        self.0.guard.is_ok()
    }

    /// The lock: good to read with, whatever came of the downgrade.
    pub fn into_guard(self) -> Guard {
        self.into_parts().1
    }

    /// The write lock if it is certainly one still, else what is good to read with.
    #[allow(clippy::result_large_err)] // Both variants are a guard.
    pub fn into_writer(self) -> Result<WriteGuard, Guard> {
        self.0.guard
    }

    /// What went wrong, and the lock.
    pub fn into_parts(self) -> (Error, Guard) {
        let Kept { error, guard } = *self.0;
        let guard = guard.map(|mut writer| {
            let inner = writer.take();
            Guard::new(inner.into_guard(), &writer.runtime)
        });
        (error, guard.unwrap_or_else(|reader| reader))
    }
}

impl std::fmt::Display for DowngradeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what =
            if self.is_writer() { "the write lock was not" } else { "the write lock may not have been" };
        write!(f, "{what} downgraded: {}", self.0.error)
    }
}

impl std::fmt::Debug for DowngradeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Kept { error, guard } = &*self.0;
        f.debug_struct("DowngradeError").field("error", error).field("guard", guard).finish()
    }
}

impl std::error::Error for DowngradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.error)
    }
}

/// Gives the lock back.
impl From<DowngradeError> for Error {
    fn from(failed: DowngradeError) -> Error {
        failed.into_parts().0
    }
}
