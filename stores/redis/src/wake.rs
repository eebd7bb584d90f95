//! How sessions and watchers are told: by messages of the scripts on the session's channel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::store::{Grant, Inbox, News, Note, Term};
use leasehold_core::view::Lost;
use leasehold_core::watchers::Watchers;
use leasehold_core::{EntryId, Name, Token, TokenBlock};
use tokio::sync::mpsc::UnboundedSender;

use crate::keys::Keys;
use crate::state;
use crate::wire::{Pushes, Slot, Wire};

/// What a session knows of its own entries, and whom it tells.
pub(crate) struct Wake {
    inbox: Arc<dyn Inbox>,
    keys: Keys,
    entries: Mutex<HashMap<EntryId, Tracked>>,
    /// How often the pushes of each node began to come: whoever sees the same number before and after has missed none.
    begun: Mutex<HashMap<u64, u64>>,
    pub(crate) watchers: Watchers,
    /// Where grants go that must reach replicas before they count; `None` if they count at once.
    unproven: Option<UnboundedSender<Note>>,
    /// Who owns which lock's slot now.
    wire: OnceLock<Weak<Wire>>,
}

/// An entry of ours.
#[derive(Debug, Clone)]
pub(crate) struct Tracked {
    pub(crate) name: Name,
    pub(crate) slot: Slot,
    pub(crate) node: u64,
    pub(crate) waits: bool,
}

impl Wake {
    pub(crate) fn new(inbox: Arc<dyn Inbox>, keys: Keys, unproven: Option<UnboundedSender<Note>>) -> Self {
        let (entries, begun, watchers) = (Mutex::default(), Mutex::default(), Watchers::default());
        Wake { inbox, keys, entries, begun, watchers, unproven, wire: OnceLock::new() }
    }

    /// Says where the pushes come from, once it is there.
    pub(crate) fn hears(&self, wire: &Arc<Wire>) {
        let _ = self.wire.set(Arc::downgrade(wire));
    }

    /// Takes note of an entry before it is asked for. Tells whether it was known.
    pub(crate) fn track(&self, id: EntryId, entry: Tracked) -> bool {
        lock(&self.entries).insert(id, entry).is_some()
    }

    pub(crate) fn waits(&self, id: EntryId, waits: bool) {
        if let Some(entry) = lock(&self.entries).get_mut(&id) {
            entry.waits = waits;
        }
    }

    pub(crate) fn forget(&self, id: EntryId) {
        lock(&self.entries).remove(&id);
    }

    pub(crate) fn all(&self) -> Vec<(EntryId, Tracked)> {
        lock(&self.entries).iter().map(|(id, entry)| (*id, entry.clone())).collect()
    }

    pub(crate) fn begun(&self, node: u64) -> u64 {
        lock(&self.begun).get(&node).copied().unwrap_or(0)
    }

    pub(crate) fn tell(&self, note: Note) {
        self.inbox.note(note);
    }

    fn read(&self, payload: &[u8]) -> Option<Note> {
        let mut words = std::str::from_utf8(payload).ok()?.split(' ');
        let (what, id) = (words.next()?, words.next()?.parse::<EntryId>().ok()?);
        let news = match what {
            "g" => News::Granted(grant(words)?),
            "r" => News::Retry,
            "p" => News::ReleaseRequested,
            "x" if words.next()? == "revoked" => News::Gone(Lost::Revoked),
            "x" => News::Gone(Lost::Expired),
            _ => return None,
        };
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(&id)?;
        let name = entry.name.clone();
        match news {
            News::Granted(_) => entry.waits = false,
            News::Gone(_) => drop(entries.remove(&id)),
            News::Retry | News::ReleaseRequested => {}
        }
        Some(Note { name, id, news })
    }
}

fn grant<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Grant> {
    let mut next = || words.next()?.parse::<u64>().ok();
    let tokens = TokenBlock { first: Token(next()?), len: u32::try_from(next()?).ok()? };
    let term = Term::For(Duration::from_micros(next()?));
    let (started, contended) = (next()? == 1, next()? == 1);
    Some(Grant { tokens, term, started, contended, release_requested: false })
}

impl Pushes for Wake {
    fn note(&self, payload: &[u8]) {
        let Some(note) = self.read(payload) else { return };
        match (&self.unproven, &note.news) {
            (Some(unproven), News::Granted(_)) => drop(unproven.send(note)),
            _ => self.inbox.note(note),
        }
    }

    fn event(&self, payload: &[u8]) {
        if let Some(event) = state::event(payload, &self.keys) {
            self.watchers.publish(&event);
        }
    }

    /// Pushes of this node begin to come. The client asks about every entry there: a grant, a forced release or a request may
    /// have been missed.
    fn resumed(&self, node: u64) {
        let again = {
            let mut begun = lock(&self.begun);
            let count = begun.entry(node).or_insert(0);
            *count += 1;
            *count > 1
        };
        let Some(wire) = self.wire.get().and_then(Weak::upgrade) else { return };
        // A slot may have moved since they asked: it is the node of now that counts.
        let entries: Vec<(EntryId, Name)> = lock(&self.entries)
            .iter()
            .filter(|(_, entry)| wire.post(entry.slot).node == node)
            .map(|(id, entry)| (*id, entry.name.clone()))
            .collect();
        for (id, name) in entries {
            self.inbox.note(Note { name, id, news: News::Retry });
        }
        if again && self.watchers.any() {
            self.watchers.reconnected();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
