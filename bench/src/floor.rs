//! The code that Leasehold is compared with: what a user would write without it.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

const SHARDS: usize = 64;

type Shard = Mutex<HashMap<String, Arc<AsyncMutex<()>>>>;

/// A tokio mutex per name, made when it is wanted and removed when nobody uses it.
pub(crate) struct NamedMutexes {
    shards: [Shard; SHARDS],
    hasher: RandomState,
}

/// One of them, locked.
pub(crate) struct NamedGuard<'a> {
    all: &'a NamedMutexes,
    name: &'a str,
    guard: OwnedMutexGuard<()>,
}

impl NamedMutexes {
    pub(crate) fn new() -> Self {
        NamedMutexes { shards: std::array::from_fn(|_| Shard::default()), hasher: RandomState::new() }
    }

    /// Waits for a name.
    pub(crate) async fn lock<'a>(&'a self, name: &'a str) -> NamedGuard<'a> {
        let mutex = {
            let mut shard = self.shard(name).lock().expect("nothing panics in here");
            match shard.get(name) {
                Some(mutex) => mutex.clone(),
                None => shard.entry(name.to_owned()).or_default().clone(),
            }
        };
        NamedGuard { all: self, name, guard: mutex.lock_owned().await }
    }

    fn shard(&self, name: &str) -> &Shard {
        &self.shards[self.hasher.hash_one(name) as usize % SHARDS]
    }
}

impl NamedGuard<'_> {
    /// Gives it back, and removes the entry if nobody else holds or waits.
    pub(crate) fn release(self) {
        let NamedGuard { all, name, guard } = self;
        let mut shard = all.shard(name).lock().expect("nothing panics in here");
        drop(guard);
        if shard.get(name).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            shard.remove(name);
        }
    }
}

/// Opens a file that exists, locks it, unlocks it, closes it.
pub(crate) fn open_flock_unlock_close(path: &Path) -> rustix::io::Result<()> {
    let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    flock(&file, FlockOperation::LockExclusive)?;
    flock(&file, FlockOperation::Unlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_excludes_and_leaves_nothing_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mutexes = NamedMutexes::new();
        runtime.block_on(async {
            let held = mutexes.lock("a").await;
            let wait = std::time::Duration::from_millis(10);
            assert!(tokio::time::timeout(wait, mutexes.lock("a")).await.is_err());
            held.release();
            mutexes.lock("a").await.release();
        });
        assert!(mutexes.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }
}
