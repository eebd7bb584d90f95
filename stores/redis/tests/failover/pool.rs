//! Sets of servers, each for one test at a time: a failover happens to all who are there.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use leasehold_testkit::servers::{Cluster, Sentinels};

/// A set of servers that tests lend to each other: starting one takes longer than most tests.
pub(crate) trait Set: Sized + Send + 'static {
    fn pool() -> &'static Mutex<Vec<Self>>;
    fn start() -> Self;
    fn wait_until_ready(&self);
}

impl Set for Sentinels {
    fn pool() -> &'static Mutex<Vec<Self>> {
        static POOL: Mutex<Vec<Sentinels>> = Mutex::new(Vec::new());
        &POOL
    }

    fn start() -> Self {
        Sentinels::start()
    }

    fn wait_until_ready(&self) {
        self.wait_until_ready();
    }
}

impl Set for Cluster {
    fn pool() -> &'static Mutex<Vec<Self>> {
        static POOL: Mutex<Vec<Cluster>> = Mutex::new(Vec::new());
        &POOL
    }

    fn start() -> Self {
        Cluster::start(3, 1)
    }

    fn wait_until_ready(&self) {
        self.wait_until_ready();
    }
}

/// A set that goes back when the test is over. That of a test that fails does not.
pub(crate) struct Borrowed<T: Set>(Option<T>);

impl<T: Set> Deref for Borrowed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is given back only in the end")
    }
}

impl<T: Set> Drop for Borrowed<T> {
    fn drop(&mut self) {
        if let Some(set) = self.0.take().filter(|_| !std::thread::panicking()) {
            T::pool().lock().unwrap_or_else(PoisonError::into_inner).push(set);
        }
    }
}

fn borrow<T: Set>() -> Borrowed<T> {
    let free = T::pool().lock().unwrap_or_else(PoisonError::into_inner).pop();
    let set = Borrowed(Some(free.unwrap_or_else(T::start)));
    set.wait_until_ready();
    set
}

/// A master with two replicas, watched by three sentinels.
pub(crate) fn sentinels() -> Borrowed<Sentinels> {
    borrow()
}

/// Three masters with a replica each.
pub(crate) fn cluster() -> Borrowed<Cluster> {
    borrow()
}
