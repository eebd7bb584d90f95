//! How sessions and watchers are told: by a direct call, after the queue's mutex was let go.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};

use futures_core::Stream;
use leasehold_core::store::{Inbox, News, Note};
use leasehold_core::view::{EntryView, Event, Events, Happened};
use leasehold_core::{EntryId, Error, Kind, Name, Result, Retry, SessionId};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How many events a watcher may be behind before it misses some.
const BACKLOG: usize = 4096;

/// Who wants to be told.
#[derive(Default)]
pub struct Wake {
    sessions: RwLock<HashMap<SessionId, Arc<dyn Inbox>>>,
    watchers: Mutex<Vec<Watcher>>,
    watching: AtomicUsize,
}

struct Watcher {
    prefix: String,
    events: Sender<Event>,
    missed: Arc<AtomicU64>,
}

impl Wake {
    pub(crate) fn register(&self, session: SessionId, inbox: Arc<dyn Inbox>) {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).insert(session, inbox);
    }

    pub(crate) fn unregister(&self, session: SessionId) {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }

    /// Cheap, because it is asked on every event.
    pub(crate) fn is_watched(&self) -> bool {
        self.watching.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn watch(&self, prefix: String) -> Events {
        let (events, backlog) = channel(BACKLOG);
        let missed = Arc::new(AtomicU64::new(0));
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.push(Watcher { prefix, events, missed: missed.clone() });
        self.watching.store(watchers.len(), Ordering::Relaxed);
        Box::pin(Watching { backlog, missed })
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

    /// Tells watchers what happened. Never blocks: a watcher that is too slow misses events, and is told so.
    pub(crate) fn publish(&self, name: &Name, at: u64, events: Vec<(Happened, EntryView)>) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|w| !w.events.is_closed());
        self.watching.store(watchers.len(), Ordering::Relaxed);
        for (what, entry) in events {
            let event = Event {
                at,
                name: name.clone(),
                what,
                label: entry.label,
                session: entry.session,
                want: entry.want,
                token: entry.token,
            };
            for watcher in watchers.iter().filter(|w| name.as_str().starts_with(&w.prefix)) {
                if watcher.events.try_send(event.clone()).is_err() {
                    watcher.missed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wake").field("watching", &self.watching).finish_non_exhaustive()
    }
}

struct Watching {
    backlog: Receiver<Event>,
    missed: Arc<AtomicU64>,
}

impl Stream for Watching {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            let what = format!("{missed} events were missed because the watcher was too slow");
            return Poll::Ready(Some(Err(Error::new(Kind::Unavailable, what).retry(Retry::Later))));
        }
        self.backlog.poll_recv(cx).map(|event| event.map(Ok))
    }
}
