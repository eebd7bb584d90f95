//! One client's presence: a [`SqlSession`](leasehold_sql::SqlSession) on these statements and connections.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::{Inbox, Presence, Session, Waiting};
use leasehold_core::{EntryId, Name, Result, SessionId, Token};
use leasehold_sql::{Backend, Bell, Change, Ears, Entering, Kept, Loaded, Row, SqlSession};

use crate::config::Config;
use crate::state::State;
use crate::wake::Listener;
use crate::wire::Wire;

/// Opens a session: its first connection is made, the tables are there.
pub(crate) async fn open(
    config: Arc<Config>,
    me: Presence,
    inbox: Arc<dyn Inbox>,
) -> Result<Arc<dyn Session>> {
    let retention = config.options.retention;
    let wire = Wire::open(config).await?;
    Ok(SqlSession::open(Arc::new(Database(State::new(wire))), me, inbox, retention))
}

/// The database, as the shared part sees it.
struct Database(State);

impl Backend for Database {
    async fn load(&self, names: &[Name]) -> Result<Loaded> {
        self.0.load(names).await
    }

    async fn peek(&self, name: &Name) -> Result<Loaded> {
        self.0.peek(name).await
    }

    async fn save(&self, change: &Change) -> Result<bool> {
        self.0.save(change).await
    }

    async fn enter(&self, entering: &Entering) -> Result<Option<Token>> {
        self.0.enter(entering).await
    }

    async fn depart(&self, name: &Name, id: EntryId, used: Option<Token>) -> Result<bool> {
        self.0.depart(name, id, used).await
    }

    async fn append(&self, name: &Name, row: &Row) -> Result<Option<Waiting>> {
        self.0.append(name, row).await
    }

    async fn stay(&self, name: &Name, id: EntryId) -> Result<Option<Waiting>> {
        self.0.stay(name, id).await
    }

    async fn withdraw(&self, name: &Name, id: EntryId) -> Result<bool> {
        self.0.withdraw(name, id).await
    }

    async fn keep(&self, lines: &[(Name, EntryId)]) -> Result<Vec<Option<Kept>>> {
        self.0.keep(lines).await
    }

    async fn names(&self, prefix: &str, after: Option<&Name>, most: usize) -> Result<Vec<Name>> {
        self.0.names(prefix, after, most).await
    }

    async fn mail(&self, session: SessionId) -> Result<Vec<String>> {
        self.0.mail(session).await
    }

    async fn watch(&self, session: SessionId, wake: &str, span: Duration) -> Result<()> {
        self.0.watch(session, wake, span).await
    }

    async fn sweep(&self) -> Result<()> {
        self.0.sweep().await
    }

    fn listen(&self, session: SessionId, ears: Arc<Ears>) -> Arc<dyn Bell> {
        Arc::new(Listener::begin(self.0.wire.clone(), session, ears))
    }

    async fn close(&self) {
        self.0.wire.close().await;
    }
}
