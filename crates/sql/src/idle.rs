//! How the rows of locks are, as far as this session knows because it wrote them last.
//!
//! It is a guess that saves work where it is right. A statement that goes by it asks for the version that it expects, so where the guess is
//! wrong the statement does nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::queue::Entry;
use leasehold_core::{EntryId, Lease, Name, Token, Want};

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
    /// What this session wrote last, if it knows the whole row by that.
    written: Option<Written>,
    /// Others take it too, as was once found: it is not worth trying whether it is as this session left it.
    shared: bool,
}

/// A row that an entry of this session wrote whole when it took the lock. Nobody but this session has changed it since, if it has this version
/// still: every change makes a new one.
struct Written {
    id: EntryId,
    terms: Terms,
    /// The first token of its block.
    first: Token,
    version: i64,
}

/// What stays in the row of a lock that one entry after the other takes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Terms {
    want: Want,
    lease: Lease,
    /// How long a place in the queue lasts.
    place: Duration,
    /// How the session is told.
    wake: String,
}

impl Terms {
    fn of(entering: &Entering) -> Self {
        let Entry { want, lease, place, .. } = entering.row.entry;
        Terms { want, lease, place, wake: entering.row.wake.clone() }
    }

    fn are_those_of(&self, entering: &Entering) -> bool {
        let Entry { want, lease, place, .. } = entering.row.entry;
        (self.want, self.lease, self.place) == (want, lease, place) && self.wake == entering.row.wake
    }
}

/// How a lock was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// There is a row.
    Somehow,
    /// By an entry of this session that had taken it on the same terms. The row has this version.
    AsWritten(i64),
}

