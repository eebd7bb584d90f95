//! What a thread holds.

use std::ops::Deref;
use std::time::Duration;

use leasehold_client::{Lost, Result};

use super::runtime::Runtime;

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident of $inner:ty, $release:ident) => {
        $(#[$doc])*
        #[must_use = "the lock is released as soon as its guard is dropped"]
        pub struct $name {
            inner: Option<$inner>,
            runtime: Runtime,
        }

        impl $name {
            pub(super) fn new(inner: $inner, runtime: &Runtime) -> Self {
                Self { inner: Some(inner), runtime: runtime.clone() }
            }

            fn take(&mut self) -> $inner {
                self.inner.take().expect("emptied only when it is consumed")
            }

            /// Gives the lock back and reports whether it was still held.
            pub fn $release(mut self) -> Result<()> {
                let inner = self.take();
                self.runtime.run(inner.$release())
            }

            /// Waits until the lock is lost, but no longer than `time`. `None` if it is held then.
            pub fn lost_within(&self, time: Duration) -> Result<Option<Lost>> {
                self.runtime.wait(async { tokio::time::timeout(time, self.lost()).await.ok() })
            }

            /// Waits until somebody asks for the lock back, but no longer than `time`. Tells whether somebody did.
            pub fn release_requested_within(&self, time: Duration) -> Result<bool> {
                self.runtime.wait(async { tokio::time::timeout(time, self.release_requested()).await.is_ok() })
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
    Guard of leasehold_client::Guard, release
}

guard! {
    /// As [`leasehold::WriteGuard`](crate::WriteGuard), for threads.
    WriteGuard of leasehold_client::WriteGuard, release
}

guard! {
    /// As [`leasehold::MultiGuard`](crate::MultiGuard), for threads.
    MultiGuard of leasehold_client::MultiGuard, release
}

guard! {
    /// As [`leasehold::Leadership`](crate::Leadership), for threads.
    Leadership of leasehold_client::Leadership, resign
}

impl WriteGuard {
    /// As [`leasehold::WriteGuard::downgrade`](crate::WriteGuard::downgrade).
    pub fn downgrade(mut self) -> Result<Guard> {
        let inner = self.take();
        let reader = self.runtime.run(inner.downgrade())?;
        Ok(Guard::new(reader, &self.runtime))
    }
}
