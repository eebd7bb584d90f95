//! The store: what it is configured with, and the scripts for it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::doctor::Finding;
use leasehold_core::store::{Inbox, Pending, Presence, Session, Store};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Result, Traits};

use crate::config::Config;
use crate::doctor;
use crate::keys::Keys;
use crate::scripts::{SERVER_CLOCK, Scripts, Setting};
use crate::session::RedisSession;
use crate::traits::TRAITS;

/// Locks on Redis: a server, a master with replicas behind sentinels, or a cluster.
///
/// Nothing is connected before a session is opened.
pub struct Redis {
    pub(crate) config: Arc<Config>,
    pub(crate) keys: Keys,
    pub(crate) scripts: Scripts,
}

impl Redis {
    /// A store with this configuration.
    #[allow(clippy::new_ret_no_self)] // A store is only ever used behind an `Arc`.
    pub fn new(config: Config) -> Arc<Self> {
        Self::with_clock(config, SERVER_CLOCK)
    }

    /// A store whose scripts read the time by another Lua expression than `redis.call('TIME')`: a test sets the clock.
    #[doc(hidden)]
    pub fn with_clock(config: Config, clock: &str) -> Arc<Self> {
        let scripts = Scripts::new(&Setting {
            prefix: config.prefix(),
            db: config.db(),
            cluster: config.is_cluster(),
            retention: config.retention(),
            clock,
        });
        Arc::new(Redis { keys: Keys::new(config.prefix()), config: Arc::new(config), scripts })
    }

    /// A store at this URL.
    pub fn from_url(url: StoreUrl) -> Result<Arc<Self>> {
        Config::from_url(url).map(Redis::new)
    }
}

/// The schemes of URLs that lead to this store.
pub const SCHEMES: &[&str] = &[
    "redis",
    "rediss",
    "unix",
    "redis+unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
];

/// Opens the store at a URL. Nothing is connected yet.
pub fn open(url: StoreUrl) -> Result<Arc<dyn Store>> {
    Ok(Redis::from_url(url)?)
}

impl Store for Redis {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn url(&self) -> String {
        self.config.url()
    }

    fn timeout(&self) -> Duration {
        self.config.timeout()
    }

    fn open(self: Arc<Self>, me: Presence, inbox: Arc<dyn Inbox>) -> Pending<Arc<dyn Session>> {
        Box::pin(async move { Ok(RedisSession::open(self, me, inbox).await? as Arc<dyn Session>) })
    }

    fn examine(self: Arc<Self>) -> Pending<Vec<Finding>> {
        Box::pin(async move { doctor::examine(&self).await.map_err(|e| e.at(self.url())) })
    }
}
