//! An entry that was asked for and does not hold yet.

use std::time::Duration;

use leasehold_core::store::{Ask, Grant, Otherwise};
use leasehold_core::{EntryId, Error, Kind, Lease, Name, Tick, Want};

use super::lane::Scene;
use super::waiter::Waiter;
use super::{SILENCE, Terms};

pub(crate) struct Asking {
    pub(crate) id: EntryId,
    pub(super) want: Want,
    /// Nobody in the lane wants to wait.
    pub(super) tries: bool,
    /// When the last answered request about this entry was sent; until the first answer, when it was asked for.
    pub(crate) asked: Tick,
    /// Whether the store has said that the entry waits.
    pub(crate) queued: bool,
    /// The task that asks is still inside its first call and not in `waiting` yet.
    pub(crate) first_call: bool,
    /// A grant that came while it was.
    pub(crate) early: Option<Grant>,
    /// The entry was taken out of the store while it was: whatever the answer says, another one is needed.
    pub(crate) gone: bool,
    /// Somebody asks for the lock back: we hold it, and the answer that says so is still on its way.
    pub(crate) release_requested: bool,
    /// It was asked for more than once: another request under its id may be on its way.
    pub(super) asked_again: bool,
    /// News of it may have been missed since it was asked for.
    pub(super) unsure: bool,
    /// The entry before this one was granted too late for its lease. If this one waits, then perhaps behind that.
    pub(super) too_late_before: bool,
    /// When to look again.
    pub(crate) due: Tick,
    /// Since when the store does not answer, and how often it was tried.
    pub(crate) trouble: Option<(Tick, u32)>,
    /// What the store, or the way to it, said last: what the user should read when the patience is over.
    pub(crate) last_words: Option<Error>,
}

/// An [`Ask`] without its name, which the caller has.
pub(crate) struct Request {
    pub(crate) id: EntryId,
    want: Want,
    lease: Lease,
    place: Duration,
    otherwise: Otherwise,
}

impl Request {
    pub(crate) fn on(self, name: Name) -> Ask {
        let Request { id, want, lease, place, otherwise } = self;
        Ask { name, id, want, lease, place, otherwise }
    }
}

impl Asking {
    /// Whether another one has the lock, as far as the store has said: it has, and has not been silent for long since.
    pub(super) fn is_behind_another(&self, now: Tick) -> bool {
        self.queued
            && !self.too_late_before
            && self.trouble.is_none_or(|(since, _)| now.since(since) < SILENCE)
    }

    /// Until when this one waits for an answer if none comes.
    pub(super) fn bears(&self, waiter: &Waiter) -> Tick {
        match self.trouble {
            Some((since, _)) => waiter.gives_up_at(since),
            None if self.queued => Tick::NEVER,
            None => waiter.gives_up_at(self.asked),
        }
    }

    /// What somebody reads who gives up now.
    pub(super) fn complaint(&self, since: Tick, scene: &Scene<'_>) -> Error {
        let silence = || Error::new(Kind::Unavailable, "the store does not answer");
        let error = self.last_words.clone().unwrap_or_else(silence).on(&scene.key.name);
        error.tried_for(scene.now.since(since))
    }
}

impl Terms {
    pub(super) fn ask(&self, asking: &Asking, scene: &Scene<'_>) -> Request {
        let otherwise = match self.barges {
            _ if asking.tries => Otherwise::GoAway,
            true => Otherwise::Barge,
            false => Otherwise::Queue,
        };
        Request { id: asking.id, want: asking.want, lease: self.lease, place: scene.rules.lease, otherwise }
    }
}
