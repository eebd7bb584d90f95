//! What a session knows of its own entries: what each wants, how far it got, and who has told it that it is its turn.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_core::store::{Ask, Otherwise};
use leasehold_core::{EntryId, Error, Lease, Name, Tick, Token, TokenBlock};

use crate::node::AttemptId;

/// All entries of a session.
#[derive(Default)]
pub(crate) struct Entries(Mutex<HashMap<EntryId, Arc<Entry>>>);

/// One entry of ours.
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) id: EntryId,
    pub(crate) lease: Lease,
    pub(crate) place: Duration,
    pub(crate) otherwise: Otherwise,
    /// One request at a time: a join that is repeated, a renewal or a leave waits for the one before it.
    pub(crate) stage: Arc<tokio::sync::Mutex<Stage>>,
    attempts: AtomicU32,
    fate: Mutex<Fate>,
    told: Mutex<Told>,
    /// What is said of the first attempt that failed though no other entry was in its way. Its own remains may deny the next one.
    failure: OnceLock<Error>,
}

/// How far an entry got.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// Nothing is known of it at the nodes.
    #[default]
    Fresh,
    Waiting(Waiting),
    Held(Held),
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Waiting {
    /// How many attempts in a row got some nodes and not enough.
    pub(crate) splits: u32,
    /// The highest token that any node named: the next attempt starts above it, so that nodes agree.
    pub(crate) floor: u64,
}

/// A lease that a quorum granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) id: AttemptId,
    pub(crate) tokens: TokenBlock,
    /// When its last round began, and until when it is certainly good by that.
    pub(crate) began: Tick,
    pub(crate) good_until: Tick,
    /// The nodes that have let it go.
    pub(crate) released: u32,
}

impl Held {
    /// The end of its tokens.
    pub(crate) fn last(&self) -> u64 {
        self.tokens.last().0
    }

    /// The block after the last one.
    pub(crate) fn next_tokens(&self) -> TokenBlock {
        TokenBlock { first: Token(self.last() + 1), len: self.tokens.len }
    }
}

/// What is to become of answers that come when the decision is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fate {
    /// It waits: what a late node granted goes back.
    #[default]
    Waits,
    /// It holds by this attempt.
    Holds(u32),
    /// It is gone: nothing may be left of it.
    Gone,
}

/// Which nodes have told something, and what.
#[derive(Debug, Default)]
struct Told {
    turn: u32,
    /// Of this attempt.
    revoked: (u32, u32),
    /// Of this attempt.
    let_go: (u32, u32),
}

impl Entry {
    fn new(ask: &Ask) -> Self {
        Entry {
            name: ask.name.clone(),
            id: ask.id,
            lease: ask.lease,
            place: ask.place,
            otherwise: ask.otherwise,
            stage: Arc::default(),
            attempts: AtomicU32::new(0),
            fate: Mutex::default(),
            told: Mutex::default(),
            failure: OnceLock::new(),
        }
    }

    /// An attempt failed though no other entry was in its way: too few nodes answered, or too late for the lease.
    pub(crate) fn attempt_failed(&self, error: &Error) {
        let _ = self.failure.set(error.clone());
    }

    /// Whether one did, so that a denial does not say that another entry has the lock.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    pub(crate) fn waits(&self) -> bool {
        self.otherwise != Otherwise::GoAway
    }

    pub(crate) fn barges(&self) -> bool {
        self.otherwise == Otherwise::Barge
    }

    /// A fresh id for each attempt: a late message of an old one can do nothing.
    pub(crate) fn next_attempt(&self) -> AttemptId {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        AttemptId { entry: self.id, number }
    }

    /// The last attempt; `None` if there was none.
    pub(crate) fn last_attempt(&self) -> Option<AttemptId> {
        let number = self.attempts.load(Ordering::Relaxed);
        (number > 0).then_some(AttemptId { entry: self.id, number })
    }

    pub(crate) fn fate(&self) -> Fate {
        *lock(&self.fate)
    }

    /// What is gone stays gone.
    pub(crate) fn set_fate(&self, fate: Fate) {
        let mut now = lock(&self.fate);
        if *now != Fate::Gone {
            *now = fate;
        }
    }

    /// A node says that it is this entry's turn. How many have said so.
    pub(crate) fn turn_told(&self, node: usize) -> u32 {
        let mut told = lock(&self.told);
        told.turn |= 1 << node;
        told.turn.count_ones()
    }

    /// How many nodes have said that it is this entry's turn.
    pub(crate) fn turns(&self) -> u32 {
        lock(&self.told).turn.count_ones()
    }

    /// A node has let go of what this attempt owned there.
    pub(crate) fn let_go(&self, node: usize, attempt: u32) {
        let mut told = lock(&self.told);
        if told.let_go.0 != attempt {
            told.let_go = (attempt, 0);
        }
        told.let_go.1 |= 1 << node;
    }

    pub(crate) fn has_let_go(&self, node: usize, attempt: u32) -> bool {
        let (of, nodes) = lock(&self.told).let_go;
        of == attempt && nodes & 1 << node != 0
    }

    /// The entry tries now: what it was told is used up. Whether it had been told.
    pub(crate) fn take_turn(&self) -> bool {
        std::mem::take(&mut lock(&self.told).turn) != 0
    }

    /// A node says that the lock was taken away from this attempt. How many have said so.
    pub(crate) fn revoked_told(&self, node: usize, attempt: u32) -> u32 {
        let mut told = lock(&self.told);
        if told.revoked.0 != attempt {
            told.revoked = (attempt, 0);
        }
        told.revoked.1 |= 1 << node;
        told.revoked.1.count_ones()
    }
}

impl Entries {
    /// The entry of an ask, made if it is new.
    pub(crate) fn enter(&self, ask: &Ask) -> Arc<Entry> {
        lock(&self.0).entry(ask.id).or_insert_with(|| Arc::new(Entry::new(ask))).clone()
    }

    pub(crate) fn get(&self, id: EntryId) -> Option<Arc<Entry>> {
        lock(&self.0).get(&id).cloned()
    }

    /// Forgets an entry; what is still under way for it leaves nothing behind.
    pub(crate) fn forget(&self, entry: &Entry) {
        entry.set_fate(Fate::Gone);
        let mut entries = lock(&self.0);
        // The same id may have been asked for again.
        if entries.get(&entry.id).is_some_and(|known| std::ptr::eq(&**known, entry)) {
            entries.remove(&entry.id);
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        lock(&self.0).values().cloned().collect()
    }
}

/// Nothing that is locked here can panic half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
