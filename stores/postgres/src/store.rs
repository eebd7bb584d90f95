//! The store: what it is configured with.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::doctor::Finding;
use leasehold_core::store::{Inbox, Pending, Presence, Session, Store};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Result, Traits};

use crate::config::Config;
use crate::doctor;
use crate::session;
use crate::traits::TRAITS;

/// Locks in a PostgreSQL database.
///
/// Nothing is connected before a session is opened.
pub struct Postgres {
    config: Arc<Config>,
}

impl Postgres {
    /// A store with this configuration.
    #[allow(clippy::new_ret_no_self)] // A store is only ever used behind an `Arc`.
    pub fn new(config: Config) -> Arc<Self> {
        Arc::new(Postgres { config: Arc::new(config) })
    }

    /// A store at this URL.
    pub fn from_url(url: StoreUrl) -> Result<Arc<Self>> {
        Config::from_url(url).map(Postgres::new)
    }
}

/// The schemes of URLs that lead to this store.
pub const SCHEMES: &[&str] = &["postgres", "postgresql"];

/// Opens the store at a URL. Nothing is connected yet.
pub fn open(url: StoreUrl) -> Result<Arc<dyn Store>> {
    Ok(Postgres::from_url(url)?)
}

impl Store for Postgres {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn url(&self) -> String {
        self.config.url()
    }

    fn timeout(&self) -> Duration {
        self.config.options.timeout
    }

    fn open(self: Arc<Self>, me: Presence, inbox: Arc<dyn Inbox>) -> Pending<Arc<dyn Session>> {
        Box::pin(session::open(self.config.clone(), me, inbox))
    }

    fn examine(self: Arc<Self>) -> Pending<Vec<Finding>> {
        Box::pin(doctor::examine(self.config.clone()))
    }
}
