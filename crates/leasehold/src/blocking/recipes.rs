//! The locks, for threads.

use std::time::Duration;

use leasehold_client::{EntryView, Order, Owner, Result};

use super::client::Observe;
use super::guards::{Guard, Leadership, MultiGuard, WriteGuard};
use super::runtime::Runtime;

macro_rules! recipe {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            inner: leasehold_client::$name,
            runtime: Runtime,
            /// Given, so the calling thread is not the owner.
            owned: bool,
        }

        impl $name {
            pub(super) fn new(inner: leasehold_client::$name, runtime: &Runtime) -> Self {
                Self { inner, runtime: *runtime, owned: false }
            }

            /// A fixed lease: the lock ends by itself after this time and is never renewed.
            pub fn lease(self, lease: Duration) -> Self {
                Self { inner: self.inner.lease(lease), ..self }
            }

            /// In which order claims get in.
            pub fn order(self, order: Order) -> Self {
                Self { inner: self.inner.order(order), ..self }
            }

            /// For whom the claim is made, instead of the calling thread.
            pub fn owner(self, owner: Owner) -> Self {
                Self { inner: self.inner.owner(owner), owned: true, ..self }
            }

            /// Lets the owner (the calling thread, unless another is given) take the lock again that it holds.
            pub fn reentrant(self) -> Self {
                Self { inner: self.inner.reentrant(), ..self }
            }

            /// How long a store that is not available is asked again before a verb fails that has no limit of its own.
            pub fn retry_for(self, time: Duration) -> Self {
                Self { inner: self.inner.retry_for(time), ..self }
            }

            /// The lock as the calling thread asks for it.
            fn mine(&self) -> leasehold_client::$name {
                if self.owned { self.inner.clone() } else { self.inner.clone().owner(Owner::this_thread()) }
            }
        }
    };
}

/// Wraps what a verb got.
macro_rules! verb {
    ($self:ident, $guard:ident, $call:expr) => {
        $self.runtime.run($call).map(|guard| $guard::new(guard, &$self.runtime))
    };
    ($self:ident, Option<$guard:ident>, $call:expr) => {
        $self.runtime.run($call).map(|guard| guard.map(|guard| $guard::new(guard, &$self.runtime)))
    };
}

recipe! {
    /// As [`leasehold::Mutex`](crate::Mutex), for threads.
    Mutex
}

impl Mutex {
    /// Waits for the lock as long as it takes.
    pub fn lock(&self) -> Result<Guard> {
        verb!(self, Guard, self.mine().lock())
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        verb!(self, Option<Guard>, self.mine().try_lock())
    }

    /// Waits for the lock no longer than `time`.
    pub fn lock_within(&self, time: Duration) -> Result<Option<Guard>> {
        verb!(self, Option<Guard>, self.mine().lock_within(time))
    }
}

recipe! {
    /// As [`leasehold::RwLock`](crate::RwLock), for threads.
    RwLock
}

impl RwLock {
    /// Waits for a read lock as long as it takes.
    pub fn read(&self) -> Result<Guard> {
        verb!(self, Guard, self.mine().read())
    }

    /// Takes a read lock if it can be had at once.
    pub fn try_read(&self) -> Result<Option<Guard>> {
        verb!(self, Option<Guard>, self.mine().try_read())
    }

    /// Waits for a read lock no longer than `time`.
    pub fn read_within(&self, time: Duration) -> Result<Option<Guard>> {
        verb!(self, Option<Guard>, self.mine().read_within(time))
    }

    /// Waits for the write lock as long as it takes.
    pub fn write(&self) -> Result<WriteGuard> {
        verb!(self, WriteGuard, self.mine().write())
    }

    /// Takes the write lock if it can be had at once.
    pub fn try_write(&self) -> Result<Option<WriteGuard>> {
        verb!(self, Option<WriteGuard>, self.mine().try_write())
    }

    /// Waits for the write lock no longer than `time`.
    pub fn write_within(&self, time: Duration) -> Result<Option<WriteGuard>> {
        verb!(self, Option<WriteGuard>, self.mine().write_within(time))
    }
}

recipe! {
    /// As [`leasehold::Semaphore`](crate::Semaphore), for threads.
    Semaphore
}

