//! Entries on their way out of the store.

use leasehold_core::store::Leave;
use leasehold_core::{EntryId, Tick};

/// An entry that is to be taken out of the store.
#[derive(Debug, Clone)]
pub(crate) struct Going {
    pub(crate) leave: Leave,
    /// It is worth trying until this moment; then it has ended by itself. [`Tick::NEVER`] if it does not.
    pub(crate) until: Tick,
    /// Whether it is among the [`Leaving`], and is to be taken from there when it has left.
    pub(crate) listed: bool,
}

/// The entries that nobody here stands for any more and whose `leave` is not answered yet. An entry comes here in the same moment
/// in which its lane forgets it, so that late news of it is never taken for news of an entry that was left behind: to leave it once
/// more at the same time would make the one who releases it believe that somebody took the lock away.
///
/// A list: there are few, and a map costs more.
#[derive(Default)]
pub(crate) struct Leaving(Vec<OnItsWay>);

struct OnItsWay {
    id: EntryId,
    /// It may have been made after it was left.
    again: bool,
}

impl Leaving {
    pub(crate) fn begin(&mut self, id: EntryId) {
        self.0.push(OnItsWay { id, again: false });
    }

    /// There is news of an entry that nobody here knows. `true` if the caller has to leave it; `false` if that is being done, and
    /// will be done once more.
    pub(crate) fn disown(&mut self, id: EntryId) -> bool {
        if let Some(one) = self.0.iter_mut().find(|one| one.id == id) {
            one.again = true;
            return false;
        }
        self.begin(id);
        true
    }

    /// Its `leave` was answered. Tells whether it must be left once more.
    pub(crate) fn over(&mut self, id: EntryId) -> bool {
        let at = self.0.iter().position(|one| one.id == id);
        at.is_some_and(|at| self.0.swap_remove(at).again)
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
