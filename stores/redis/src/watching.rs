//! Watching: scripts tell events only while somebody watches, which a key at each master says.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::Result;
use leasehold_core::view::Events;
use tokio::sync::Mutex;

use crate::session::Desk;
use crate::wire::{Call, channels};

/// How long the key that says "somebody watches" lives without being renewed.
const FLAG: Duration = Duration::from_secs(15);

/// Whether a session watches.
#[derive(Default)]
pub(crate) struct Watching(Mutex<bool>);

impl Desk {
    /// Events from now on: when this returns, they are told.
    pub(crate) async fn begin_watching(self: Arc<Self>, prefix: String) -> Result<Events> {
        let mut on = self.watching.0.lock().await;
        let events = self.wake.watchers.watch(prefix);
        if !*on {
            self.wire.watch_events(true).await?;
            self.plant_flags().await?;
            *on = true;
            tokio::spawn(keep_flags(Arc::downgrade(&self)));
        }
        drop(on);
        Ok(events)
    }

    async fn plant_flags(&self) -> Result<()> {
        for slot in self.wire.masters().await? {
            let key = channels::watched(self.store.config.prefix(), &self.wire.post(slot).tag);
            let mut set = redis::cmd("SET");
            set.arg(key).arg(1).arg("PX").arg(FLAG.as_millis() as u64);
            self.wire.run(Call::command(slot, set)).await?;
        }
        Ok(())
    }
}

/// Renews the keys while somebody watches. After the last watcher they end by themselves: other sessions may watch.
async fn keep_flags(session: Weak<Desk>) {
    loop {
        tokio::time::sleep(FLAG / 5).await;
        let Some(session) = session.upgrade() else { return };
        let mut on = session.watching.0.lock().await;
        if !session.wake.watchers.any() {
            *on = false;
            // If it fails, the connection is down, and nothing is subscribed.
            let _ = session.wire.watch_events(false).await;
            return;
        }
        if let Err(error) = session.plant_flags().await {
            session.wake.watchers.interrupted(&error);
        }
    }
}
