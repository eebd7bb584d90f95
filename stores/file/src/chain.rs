//! Who watches whom.
//!
//! A death must be noticed at once, and by no more than the one that must act. So those that wait form a chain: each
//! watches the session just ahead of it, and the first watches all holders. Whoever sees a death takes the dead entries out
//! of the queue, and the rule does the rest. Those that barge stand behind the queue, in the order in which they are told.
//!
//! The first of them, when nobody queues, also watches the last: that is the one that was offered a free lock, and if it
//! dies before it takes it, somebody must offer it on.
//!
//! When an entry leaves, whoever stood behind it must watch somebody else, though nothing happened to it: it is told to
//! look ([`must_look`]). In a plain queue of exclusive claims that is only so after a cancellation: at a hand-over the new
//! holder is the one that the next in line watched already.

use leasehold_core::queue::Queue;
use leasehold_core::{EntryId, SessionId};

/// A queue reduced to what this is about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    holders: Vec<SessionId>,
    waiting: Vec<Place>,
}

#[derive(Debug, PartialEq, Eq)]
struct Place {
    id: EntryId,
    session: SessionId,
    barges: bool,
}

impl Line {
    /// The line of a queue; `None` if nobody waits, which is the usual case and costs nothing.
    pub(crate) fn of(queue: &Queue) -> Option<Self> {
        let held = queue.held();
        if held == queue.entries.len() && queue.bargers.is_empty() {
            return None;
        }
        let mut holders: Vec<SessionId> = queue.entries[..held].iter().map(|e| e.session).collect();
        holders.sort_unstable();
        holders.dedup();
        let queued =
            queue.entries[held..].iter().map(|e| Place { id: e.id, session: e.session, barges: false });
        let bargers = queue.bargers.iter().map(|e| Place { id: e.id, session: e.session, barges: true });
        Some(Line { holders, waiting: queued.chain(bargers).collect() })
    }

    /// Whom the place at this index watches.
    fn watched_from(&self, at: usize) -> impl Iterator<Item = SessionId> {
        let (holders, before): (&[SessionId], _) = match at.checked_sub(1) {
            None => (&self.holders, self.waiting.last().filter(|_| self.waiting[at].barges)),
            Some(before) => (&[], Some(&self.waiting[before])),
        };
        holders.iter().copied().chain(before.map(|place| place.session))
    }

    /// Whom a session watches for all its places here, itself left out, and which places these are.
    pub(crate) fn watched_by(&self, me: SessionId) -> (Vec<SessionId>, Vec<EntryId>) {
        let mine = || self.waiting.iter().enumerate().filter(|(_, place)| place.session == me);
        let mut watched: Vec<SessionId> = mine().flat_map(|(at, _)| self.watched_from(at)).collect();
        watched.sort_unstable();
        watched.dedup();
        watched.retain(|session| *session != me);
        (watched, mine().map(|(_, place)| place.id).collect())
    }
}

/// Whom one who came and found the lock busy must have checked: if they live, it is busy.
pub(crate) fn in_the_way(queue: &Queue) -> Vec<SessionId> {
    let held = queue.held();
    // Those that barge don't stand in the way of a newcomer.
    let ahead = if held < queue.entries.len() {
        &queue.entries[queue.entries.len() - 1..]
    } else {
        &queue.entries[..]
    };
    ahead.iter().map(|e| e.session).collect()
}

/// Who waits in both lines and must watch somebody now that it did not have to watch before. Not `me`: I have looked.
pub(crate) fn must_look(before: &Line, after: &Line, me: SessionId) -> Vec<SessionId> {
    let mut tell = Vec::new();
    let mut guess = 0;
    for (at, place) in after.waiting.iter().enumerate() {
        let Some(was_at) = before.find(place.id, guess) else { continue };
        guess = was_at + 1;
        let news = after.watched_from(at).any(|session| {
            session != place.session && before.watched_from(was_at).all(|watched| watched != session)
        });
        if news && place.session != me && !tell.contains(&place.session) {
            tell.push(place.session);
        }
    }
    tell
}

impl Line {
    /// Where an entry waits. The order hardly changes, so `guess` is nearly always right.
    fn find(&self, id: EntryId, guess: usize) -> Option<usize> {
        let len = self.waiting.len();
        (0..len).map(|i| (guess + i) % len).find(|at| self.waiting[*at].id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `"1 2 | 3 4 / 5 6"`: holders, queue, bargers; entry `n` is of session `n`.
    fn line(text: &str) -> Line {
        let numbers = |t: &str| t.split_whitespace().map(|n| n.parse::<u128>().unwrap()).collect::<Vec<_>>();
        let (holders, rest) = text.split_once('|').unwrap();
        let (queue, bargers) = rest.split_once('/').unwrap_or((rest, ""));
        let place = |barges| move |n: u128| Place { id: EntryId(n), session: SessionId(n), barges };
        Line {
            holders: numbers(holders).into_iter().map(SessionId).collect(),
            waiting: numbers(queue)
                .into_iter()
                .map(place(false))
                .chain(numbers(bargers).into_iter().map(place(true)))
                .collect(),
        }
    }

    fn watched(text: &str, me: u128) -> Vec<u128> {
        line(text).watched_by(SessionId(me)).0.into_iter().map(|s| s.0).collect()
    }

    fn looks(before: &str, after: &str) -> Vec<u128> {
        must_look(&line(before), &line(after), SessionId(0)).into_iter().map(|s| s.0).collect()
    }

    #[test]
    fn the_first_watches_the_holders_and_each_other_the_one_ahead() {
        assert_eq!(watched("1 2 | 3 4 5", 3), [1, 2]);
        assert_eq!(watched("1 2 | 3 4 5", 4), [3]);
        assert_eq!(watched("1 2 | 3 4 5", 5), [4]);
        assert_eq!(watched("1 2 | 3 4 5", 1), []);
    }

    #[test]
    fn bargers_stand_behind_the_queue_and_the_first_guards_the_offer() {
        assert_eq!(watched("1 | 2 / 3 4", 3), [2]);
        assert_eq!(watched("1 | 2 / 3 4", 4), [3]);
        assert_eq!(watched("1 | / 3 4", 3), [1, 4]);
        assert_eq!(watched(" | / 3", 3), []);
    }

    #[test]
    fn a_plain_hand_over_makes_nobody_look() {
        assert_eq!(looks("1 | 2 3 4", "2 | 3 4"), []);
        assert_eq!(looks("1 2 | 3 4", "1 | 3 4"), []);
        assert_eq!(looks("1 | 2 3", "1 | 2 3 4"), []);
    }

    #[test]
    fn whoever_stood_behind_a_leaver_looks() {
        assert_eq!(looks("1 | 2 3 4", "1 | 3 4"), [3]);
        assert_eq!(looks("1 | 2 3 4 5", "1 | 2 3 5"), [5]);
        assert_eq!(looks("1 | 2 3 / 4", "1 | 2 / 4"), [4]);
    }

    #[test]
    fn the_first_looks_when_holders_come_that_it_did_not_watch() {
        assert_eq!(looks("1 | 2 3 4", "2 3 | 4"), [4]);
        assert_eq!(looks("1 | / 2 3", "4 | / 2 3"), [2]);
    }

    #[test]
    fn a_barger_that_moved_to_the_front_looks_for_holders_only() {
        assert_eq!(looks("1 | / 2 3", " | / 3 2"), []); // 3 watched 2, to whom the free lock was offered, before
        assert_eq!(looks("1 | / 2 3 4", "5 | / 3 4 2"), [3]);
    }
}
