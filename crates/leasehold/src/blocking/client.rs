//! The client, and its streams as iterators.

use std::time::Duration;

use leasehold_client::{
    ClientBuilder, EntryView, Event, IntoName, Label, Part, Result, SessionId, Snapshot, Token, Traits,
};

use super::recipes::{Leader, Multi, Mutex, RwLock, Semaphore, Striped};
use super::runtime::Runtime;

/// As [`leasehold::connect`](crate::connect()), for threads.
pub fn connect(url: &str) -> Result<Client> {
    connect_with(leasehold_client::Client::builder(), url)
}

/// As [`leasehold::connect_with`](crate::connect_with), for threads.
pub fn connect_with(options: ClientBuilder, url: &str) -> Result<Client> {
    let runtime = Runtime::new()?;
    let inner = runtime.run(crate::connect_with(options, url))?;
    Ok(Client { inner, runtime })
}

/// As [`leasehold::Client`](crate::Client), for threads. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: leasehold_client::Client,
    runtime: Runtime,
}

impl Client {
    /// As [`leasehold::Client::with_retry_for`](crate::Client::with_retry_for).
    pub fn with_retry_for(&self, time: Duration) -> Client {
        Client { inner: self.inner.with_retry_for(time), ..self.clone() }
    }

    /// A lock that one holds at a time.
    pub fn mutex(&self, name: impl IntoName) -> Mutex {
        Mutex::new(self.inner.mutex(name), &self.runtime)
    }

    /// A lock that many readers or one writer hold.
    pub fn rwlock(&self, name: impl IntoName) -> RwLock {
        RwLock::new(self.inner.rwlock(name), &self.runtime)
    }

    /// A number of permits that many share.
    pub fn semaphore(&self, name: impl IntoName, limit: u32) -> Semaphore {
        Semaphore::new(self.inner.semaphore(name, limit), &self.runtime)
    }

    /// Several locks as one: all or nothing.
    pub fn multi(&self, parts: impl IntoIterator<Item = Part>) -> Multi {
        Multi::new(self.inner.multi(parts), &self.runtime)
    }

    /// One name cut into `stripes` locks, of which a key picks one.
    pub fn striped(&self, name: impl IntoName, stripes: u32) -> Striped {
        Striped::new(self.inner.striped(name, stripes), &self.runtime)
    }

    /// The election of a leader.
    pub fn leader(&self, name: impl IntoName) -> Leader {
        Leader::new(self.inner.leader(name), &self.runtime)
    }

    /// Who holds a lock and who waits for it.
    pub fn inspect(&self, name: impl IntoName) -> Result<Snapshot> {
        self.runtime.run(self.inner.inspect(name))
    }

    /// The locks in use whose names start with `prefix`, in the order of their names.
    pub fn list(&self, prefix: impl Into<String>) -> Listing {
        Listing { inner: self.inner.list(prefix), runtime: self.runtime }
    }

    /// As [`leasehold::Client::force_release`](crate::Client::force_release).
    pub fn force_release(&self, name: impl IntoName, expected: Option<Token>) -> Result<Vec<EntryView>> {
        self.runtime.run(self.inner.force_release(name, expected))
    }

    /// As [`leasehold::Client::request_release`](crate::Client::request_release).
    pub fn request_release(&self, name: impl IntoName, expected: Option<Token>) -> Result<Vec<EntryView>> {
        self.runtime.run(self.inner.request_release(name, expected))
    }

    /// What happens from now on to locks whose names start with `prefix`.
    pub fn watch(&self, prefix: impl Into<String>) -> Result<Watch> {
        let inner = self.runtime.run(self.inner.watch(prefix))?;
        Ok(Watch { inner, runtime: self.runtime })
    }

    /// What the store promises.
    pub fn traits(&self) -> &'static Traits {
        self.inner.traits()
    }

    /// The store's URL, without a password.
    pub fn store_url(&self) -> String {
        self.inner.store_url()
    }

    /// What others read about this client.
    pub fn label(&self) -> &Label {
        self.inner.label()
    }

    /// This client's session at the store.
    pub fn session(&self) -> SessionId {
        self.inner.session()
    }

    /// Gives everything back and ends the session.
    pub fn close(&self) -> Result<()> {
        self.runtime.run(self.inner.close())
    }
}

/// The locks in use: an iterator.
pub struct Listing {
    inner: leasehold_client::Listing,
    runtime: Runtime,
}

impl Iterator for Listing {
    type Item = Result<Snapshot>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.wait(self.inner.next()).unwrap_or_else(|error| Some(Err(error)))
    }
}

/// What happens to locks: an iterator that blocks until something does.
pub struct Watch {
    inner: leasehold_client::Watch,
    runtime: Runtime,
}

impl Watch {
    /// The next event, or `None` if nothing happened within `time`.
    pub fn next_within(&mut self, time: Duration) -> Option<Result<Event>> {
        match self.runtime.wait_within(time, self.inner.next()) {
            Ok(next) => next.flatten(),
            Err(error) => Some(Err(error)),
        }
    }
}

impl Iterator for Watch {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.wait(self.inner.next()).unwrap_or_else(|error| Some(Err(error)))
    }
}

/// Who leads, and every change of it: an iterator that blocks until there is one.
pub struct Observe {
    pub(super) inner: leasehold_client::Observe,
    pub(super) runtime: Runtime,
}

impl Iterator for Observe {
    type Item = Result<Option<EntryView>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.wait(self.inner.next()).unwrap_or_else(|error| Some(Err(error)))
    }
}
