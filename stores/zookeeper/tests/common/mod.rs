//! Where the stores under test come from: one server for a whole test binary, a root of its own for each test.
#![allow(dead_code)] // Each binary uses its part of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use leasehold_core::Result;
use leasehold_core::store::{Pending, Store, ready};
use leasehold_core::url::StoreUrl;
use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};
use leasehold_testkit::{Bed, Place};

/// How long the sessions of processes live that tests kill: not longer than the leases there.
const SHORT: &str = "1500ms";

/// How long those of the tests themselves live: longer than a busy machine stands still.
const LONG: &str = "10s";

/// A root that no other test uses.
pub(crate) fn root() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("t{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The store at a URL, with a root of its own.
pub(crate) fn place(url: &str) -> Result<Place> {
    let url = format!("{url}?root={}&session=", root());
    let store = open(&format!("{url}{LONG}"))?;
    Ok(Place { store, url: Some(format!("{url}{SHORT}")), keep: Box::new(()) })
}

/// Opens a store.
pub(crate) fn open(url: &str) -> Result<Arc<dyn Store>> {
    leasehold_zookeeper::open(StoreUrl::parse(url)?)
}

/// One server for the whole binary.
pub(crate) struct Single;

static SINGLE: LazyLock<ZooKeeper> = LazyLock::new(|| ZooKeeper::start(ZooKeeperOptions::new()));

/// The server of [`Single`].
pub(crate) fn server() -> &'static ZooKeeper {
    &SINGLE
}

impl Bed for Single {
    fn fresh(&self) -> Pending<Place> {
        ready(place(&SINGLE.url()))
    }

    fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
        ready(open(&url))
    }
}
