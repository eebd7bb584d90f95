//! Which locks this session left idle, as far as it remembers: their rows are there, and likely they are free and as it left them.
//!
//! It is a guess that saves work where it is right. Where it is wrong it costs one statement, which then does nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::queue::Entry;
use leasehold_core::{EntryId, Lease, Name, Want};

use crate::backend::Entering;

/// The state of an entry that has left although the row of its lock still says it: what the next one does not change need not be written again.
pub const FREED: &str = "freed";

/// How many are remembered at most. A name takes the place of another one.
const PLACES: usize = 4096;

/// A place for each of many names, which share them by their hashes.
pub struct Idle(Box<[Mutex<Place>]>);

#[derive(Default)]
struct Place {
    /// Whose it is; 0 is nobody.
    mark: u64,
    /// Whether the lock was left idle.
    idle: bool,
    /// The entry that took it last in one statement, and how; not where others take it too.
    last: Option<(EntryId, Terms)>,
    /// Others take it too, as was once found: it is not worth trying whether it is as this session left it.
    shared: bool,
}

/// What stays in the row of a lock that one entry after the other takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// What is wanted.
    pub want: Want,
    /// For how long.
    pub lease: Lease,
    /// How long a place in the queue lasts.
    pub place: Duration,
}

impl Terms {
    /// Those of a claim.
    pub fn of(entering: &Entering) -> Self {
        let Entry { want, lease, place, .. } = entering.row.entry;
        Terms { want, lease, place }
    }
}

/// How a lock was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// There is a row.
    Somehow,
    /// By this entry, which had taken it in one statement, on these terms.
    By(EntryId, Terms),
}

impl Default for Idle {
    fn default() -> Self {
        Idle((0..PLACES).map(|_| Mutex::default()).collect())
    }
}

impl Idle {
    /// The place of a name, and the mark that says that it is this one's. Never 0, which is nobody.
    fn place(&self, name: &Name) -> (MutexGuard<'_, Place>, u64) {
        let hash = name.stable_hash();
        let place = &self.0[(hash >> 64) as usize % PLACES];
        (place.lock().unwrap_or_else(PoisonError::into_inner), hash as u64 | 1)
    }

    /// How the lock was left, if it was.
    pub fn left(&self, name: &Name) -> Option<Left> {
        let (place, mark) = self.place(name);
        let last = place.last.map_or(Left::Somehow, |(id, terms)| Left::By(id, terms));
        (place.mark == mark && place.idle).then_some(last)
    }

    /// An entry has taken it, in one statement.
    pub fn taken(&self, name: &Name, id: EntryId, terms: Terms) {
        let (mut place, mark) = self.place(name);
        let shared = place.mark == mark && place.shared;
        *place = Place { mark, idle: false, last: (!shared).then_some((id, terms)), shared };
    }

    /// An entry has left it idle.
    pub fn note(&self, name: &Name, id: EntryId) {
        let (mut place, mark) = self.place(name);
        let last = place.last.filter(|(last, _)| place.mark == mark && *last == id);
        let shared = place.mark == mark && place.shared;
        *place = Place { mark, idle: true, last, shared };
    }

    /// It was not as it was left: others take it too.
    pub fn forget(&self, name: &Name) {
        let (mut place, mark) = self.place(name);
        // Another name may have come meanwhile.
        if place.mark == mark {
            *place = Place { mark, idle: false, last: None, shared: true };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms { want: Want::Exclusive, lease: Lease::Kept(Duration::from_secs(1)), place: Duration::ZERO };

    #[test]
    fn what_was_noted_is_remembered_until_it_is_forgotten() {
        let idle = Idle::default();
        let (one, other) = (Name::new("one").unwrap(), Name::new("other").unwrap());
        assert_eq!(idle.left(&one), None);
        idle.note(&one, EntryId(1));
        assert_eq!((idle.left(&one), idle.left(&other)), (Some(Left::Somehow), None));
        idle.forget(&other);
        assert_eq!(idle.left(&one), Some(Left::Somehow));
        idle.forget(&one);
        assert_eq!(idle.left(&one), None);
    }

    #[test]
    fn only_the_entry_that_took_it_knows_how_it_was_left() {
        let idle = Idle::default();
        let name = Name::new("one").unwrap();
        idle.taken(&name, EntryId(1), TERMS);
        assert_eq!(idle.left(&name), None);
        idle.note(&name, EntryId(1));
        assert_eq!(idle.left(&name), Some(Left::By(EntryId(1), TERMS)));
        idle.taken(&name, EntryId(2), TERMS);
        idle.note(&name, EntryId(3));
        assert_eq!(idle.left(&name), Some(Left::Somehow));
    }

    #[test]
    fn where_others_take_it_too_nobody_tries_whether_it_is_as_it_was_left() {
        let idle = Idle::default();
        let name = Name::new("one").unwrap();
        idle.taken(&name, EntryId(1), TERMS);
        idle.note(&name, EntryId(1));
        idle.forget(&name);
        assert_eq!(idle.left(&name), None);
        for id in [EntryId(2), EntryId(3)] {
            idle.taken(&name, id, TERMS);
            idle.note(&name, id);
            assert_eq!(idle.left(&name), Some(Left::Somehow));
        }
    }
}
