//! The usual cases, each in one statement: a lock that is free is taken, and one that nobody waits for is given back. A statement does nothing
//! if the case isn't the usual one.
//!
//! Here is decided which statement it is, and what its outcome means. Each database has its own words for them.

use leasehold_core::{Clock, EntryId, Error, Kind, Name, Result, Retry, Tick, Token};

use crate::BLOCK;
use crate::backend::{Departing, Step, Stepped};
use crate::change::fresh_version;
use crate::idle::{Held, Idle, Left};
use crate::unwatched::Unwatched;

/// What a session knows of its locks.
pub struct Usual {
    idle: Idle,
    unwatched: Unwatched,
}

/// A statement for a step.
#[derive(Debug)]
pub struct Plan {
    /// Which statement.
    pub way: Way,
    /// The version that it writes.
    pub version: i64,
    /// Until when nobody has to be looked for who watches, by the clock of the database. `None`: the statement has to look.
    pub until: Option<u64>,
    /// When it was made.
    at: Tick,
}

/// Which statement does a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Takes a free lock, whether it has a row or not, and writes the whole row. Tells the first token.
    Enter,
    /// The same for one that has a row.
    EnterAgain,
    /// The same for one whose row has this version: whose it is, and on what terms, stands in it already.
    Follow(i64),
    /// Lets go of a lock that nobody waits for. Tells the time of the database if it looks for those who watch.
    Depart,
    /// The same for one whose row has this version: it is held by whoever goes, and nobody waits.
    LetGo(i64, LastToken),
}

/// The highest token that counts as given out when a lock is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastToken(pub u64);

impl LastToken {
    /// Tokens of the block that were not used go back.
    fn of(first: Token, used: Option<Token>) -> Self {
        // Whatever a server says: none of this may overflow.
        let (before, end) = (first.0.saturating_sub(1), first.0.saturating_add(u64::from(BLOCK) - 1));
        LastToken(used.map_or(end, |used| used.0.clamp(before, end)))
    }
}

/// What a statement did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many rows it changed.
    pub changed: u64,
    /// What it told of them.
    pub told: Option<u64>,
}

impl Default for Usual {
    fn default() -> Self {
        Usual { idle: Idle::default(), unwatched: Unwatched::new(Clock::system()) }
    }
}

impl Usual {
    /// The statement for a step, to be sent now.
    pub fn plan(&self, step: &Step) -> Result<Plan> {
        let way = match step {
            Step::Enter(entering) => match self.idle.left(entering) {
                None => Way::Enter,
                Some(Left::Somehow) => Way::EnterAgain,
                Some(Left::AsWritten(version)) => Way::Follow(version),
            },
            Step::Depart(Departing { name, id, used }) => match self.idle.held(name, *id) {
                None => Way::Depart,
                Some(Held { version, first }) => Way::LetGo(version, LastToken::of(first, *used)),
            },
        };
        let (at, until) = (self.unwatched.now(), self.unwatched.until());
        Ok(Plan { way, version: fresh_version()?, until, at })
    }

    /// What the outcome of a statement means for the step. `None` if the statement counted on something that was not so; the next one won't.
    pub fn came_of(&self, step: &Step, plan: &Plan, outcome: Outcome) -> Result<Option<Stepped>> {
        let (done, Outcome { told, .. }) = (outcome.changed > 0, outcome);
        match step {
            Step::Enter(entering) if done => {
                // It is asked again by its id, and then found.
                let untold = || Error::new(Kind::Unavailable, "the database did not tell the token");
                let first = told.map(Token).ok_or_else(|| untold().retry(Retry::SameId))?;
                self.idle.taken(entering, first, plan.version);
                Ok(Some(Stepped::Entered(first)))
            }
            Step::Enter(entering) if plan.way != Way::Enter => {
                // Somebody else has it or had it, or its row was removed. It counts as idle when it is left so once more.
                self.idle.forget(&entering.name);
                Ok(None)
            }
            Step::Depart(Departing { name, id, .. }) if done => {
                let known = matches!(plan.way, Way::LetGo(..)).then_some(plan.version);
                self.idle.note(name, *id, known);
                if let (None, Some(time)) = (plan.until, told) {
                    self.unwatched.seen(plan.at, time);
                }
                Ok(Some(Stepped::Departed))
            }
            // Where a version is not the expected one somebody waits, so there is more to do than to leave.
            Step::Enter(_) | Step::Depart(_) => Ok(Some(Stepped::Undone)),
        }
    }

    /// These are renewed: their rows get versions that nobody is told.
    pub fn renews(&self, lines: &[(Name, EntryId)]) {
        lines.iter().for_each(|(name, _)| self.idle.changes(name));
    }
}

/// The condition that the rows of a lock `l` may go: `retention` microseconds have passed since the lease in its row ended, which is all that
/// the usual statements write of it, and it is not to be kept for others. `now` is how the database says the time.
pub fn may_go(retention: u64, now: &str) -> String {
    format!("l.keep < {now} AND COALESCE(l.ends, 0) < {now} - {retention}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_were_not_used_go_back_and_none_comes_twice() {
        let of = |used: Option<u64>| LastToken::of(Token(100), used.map(Token)).0;
        assert_eq!([of(Some(100)), of(Some(101)), of(Some(1123))], [100, 101, 1123]);
        assert_eq!(
            [LastToken::of(Token(0), None), LastToken::of(Token(u64::MAX), None)].map(|t| t.0),
            [1023, u64::MAX]
        );
        // None was used, it is not known which were, or it makes no sense.
        assert_eq!([of(Some(99)), of(None), of(Some(5)), of(Some(5000))], [99, 1123, 99, 1123]);
    }
}
