//! The store: what it is configured with, and the scripts for it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::doctor::Finding;
use leasehold_core::store::{Inbox, Pending, Presence, Session, Store};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Result, Traits};
use leasehold_redis::config::Server;
use leasehold_redis::wire::channels;

use crate::config::{Config, FirstUse};
use crate::doctor;
use crate::scripts::{CLOCK, INFO, Scripts, Setting};
use crate::session::RedlockSession;
use crate::traits;

/// Locks on a quorum of independent Redis masters.
///
/// Nothing is connected before a session is opened. A lock costs one round trip to all nodes at once, and so does its release.
pub struct Redlock {
    pub(crate) config: Arc<Config>,
    pub(crate) scripts: Arc<Scripts>,
}

impl Redlock {
    /// A store with this configuration.
    #[allow(clippy::new_ret_no_self)] // A store is only ever used behind an `Arc`.
    pub fn new(config: Config) -> Arc<Self> {
        let prefix = config.prefix();
        // Channels are the same in all databases of a server, and sessions have ids of their own.
        let db = config.servers.first().map_or(0, Server::db);
        let scripts = Scripts::new(&Setting {
            prefix,
            events: &channels::events(prefix, "", db.into()),
            sessions: &format!("{prefix}s:"),
            clock: CLOCK,
            info: INFO,
        });
        Arc::new(Redlock { config: Arc::new(config), scripts: Arc::new(scripts) })
    }

    /// Begins a store whose nodes are given one by one.
    ///
    /// ```
    /// use leasehold_redlock::Redlock;
    /// let store = Redlock::builder()
    ///     .node("redis://10.0.0.1")
    ///     .node("redis://10.0.0.2")
    ///     .node("unix:/run/redis.sock")
    ///     .build()?;
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What it is configured with.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// A [`Redlock`] store that is being put together.
#[derive(Debug, Default)]
#[must_use = "call build"]
pub struct Builder {
    nodes: Vec<String>,
    timeout: Option<Duration>,
    prefix: Option<String>,
    longest_lease: Option<Duration>,
    first_use: FirstUse,
}

impl Builder {
    /// Adds a node by its own URL: `redis://`, `rediss://` or `unix:`.
    pub fn node(mut self, url: impl Into<String>) -> Self {
        self.nodes.push(url.into());
        self
    }

    /// See [`Config::with_timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// See [`Config::with_prefix`].
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// See [`Config::with_longest_lease`].
    pub fn longest_lease(mut self, longest: Duration) -> Self {
        self.longest_lease = Some(longest);
        self
    }

    /// See [`Config::with_first_use`].
    pub fn first_use(mut self, first_use: FirstUse) -> Self {
        self.first_use = first_use;
        self
    }

    /// The store. Fails if a URL can't be read, or there are fewer than three nodes.
    pub fn build(self) -> Result<Arc<Redlock>> {
        let servers: Result<Vec<Server>> = self.nodes.iter().map(|url| Server::parse(url)).collect();
        let mut config = Config::new(servers?)?.with_first_use(self.first_use);
        if let Some(timeout) = self.timeout {
            config = config.with_timeout(timeout);
        }
        if let Some(prefix) = self.prefix {
            config = config.with_prefix(prefix);
        }
        if let Some(longest) = self.longest_lease {
            config = config.with_longest_lease(longest);
        }
        Ok(Redlock::new(config))
    }
}

/// The schemes of URLs that lead to this store.
pub const SCHEMES: &[&str] = &["redlock", "redlocks"];

/// Opens the store at a URL. Nothing is connected yet.
pub fn open(url: StoreUrl) -> Result<Arc<dyn Store>> {
    Ok(Redlock::new(Config::from_url(url)?))
}

impl Store for Redlock {
    fn traits(&self) -> &'static Traits {
        traits::with_longest(self.config.longest_lease())
    }

    fn url(&self) -> String {
        self.config.url()
    }

    fn timeout(&self) -> Duration {
        self.config.timeout()
    }

    fn open(self: Arc<Self>, me: Presence, inbox: Arc<dyn Inbox>) -> Pending<Arc<dyn Session>> {
        Box::pin(async move { Ok(RedlockSession::open(self, me, inbox).await? as Arc<dyn Session>) })
    }

    fn examine(self: Arc<Self>) -> Pending<Vec<Finding>> {
        Box::pin(async move { doctor::examine(&self).await })
    }
}
