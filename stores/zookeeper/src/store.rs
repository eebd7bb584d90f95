//! The store: what it is configured with.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use leasehold_core::doctor::Finding;
use leasehold_core::store::{Inbox, Pending, Presence, Session, Store};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Result, Traits};

use crate::config::Config;
use crate::doctor;
use crate::session::ZooKeeperSession;
use crate::traits::TRAITS;

/// Locks on ZooKeeper.
///
/// Nothing is connected before a session is opened. Each client session is one ZooKeeper session.
#[derive(Debug)]
pub struct ZooKeeper {
    pub(crate) config: Arc<Config>,
    /// Whether the last session could not be opened.
    pub(crate) failed: AtomicBool,
}

impl ZooKeeper {
    /// A store with this configuration.
    #[allow(clippy::new_ret_no_self)] // A store is only ever used behind an `Arc`.
    pub fn new(config: Config) -> Arc<Self> {
        Arc::new(ZooKeeper { config: Arc::new(config), failed: AtomicBool::new(false) })
    }

    /// A store at this URL.
    pub fn from_url(url: StoreUrl) -> Result<Arc<Self>> {
        Config::from_url(url).map(ZooKeeper::new)
    }
}

/// The schemes of URLs that lead to this store.
pub const SCHEMES: &[&str] = &["zookeeper", "zk", "zookeeper+tls", "zk+tls"];

/// Opens the store at a URL. Nothing is connected yet.
pub fn open(url: StoreUrl) -> Result<Arc<dyn Store>> {
    Ok(ZooKeeper::from_url(url)?)
}

impl Store for ZooKeeper {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn url(&self) -> String {
        self.config.url()
    }

    fn open(self: Arc<Self>, me: Presence, inbox: Arc<dyn Inbox>) -> Pending<Arc<dyn Session>> {
        Box::pin(async move { Ok(ZooKeeperSession::open(self, me, inbox).await? as Arc<dyn Session>) })
    }

    fn timeout(&self) -> Duration {
        self.config.timeout()
    }

    fn examine(self: Arc<Self>) -> Pending<Vec<Finding>> {
        Box::pin(async move { doctor::examine(&self.config).await.map_err(|e| e.at(self.url())) })
    }
}
