//! Where the stores under test come from: one server (or set of servers) for a whole test binary, a prefix for each test.
#![allow(dead_code)] // Each binary uses its part of it.

pub(crate) mod play;

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::Result;
use leasehold_core::store::{Pending, Store, ready};
use leasehold_core::url::StoreUrl;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::servers::{Cluster, Sentinels};
use leasehold_testkit::{Bed, Place};

/// A prefix that no other test uses.
pub(crate) fn prefix() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("t{}-{}:", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The store at a URL, with a prefix of its own.
pub(crate) fn place(url: &str) -> Result<Place> {
    let url = format!("{url}?prefix={}", prefix());
    Ok(Place { store: open(&url)?, url: Some(url), keep: Box::new(()) })
}

/// Opens a store.
pub(crate) fn open(url: &str) -> Result<Arc<dyn Store>> {
    leasehold_redis::open(StoreUrl::parse(url)?)
}

/// A store at a URL that says it all.
pub(crate) struct At(pub(crate) String);

impl Bed for At {
    fn fresh(&self) -> Pending<Place> {
        let (store, url) = (open(&self.0), Some(self.0.clone()));
        ready(store.map(|store| Place { store, url, keep: Box::new(()) }))
    }

    fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
        ready(open(&url))
    }
}

/// One server for the whole binary.
pub(crate) struct Single;

/// A master with two replicas and three sentinels for the whole binary.
pub(crate) struct Watched;

/// Three masters with a replica each for the whole binary.
pub(crate) struct Sharded;

static SINGLE: LazyLock<Redis> = LazyLock::new(|| Redis::start(RedisOptions::new()));
static WATCHED: LazyLock<Sentinels> = LazyLock::new(Sentinels::start);
static SHARDED: LazyLock<Cluster> = LazyLock::new(|| Cluster::start(3, 1));

macro_rules! bed {
    ($bed:ident, $servers:ident) => {
        impl Bed for $bed {
            fn fresh(&self) -> Pending<Place> {
                ready(place(&$servers.url()))
            }

            fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
                ready(open(&url))
            }
        }
    };
}

bed!(Single, SINGLE);
bed!(Watched, WATCHED);
bed!(Sharded, SHARDED);
