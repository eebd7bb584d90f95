//! One client's presence: a [`SqlSession`](leasehold_sql::SqlSession) on these statements and connections.

use std::sync::Arc;

use leasehold_core::Result;
use leasehold_core::store::{Inbox, Presence, Session};
use leasehold_sql::SqlSession;

use crate::config::Config;
use crate::state::State;
use crate::wire::Wire;

/// Opens a session: its first connection is made, the tables are there.
pub(crate) async fn open(
    config: Arc<Config>,
    me: Presence,
    inbox: Arc<dyn Inbox>,
) -> Result<Arc<dyn Session>> {
    let wire = Wire::open(config.clone()).await?;
    Ok(SqlSession::open(Arc::new(State::new(wire)), me, inbox, &config.options))
}
