//! The store: a folder.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::doctor::Finding;
use leasehold_core::store::{Inbox, Pending, Presence, Session, Store};
use leasehold_core::{Error, Kind, Result, SessionId, Traits};
use tokio::runtime::Handle;

use crate::config::Config;
use crate::folder::Folder;
use crate::session::FileSession;
use crate::traits::TRAITS;
use crate::{doctor, sweep, wake};

/// Locks in the files of a folder, for the processes of one host.
///
/// Every client that is opened on the same folder, in whatever process, excludes the others. See the
/// [crate documentation](crate) for who may use a folder and what can't be helped.
#[derive(Debug)]
pub struct FileStore {
    config: Config,
}

impl FileStore {
    /// The store in a folder of your choice. It is created if it is missing, for your user alone.
    pub fn at(path: impl Into<PathBuf>) -> Result<Arc<Self>> {
        Self::open_config(Config::at(path.into())?)
    }

    pub(crate) fn open_config(config: Config) -> Result<Arc<Self>> {
        // Opened once to find out now what is wrong with it. A session opens it again: it may have been removed by then.
        Folder::open(&config.place, SessionId::random()?).map_err(|e| e.at(config.url()))?;
        Ok(Arc::new(FileStore { config }))
    }
}

impl Store for FileStore {
    fn traits(&self) -> &'static Traits {
        &TRAITS
    }

    fn url(&self) -> String {
        self.config.url()
    }

    fn open(self: Arc<Self>, me: Presence, inbox: Arc<dyn Inbox>) -> Pending<Arc<dyn Session>> {
        Box::pin(async move {
            let runtime = Handle::try_current().map_err(|e| {
                Error::new(Kind::Invalid, "the file store needs a tokio runtime with I/O and time enabled")
                    .because(e)
            })?;
            let (place, id) = (self.config.place.clone(), me.id);
            let prepare = move || {
                let folder = Folder::open(&place, id)?;
                sweep::after_boot(&folder)?;
                let fifo = wake::make_fifo(&folder, &folder.sessions, &id.to_string())?;
                Ok((folder, fifo))
            };
            let prepared = runtime.spawn_blocking(prepare).await.unwrap_or_else(|e| {
                Err(Error::new(Kind::Unavailable, "the runtime is shutting down").because(e))
            });
            let (folder, fifo) = prepared.map_err(|e: Error| e.at(self.config.url()))?;
            let session = FileSession::begin(self.config.clone(), me, inbox, folder, fifo, runtime)?;
            Ok(session as Arc<dyn Session>)
        })
    }

    fn examine(self: Arc<Self>) -> Pending<Vec<Finding>> {
        Box::pin(async move {
            let place = self.config.place.clone();
            let looked = tokio::task::spawn_blocking(move || doctor::examine(&place)).await;
            let found = looked.unwrap_or_else(|e| {
                Err(Error::new(Kind::Unavailable, "the runtime is shutting down").because(e))
            });
            found.map_err(|e| e.at(self.config.url()))
        })
    }
}