impl Semaphore {
    /// Waits for `n` permits as long as it takes.
    pub fn acquire(&self, n: u32) -> Result<Guard> {
        verb!(self, Guard, self.mine().acquire(n))
    }

    /// Takes `n` permits if they can be had at once.
    pub fn try_acquire(&self, n: u32) -> Result<Option<Guard>> {
        verb!(self, Option<Guard>, self.mine().try_acquire(n))
    }

    /// Waits for `n` permits no longer than `time`.
    pub fn acquire_within(&self, n: u32, time: Duration) -> Result<Option<Guard>> {
        verb!(self, Option<Guard>, self.mine().acquire_within(n, time))
    }

    /// The limit this handle believes in.
    pub fn limit(&self) -> u32 {
        self.inner.limit()
    }

    /// As [`leasehold::Semaphore::set_limit`](crate::Semaphore::set_limit).
    pub fn set_limit(&mut self, limit: u32) -> Result<()> {
        self.runtime.run(self.inner.set_limit(limit))
    }
}

recipe! {
    /// As [`leasehold::Multi`](crate::Multi), for threads.
    Multi
}

impl Multi {
    /// Waits for all parts as long as it takes.
    pub fn lock(&self) -> Result<MultiGuard> {
        verb!(self, MultiGuard, self.mine().lock())
    }

    /// Takes all parts if all can be had at once; else none.
    pub fn try_lock(&self) -> Result<Option<MultiGuard>> {
        verb!(self, Option<MultiGuard>, self.mine().try_lock())
    }

    /// Waits for all parts no longer than `time` in all.
    pub fn lock_within(&self, time: Duration) -> Result<Option<MultiGuard>> {
        verb!(self, Option<MultiGuard>, self.mine().lock_within(time))
    }
}

recipe! {
    /// As [`leasehold::Striped`](crate::Striped), for threads.
    Striped
}

impl Striped {
    /// Waits for the stripe of `key` as long as it takes.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Result<Guard> {
        verb!(self, Guard, self.mine().lock(key))
    }

    /// Takes the stripe of `key` if it is free.
    pub fn try_lock(&self, key: impl AsRef<[u8]>) -> Result<Option<Guard>> {
        verb!(self, Option<Guard>, self.mine().try_lock(key))
    }

    /// Waits for the stripe of `key` no longer than `time`.
    pub fn lock_within(&self, key: impl AsRef<[u8]>, time: Duration) -> Result<Option<Guard>> {
        verb!(self, Option<Guard>, self.mine().lock_within(key, time))
    }

    /// Waits for all stripes as long as it takes.
    pub fn lock_all(&self) -> Result<MultiGuard> {
        verb!(self, MultiGuard, self.mine().lock_all())
    }

    /// Waits for all stripes no longer than `time`.
    pub fn lock_all_within(&self, time: Duration) -> Result<Option<MultiGuard>> {
        verb!(self, Option<MultiGuard>, self.mine().lock_all_within(time))
    }

    /// The stripe that a key falls on.
    pub fn stripe_of(&self, key: impl AsRef<[u8]>) -> u32 {
        self.inner.stripe_of(key)
    }
}

recipe! {
    /// As [`leasehold::Leader`](crate::Leader), for threads.
    Leader
}

impl Leader {
    /// Waits to lead as long as it takes.
    pub fn campaign(&self) -> Result<Leadership> {
        verb!(self, Leadership, self.mine().campaign())
    }

    /// Leads if nobody else does.
    pub fn try_campaign(&self) -> Result<Option<Leadership>> {
        verb!(self, Option<Leadership>, self.mine().try_campaign())
    }

    /// Waits to lead no longer than `time`.
    pub fn campaign_within(&self, time: Duration) -> Result<Option<Leadership>> {
        verb!(self, Option<Leadership>, self.mine().campaign_within(time))
    }

    /// Who leads now.
    pub fn current(&self) -> Result<Option<EntryView>> {
        self.runtime.run(self.inner.current())
    }

    /// Who leads now, and every change of it.
    pub fn observe(&self) -> Result<Observe> {
        let inner = self.runtime.run(self.inner.observe())?;
        Ok(Observe { inner, runtime: self.runtime })
    }
}