/// A lock that is held, as this session wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The version of its row.
    pub version: i64,
    /// The first token of its block.
    pub first: Token,
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

    /// How the lock that is wanted was left, if it was.
    pub fn left(&self, entering: &Entering) -> Option<Left> {
        let (place, mark) = self.place(&entering.name);
        if place.mark != mark || !place.idle {
            return None;
        }
        let fits = |written: &&Written| !place.shared && written.terms.are_those_of(entering);
        let written = place.written.as_ref().filter(fits);
        Some(written.map_or(Left::Somehow, |written| Left::AsWritten(written.version)))
    }

    /// How the lock is that this entry holds, if nothing was done to it since it was taken.
    pub fn held(&self, name: &Name, id: EntryId) -> Option<Held> {
        let (place, mark) = self.place(name);
        let written = place.written.as_ref().filter(|written| place.mark == mark && written.id == id)?;
        Some(Held { version: written.version, first: written.first })
    }

    /// It was taken in one statement, which wrote the whole row, or what differed from how it was left.
    pub fn taken(&self, entering: &Entering, first: Token, version: i64) {
        let (mut place, mark) = self.place(&entering.name);
        let shared = place.mark == mark && place.shared;
        // A limit is one more thing in the row, which goes when the lock is left.
        let whole = entering.limit.is_none();
        let id = entering.row.id();
        let written = whole.then(|| Written { id, terms: Terms::of(entering), first, version });
        *place = Place { mark, idle: false, written, shared };
    }

    /// An entry has left it idle. The version is known if nothing else has changed since it was taken.
    pub fn note(&self, name: &Name, id: EntryId, version: Option<i64>) {
        let (mut place, mark) = self.place(name);
        let same = place.mark == mark;
        let written = place.written.take().filter(|written| same && written.id == id);
        let written = written.zip(version).map(|(written, version)| Written { version, ..written });
        let shared = same && place.shared;
        *place = Place { mark, idle: true, written, shared };
    }

    /// It was not as it was left: others take it too.
    pub fn forget(&self, name: &Name) {
        let (mut place, mark) = self.place(name);
        // Another name may have come meanwhile.
        if place.mark == mark {
            *place = Place { mark, idle: false, written: None, shared: true };
        }
    }

    /// Something is done to the row that makes its version unknown, as a renewal does.
    pub fn changes(&self, name: &Name) {
        let (mut place, mark) = self.place(name);
        if place.mark == mark {
            place.written = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Label, SessionId};

    use super::*;
    use crate::row::Row;

    fn claim(name: &str, id: u128, wake: &str, limit: Option<u32>) -> Entering {
        let entry = Entry {
            id: EntryId(id),
            session: SessionId(1),
            label: Label::new("x"),
            want: Want::Exclusive,
            lease: Lease::Kept(Duration::from_secs(1)),
            place: Duration::ZERO,
            since: 0,
            ends: None,
            grant: None,
        };
        let row = Row { entry, barges: false, seq: 1, wake: wake.to_owned() };
        Entering { name: Name::new(name).unwrap(), row, limit }
    }

    fn left(idle: &Idle, id: u128) -> Option<Left> {
        idle.left(&claim("one", id, "push", None))
    }

    #[test]
    fn what_was_noted_is_remembered_until_it_is_forgotten() {
        let idle = Idle::default();
        let (one, other) = (Name::new("one").unwrap(), Name::new("other").unwrap());
        assert_eq!(left(&idle, 1), None);
        idle.note(&one, EntryId(1), None);
        assert_eq!(left(&idle, 2), Some(Left::Somehow));
        assert_eq!(idle.left(&claim("other", 2, "push", None)), None);
        idle.forget(&other);
        assert_eq!(left(&idle, 2), Some(Left::Somehow));
        idle.forget(&one);
        assert_eq!(left(&idle, 2), None);
    }

    #[test]
    fn what_this_session_wrote_is_known_by_its_version() {
        let idle = Idle::default();
        let one = Name::new("one").unwrap();
        idle.taken(&claim("one", 1, "push", None), Token(7), 10);
        assert_eq!((left(&idle, 2), idle.held(&one, EntryId(2))), (None, None));
        assert_eq!(idle.held(&one, EntryId(1)), Some(Held { version: 10, first: Token(7) }));
        idle.note(&one, EntryId(1), Some(11));
        assert_eq!(left(&idle, 2), Some(Left::AsWritten(11)));
        // On other terms, more has to be written.
        assert_eq!(idle.left(&claim("one", 2, "elsewhere", None)), Some(Left::Somehow));
    }

    #[test]
    fn what_others_may_have_changed_is_not_known() {
        let idle = Idle::default();
        let one = Name::new("one").unwrap();
        let known = |idle: &Idle| (left(idle, 9), idle.held(&one, EntryId(1)));
        // A renewal is under way, or was.
        idle.taken(&claim("one", 1, "push", None), Token(7), 10);
        idle.changes(&one);
        assert_eq!(known(&idle), (None, None));
        idle.note(&one, EntryId(1), Some(11));
        assert_eq!(known(&idle), (Some(Left::Somehow), None));
        // It was left by a statement that goes by no version.
        idle.taken(&claim("one", 1, "push", None), Token(7), 10);
        idle.note(&one, EntryId(1), None);
        assert_eq!(known(&idle), (Some(Left::Somehow), None));
        // Somebody else left it.
        idle.taken(&claim("one", 1, "push", None), Token(7), 10);
        idle.note(&one, EntryId(2), Some(11));
        assert_eq!(known(&idle), (Some(Left::Somehow), None));
        // A limit goes with the lock.
        idle.taken(&claim("one", 1, "push", Some(3)), Token(7), 10);
        assert_eq!(known(&idle), (None, None));
    }

    #[test]
    fn where_others_take_it_too_nobody_tries_whether_it_is_as_it_was_left() {
        let idle = Idle::default();
        let one = Name::new("one").unwrap();
        idle.taken(&claim("one", 1, "push", None), Token(7), 10);
        idle.note(&one, EntryId(1), Some(11));
        idle.forget(&one);
        assert_eq!(left(&idle, 2), None);
        for id in [2, 3] {
            idle.taken(&claim("one", id, "push", None), Token(7), 10);
            // While it is held, nobody else takes it.
            assert!(idle.held(&one, EntryId(id)).is_some());
            idle.note(&one, EntryId(id), Some(11));
            assert_eq!(left(&idle, 9), Some(Left::Somehow));
        }
    }
}
