//! How sessions and watchers are told: by a direct call, after the queue's mutex was let go.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use leasehold_core::store::{Inbox, News, Note};
use leasehold_core::view::{EntryView, Event, Happened};
use leasehold_core::watchers::Watchers;
use leasehold_core::{EntryId, Name, SessionId};

/// Who wants to be told.
#[derive(Default)]
pub struct Wake {
    sessions: RwLock<HashMap<SessionId, Arc<dyn Inbox>>>,
    pub(crate) watchers: Watchers,
}

impl Wake {
    pub(crate) fn register(&self, session: SessionId, inbox: Arc<dyn Inbox>) {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).insert(session, inbox);
    }

    pub(crate) fn unregister(&self, session: SessionId) {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }

    /// Tells sessions what concerns them. They may call back, so nothing may be locked.
    pub(crate) fn deliver(&self, name: &Name, notes: Vec<(SessionId, EntryId, News)>) {
        for (session, id, news) in notes {
            let inbox = self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&session).cloned();
            if let Some(inbox) = inbox {
                inbox.note(Note { name: name.clone(), id, news });
            }
        }
    }

    /// Tells watchers what happened.
    pub(crate) fn publish(&self, name: &Name, at: u64, events: Vec<(Happened, EntryView)>) {
        for (what, entry) in events {
            self.watchers.publish(&Event {
                at,
                name: name.clone(),
                what,
                label: entry.label,
                session: entry.session,
                want: entry.want,
                token: entry.token,
            });
        }
    }
}

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wake").field("watchers", &self.watchers).finish_non_exhaustive()
    }
}
