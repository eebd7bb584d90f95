//! What the tests share: sets of real servers, and stores on them that nobody else uses.
#![allow(dead_code)] // Not every test uses all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_client::{Budget, Client, Guard};
use leasehold_core::store::{Pending, Store, ready};
use leasehold_core::url::StoreUrl;
use leasehold_testkit::servers::Independent;
use leasehold_testkit::{Bed, Place};

/// Stores on one set of servers, each with a prefix of its own: so each is a new set.
pub(crate) struct OnServers(pub(crate) &'static Independent);

impl Bed for OnServers {
    fn fresh(&self) -> Pending<Place> {
        let url = fresh_url(self.0);
        ready(open(&url).map(|store| Place { store, url: Some(url), keep: Box::new(()) }))
    }

    fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
        ready(open(&url))
    }
}

/// A prefix that no other test and no other process uses.
pub(crate) fn fresh_prefix() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("t{}.{}:", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A store that nobody else uses. Nodes have time on a loaded machine.
pub(crate) fn fresh_url(servers: &Independent) -> String {
    format!("{}?prefix={}&timeout=2s", servers.url(), fresh_prefix())
}

/// The store at a URL.
pub(crate) fn open(url: &str) -> leasehold_core::Result<Arc<dyn Store>> {
    leasehold_redlock::open(StoreUrl::parse(url)?)
}

/// A client whose every claim is an entry of its own, with this lease.
pub(crate) async fn client(url: &str, lease: Duration) -> Client {
    let builder = Client::builder().local_queue(Budget::off()).default_lease(lease);
    leasehold_testkit::stage::open(builder, open(url).expect("a store")).await
}

/// Gets a lock, and says what it waited for if it takes too long.
pub(crate) async fn take(client: &Client, name: &str) -> Guard {
    leasehold_testkit::wait::soon("a lock", client.mutex(name).lock()).await.expect("a lock")
}

/// A lease for tests that wait for its end.
pub(crate) const SHORT: Duration = Duration::from_millis(800);

/// A lease that does not end during a test.
pub(crate) const LONG: Duration = Duration::from_secs(60);
