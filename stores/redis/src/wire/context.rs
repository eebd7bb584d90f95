//! What all connections of one session share.

use std::sync::Arc;

use leasehold_core::SessionId;
use tokio::sync::watch;

use super::Pushes;
use crate::Config;

/// What all connections of one session share.
pub(crate) struct Context {
    pub(crate) config: Arc<Config>,
    pub(crate) session: SessionId,
    pub(crate) pushes: Arc<dyn Pushes>,
    /// Whether the channel of events is wanted.
    pub(crate) events: watch::Receiver<bool>,
}
