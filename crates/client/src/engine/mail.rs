//! Where the store's notes arrive.

use std::sync::{Arc, Weak};

use leasehold_core::store::{Inbox, News, Note};
use leasehold_core::view::Lost;

use super::Engine;
use crate::telemetry;

/// Where the store's notes arrive. Holds the engine weakly: the store must not keep a dropped client alive.
pub(crate) struct Mail(pub(crate) std::sync::OnceLock<Weak<Engine>>);

impl Mail {
    fn engine(&self) -> Option<Arc<Engine>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

impl Inbox for Mail {
    fn note(&self, note: Note) {
        let Some(engine) = self.engine() else { return };
        let Some(key) = engine.table.lane_of(&note.name, note.id) else {
            if let News::Granted(_) = note.news {
                // Cancelled while the grant was on its way.
                engine.disown(note.name, note.id);
            }
            return;
        };
        match note.news {
            News::Granted(grant) => {
                let visit = engine.table.granted(&key, note.id, grant, None);
                engine.settle(visit);
            }
            News::ReleaseRequested => {
                let visit = engine.table.release_requested(&key, note.id);
                engine.settle(visit);
            }
            News::Retry => {
                let visit = engine.table.ask_about(&key, note.id);
                engine.settle(visit);
            }
            News::Gone(why) => {
                let visit = engine.table.gone(&key, note.id, why);
                if let Some(why) = engine.settle(visit) {
                    telemetry::lost(&[(&note.name, why)], &engine.outages);
                }
            }
        }
    }

    fn session_gone(&self) {
        if let Some(engine) = self.engine() {
            engine.end_lanes(Lost::SessionGone, None);
        }
    }
}
