//! Where a store under test comes from.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::store::{Pending, Store, ready};
use leasehold_core::{Error, Kind, Result};

/// Makes stores of one sort for the suite. A store that is added to the project adds a bed and nothing else.
pub trait Bed: Send + Sync + 'static {
    /// A fresh store, or a part of one, that nobody else uses.
    fn fresh(&self) -> Pending<Place>;

    /// Opens a [`Place`] again, from another process, by what its [`url`](Place::url) says.
    fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
        let what = format!("{url} can't be opened from another process");
        ready(Err(Error::new(Kind::Refused, what)))
    }

    /// Whether the usual topology of the same store runs the suite too. What a scenario shows of the client rather than of the
    /// store is then shown there, and is done less often here.
    fn is_another_topology(&self) -> bool {
        false
    }
}

/// A fresh store.
pub struct Place {
    /// The store.
    pub store: Arc<dyn Store>,
    /// What another process opens it by; `None` if the store reaches no other process.
    pub url: Option<String>,
    /// What must live as long as the store: a temporary folder, a server.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// A store that lives in one process: `InProcess(|| Ok(Memory::new()))`.
pub struct InProcess<F>(pub F);

impl<F, S> Bed for InProcess<F>
where
    F: Fn() -> Result<Arc<S>> + Send + Sync + 'static,
    S: Store,
{
    fn fresh(&self) -> Pending<Place> {
        ready((self.0)().map(|store| Place { store, url: None, keep: Box::new(()) }))
    }
}

/// A store that lives in a folder, here a temporary one: `InFolder(|path| FileStore::at(path))`.
pub struct InFolder<F>(pub F);

impl<F, S> Bed for InFolder<F>
where
    F: Fn(PathBuf) -> Result<Arc<S>> + Send + Sync + 'static,
    S: Store,
{
    fn fresh(&self) -> Pending<Place> {
        let folder =
            tempfile::Builder::new().prefix("leasehold-test-").tempdir().expect("a temporary folder");
        let path = folder.path().join("locks");
        let url = path.to_str().expect("a temporary folder with a readable name").to_owned();
        ready((self.0)(path).map(|store| Place { store, url: Some(url), keep: Box::new(folder) }))
    }

    fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
        ready((self.0)(PathBuf::from(url)).map(|store| store as Arc<dyn Store>))
    }
}
