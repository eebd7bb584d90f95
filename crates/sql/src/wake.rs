//! What a session knows of its own entries, and whom it tells.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::store::{Inbox, News, Note};
use leasehold_core::watchers::Watchers;
use leasehold_core::{EntryId, Name};
use tokio::sync::Notify;

use crate::letter;

/// The entries of a session, and where its notes go.
pub(crate) struct Wake {
    inbox: Arc<dyn Inbox>,
    entries: Mutex<HashMap<EntryId, Tracked>>,
    /// How often listening began or ended: whoever sees the same number before and after has missed nothing.
    turns: AtomicU64,
    pub(crate) watchers: Watchers,
    /// How others tell this session of what it watches, as they read it, while it does.
    announced: Mutex<Option<String>>,
    /// The postman has a reason to think anew: something came, or somebody.
    pub(crate) mail: Notify,
    /// Whether something may be in the mail.
    rung: AtomicBool,
}

#[derive(Debug, Clone)]
struct Tracked {
    name: Name,
    /// How others tell it, as they read it in its row, once it is there.
    told: Option<String>,
    waits: bool,
}

impl Wake {
    pub(crate) fn new(inbox: Arc<dyn Inbox>) -> Self {
        let (entries, watchers) = (Mutex::default(), Watchers::default());
        Wake {
            inbox,
            entries,
            turns: AtomicU64::new(0),
            watchers,
            announced: Mutex::new(None),
            mail: Notify::new(),
            rung: AtomicBool::new(false),
        }
    }

    /// Something may be in the mail.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        self.mail.notify_one();
    }

    /// Whether something may be in the mail. Then it is looked for now.
    pub(crate) fn take_ring(&self) -> bool {
        self.rung.swap(false, Ordering::SeqCst)
    }

    /// Takes note of an entry before it is asked for. Tells whether it was known.
    pub(crate) fn track(&self, id: EntryId, name: &Name) -> bool {
        self.lock().insert(id, Tracked { name: name.clone(), told: None, waits: false }).is_some()
    }

    pub(crate) fn forget(&self, id: EntryId) {
        self.lock().remove(&id);
    }

    /// It holds, and its row says that it is told this way.
    pub(crate) fn holds_with(&self, id: EntryId, wake: String) {
        self.stands(id, wake, false);
    }

    /// It waits, and its row says that it is told this way.
    pub(crate) fn waits_with(&self, id: EntryId, wake: String) {
        self.stands(id, wake, true);
    }

    fn stands(&self, id: EntryId, wake: String, waits: bool) {
        if let Some(entry) = self.lock().get_mut(&id) {
            (entry.told, entry.waits) = (Some(wake), waits);
        }
    }

    pub(crate) fn is_waiting(&self, id: EntryId) -> bool {
        self.lock().get(&id).is_some_and(|entry| entry.waits)
    }

    /// Whether it waits, and others tell it this way.
    pub(crate) fn is_waiting_with(&self, id: EntryId, wake: &str) -> bool {
        self.lock().get(&id).is_some_and(|entry| entry.waits && entry.told.as_deref() == Some(wake))
    }

    /// Whether any entry waits; `None` if there is no entry at all.
    pub(crate) fn any_waits(&self) -> Option<bool> {
        let entries = self.lock();
        (!entries.is_empty()).then(|| entries.values().any(|entry| entry.waits))
    }

    /// Whether others tell all entries, and this session of what it watches, in this way. One that came before listening began is told otherwise
    /// until its row is written again.
    pub(crate) fn all_are_told(&self, wake: &str) -> bool {
        let watching = lock(&self.announced);
        watching.as_deref().is_none_or(|told| told == wake)
            && self.lock().values().all(|entry| entry.told.as_deref().is_none_or(|told| told == wake))
    }

    /// The session says that it watches, and is told this way of what it sees; `None`: it does not any more.
    pub(crate) fn announce(&self, wake: Option<String>) {
        *lock(&self.announced) = wake;
    }

    /// The names of all entries, each once.
    pub(crate) fn names(&self) -> Vec<Name> {
        let mut names: Vec<Name> = self.lock().values().map(|entry| entry.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }

    /// Hands on what a letter says. What can't be read is somebody else's, and what is about an entry that left is late.
    pub(crate) fn deliver(&self, text: &str) {
        if let Some(event) = letter::read_event(text) {
            return self.watchers.publish(&event);
        }
        let Some((id, news)) = letter::read_note(text) else { return };
        let name = {
            let mut entries = self.lock();
            let Some(entry) = entries.get_mut(&id) else { return };
            let name = entry.name.clone();
            match news {
                News::Granted(_) => entry.waits = false,
                News::Gone(_) => drop(entries.remove(&id)),
                News::Retry | News::ReleaseRequested => {}
            }
            name
        };
        self.inbox.note(Note { name, id, news });
    }

    /// The client asks about every entry: a grant, a forced release or a request may have been missed.
    pub(crate) fn all_ask(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
        let entries: Vec<(EntryId, Name)> =
            self.lock().iter().map(|(id, entry)| (*id, entry.name.clone())).collect();
        for (id, name) in entries {
            self.inbox.note(Note { name, id, news: News::Retry });
        }
        self.ring();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EntryId, Tracked>> {
        lock(&self.entries)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a [`Bell`](crate::Bell) brings what it hears. Never blocks.
pub struct Ears(pub(crate) Arc<Wake>);

impl Ears {
    /// A letter that came as it is.
    pub fn told(&self, text: &str) {
        self.0.deliver(text);
    }

    /// Somebody rang: there is mail.
    pub fn rung(&self) {
        self.0.ring();
    }

    /// Listening began, or ended: what was told meanwhile is lost, so the client asks about every entry.
    pub fn turned(&self) {
        self.0.all_ask();
    }
}
