//! All lanes of a client, in shards, so that tasks on different names rarely meet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::name::NameMap;
use leasehold_core::store::{Grant, Joined, Renewed, Waiting};
use leasehold_core::view::Lost;
use leasehold_core::{Clock, EntryId, Error, Name, Result, Retry, SessionId, Tick, Want};

use super::hold::Hold;
use super::lane::{Enter, Lane, Overdue, Released, Scene, Stage};
use super::leaving::Leaving;
use super::release::{Release, Releases};
use super::waiter::{Handed, Outcome, Waiter, Wakers};
use super::{Action, LaneKey, LaneKind, Rules, Terms};
use crate::sync::{Arc, Mutex, lock};

const SHARDS: usize = 64;

/// How many idle lanes a shard keeps.
const IDLE: usize = 64;

pub(crate) struct Table {
    shards: Vec<Mutex<Shard>>,
    pub(crate) rules: Rules,
    pub(crate) clock: Clock,
    session: SessionId,
    count: AtomicU64,
    /// The earliest moment at which the keeper will look by itself.
    planned: AtomicU64,
    releases: Releases,
}

#[derive(Default)]
struct Shard {
    queue: NameMap<Lane>,
    barge: NameMap<Lane>,
    solo: HashMap<EntryId, (Name, Lane)>,
    leaving: Leaving,
    /// How many lanes have nothing to do. They are kept for their names' next time: making and removing one costs as much
    /// as the rest of a lock.
    idle: usize,
    /// No lane of this shard is due before.
    due: Option<Tick>,
}

/// What a visit to a lane led to.
pub(crate) struct Visit<T> {
    pub(crate) answer: T,
    pub(crate) actions: Vec<Action>,
    /// The keeper must look earlier than it planned.
    pub(crate) hurry: bool,
}

impl<T> Visit<T> {
    /// There was no such lane.
    fn in_vain(answer: T) -> Self {
        Visit { answer, actions: Vec::new(), hurry: false }
    }
}

impl Table {
    pub(crate) fn new(rules: Rules, clock: Clock, session: SessionId) -> Self {
        // As if the keeper had just looked: its first look comes soon.
        let planned = clock.now() + rules.lease / 3;
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        let (count, planned, releases) = (AtomicU64::new(1), AtomicU64::new(planned.0), Releases::default());
        Table { shards, rules, clock, session, count, planned, releases }
    }

    pub(crate) fn fresh_id(&self) -> EntryId {
        EntryId::of_session(self.session, self.count.fetch_add(1, Ordering::Relaxed))
    }

    fn shard(&self, name: &Name) -> &Mutex<Shard> {
        &self.shards[(name.stable_hash() >> 64) as usize % SHARDS]
    }

    /// Does something to a lane, makes it if there is none (and `make` says so), and forgets idle ones when there are many.
    fn visit<T>(
        &self,
        key: &LaneKey,
        make: Option<Terms>,
        now: Tick,
        act: impl FnOnce(&mut Lane, &mut Scene<'_>) -> T,
    ) -> Option<Visit<T>> {
        let mut actions = Vec::new();
        let mut wakers = Wakers::default();
        let fresh_id = || self.fresh_id();
        let act = |lane: &mut Lane, leaving: &mut Leaving| {
            let (rules, actions, wakers) = (&self.rules, &mut actions, &mut wakers);
            let mut scene = Scene { key, rules, now, fresh_id: &fresh_id, actions, wakers, leaving };
            let answer = act(lane, &mut scene);
            (answer, lane.due(), lane.is_idle())
        };
        let mut shard = lock(self.shard(&key.name));
        let (answer, due, idle) = shard.visit(key, make, act)?;
        shard.due = Some(shard.due.map_or(due, |d| d.min(due)));
        drop(shard);
        wakers.wake();
        let hurry = !idle && self.is_before_the_next_look(due);
        Some(Visit { answer, actions, hurry })
    }

    fn is_before_the_next_look(&self, due: Tick) -> bool {
        due.0 < self.planned.load(Ordering::SeqCst)
    }

    /// Somebody waits for a release, and polls it. Tells whether the keeper must look earlier than it planned.
    pub(crate) fn lend(&self, release: Arc<Release>) -> bool {
        let due = self.releases.begin(release, self.clock.now());
        self.is_before_the_next_look(due)
    }

    pub(crate) fn enter(
        &self,
        key: &LaneKey,
        want: Want,
        terms: Terms,
        tries: bool,
        now: Tick,
    ) -> Visit<Enter> {
        self.visit(key, Some(terms), now, |lane, scene| lane.enter(want, tries, terms.retry_for, scene))
            .expect("a lane is made")
    }

    pub(crate) fn held_at_once(
        &self,
        key: &LaneKey,
        id: EntryId,
        grant: Grant,
        now: Tick,
    ) -> Option<Visit<Option<Handed>>> {
        self.visit(key, None, now, |lane, scene| lane.held_at_once(id, grant, scene))
    }

    pub(crate) fn first_waits(
        &self,
        key: &LaneKey,
        id: EntryId,
        want: Want,
        terms: Terms,
        tries: bool,
    ) -> Visit<Arc<Waiter>> {
        let now = self.clock.now();
        self.visit(key, Some(terms), now, |lane, scene| {
            lane.first_waits(id, want, tries, terms.retry_for, scene)
        })
        .expect("a lane is made")
    }

    /// The answer to a join that was sent at `asked`. An entry that nobody here knows any more is disowned: it may have
    /// been left before it was made.
    pub(crate) fn joined(
        &self,
        key: &LaneKey,
        id: EntryId,
        answer: Result<Joined>,
        asked: Tick,
    ) -> Visit<()> {
        let maybe_there = match &answer {
            Ok(answer) => *answer != Joined::Busy,
            Err(error) => error.retry_advice() == Retry::SameId,
        };
        let visit = match answer {
            Ok(Joined::Held(grant)) => self.granted(key, id, grant, Some(asked)),
            Ok(Joined::Waiting(waiting)) => self.queued(key, id, waiting, asked),
            Ok(Joined::Busy) => self.about(key, |lane, scene| {
                lane.busy(id, scene);
                true
            }),
            Err(error) => self.failed(key, id, &error),
        };
        let Visit { answer: known, mut actions, hurry } = visit;
        if maybe_there && !known {
            actions.push(Action::Disown(key.name.clone(), id));
        }
        Visit { answer: (), actions, hurry }
    }

    /// The answer to a renewal that was sent at `asked`. Tells why a held lock was lost by it, if it was. An entry that nobody here
    /// knows any more has been left since: nothing is to be done about it.
    pub(crate) fn renewed(
        &self,
        key: &LaneKey,
        id: EntryId,
        answer: Result<Renewed>,
        asked: Tick,
    ) -> Visit<Option<Lost>> {
        let visit = match answer {
            Ok(Renewed::Held(grant)) => self.granted(key, id, grant, Some(asked)),
            Ok(Renewed::Waiting(waiting)) => self.queued(key, id, waiting, asked),
            Ok(Renewed::Gone(why)) => return self.missing(key, id, why),
            Err(error) => self.failed(key, id, &error),
        };
        let Visit { actions, hurry, .. } = visit;
        Visit { answer: None, actions, hurry }
    }

    fn failed(&self, key: &LaneKey, id: EntryId, error: &Error) -> Visit<bool> {
        let again = error.retry_advice() != Retry::Never;
        self.about(key, |lane, scene| lane.failed(id, error, again, scene))
    }

    /// The entry holds. `false` if nobody here knows it.
    pub(crate) fn granted(
        &self,
        key: &LaneKey,
        id: EntryId,
        grant: Grant,
        asked: Option<Tick>,
    ) -> Visit<bool> {
        self.about(key, |lane, scene| lane.granted(id, grant, asked, scene))
    }

    fn queued(&self, key: &LaneKey, id: EntryId, waiting: Waiting, asked: Tick) -> Visit<bool> {
        self.about(key, |lane, scene| lane.queued(id, waiting, asked, scene))
    }

    /// The entry is not at the store any more. Tells why a held lock was lost by it, if it was.
    pub(crate) fn gone(&self, key: &LaneKey, id: EntryId, why: Lost) -> Visit<Option<Lost>> {
        self.about(key, |lane, scene| lane.gone(id, why, scene))
    }

    /// The store was asked about the entry and does not have it.
    pub(crate) fn missing(&self, key: &LaneKey, id: EntryId, why: Lost) -> Visit<Option<Lost>> {
        self.about(key, |lane, scene| lane.missing(id, why, scene))
    }

    /// News of an entry may have been missed.
    pub(crate) fn ask_about(&self, key: &LaneKey, id: EntryId) -> Visit<()> {
        self.about(key, |lane, scene| lane.ask_about(id, scene))
    }

    /// Somebody asks for the lock back.
    pub(crate) fn release_requested(&self, key: &LaneKey, id: EntryId) -> Visit<bool> {
        self.about(key, |lane, scene| lane.release_requested(id, scene))
    }

    fn about<T: Default>(&self, key: &LaneKey, act: impl FnOnce(&mut Lane, &mut Scene<'_>) -> T) -> Visit<T> {
        self.visit(key, None, self.clock.now(), act).unwrap_or_else(|| Visit::in_vain(T::default()))
    }

    pub(crate) fn release(&self, key: &LaneKey, hold: &Arc<Hold>, now: Tick) -> Visit<Released> {
        let visit = self.visit(key, None, now, |lane, scene| lane.release(hold, scene));
        visit.unwrap_or_else(|| Visit::in_vain(Released::NotHeld))
    }

    /// There is news of an entry that nobody here knows. Tells whether the caller has to take it out of the store.
    pub(crate) fn disown(&self, name: &Name, id: EntryId) -> bool {
        lock(self.shard(name)).leaving.disown(id)
    }

    /// An entry has left. Tells whether it must be left once more: it may have been made after the first.
    pub(crate) fn left(&self, name: &Name, id: EntryId) -> bool {
        lock(self.shard(name)).leaving.over(id)
    }

    /// A task stops waiting. What it was handed in the meantime comes back, to be released.
    pub(crate) fn cancel(&self, key: &LaneKey, waiter: &Arc<Waiter>) -> Visit<Option<Handed>> {
        let now = self.clock.now();
        let visit = self.visit(key, None, now, |lane, scene| lane.cancel(waiter, scene));
        let handed = match waiter.take() {
            Some(Outcome::Handed(handed)) => Some(handed),
            _ => None,
        };
        let Visit { actions, hurry, .. } = visit.unwrap_or_else(|| Visit::in_vain(()));
        Visit { answer: handed, actions, hurry }
    }

    /// How things stand for one whose time is over.
    pub(crate) fn overdue(&self, key: &LaneKey, waiter: &Waiter) -> Overdue {
        let visit = self.visit(key, None, self.clock.now(), |lane, scene| lane.overdue(waiter, scene));
        visit.map_or(Overdue::Busy, |visit| visit.answer)
    }

    /// How many leases are held, and until when all of them are certain if none is renewed.
    pub(crate) fn held(&self) -> (usize, Tick) {
        let (mut count, mut until) = (0, Tick::NEVER);
        for shard in &self.shards {
            let shard = lock(shard);
            let solo = shard.solo.values().map(|(_, lane)| lane);
            for lane in shard.queue.values().chain(shard.barge.values()).chain(solo) {
                if let Stage::Held(held) = &lane.stage {
                    count += 1;
                    until = until.min(held.hold.valid_until());
                }
            }
        }
        (count, until)
    }

    /// The store is about to be asked to make a reader of a writer. `false` if the lock is not held any more.
    pub(crate) fn downgrade_begins(&self, key: &LaneKey, hold: &Arc<Hold>) -> Visit<bool> {
        self.about(key, |lane, scene| lane.downgrade_begins(hold, scene))
    }

    /// It has made a reader of it.
    pub(crate) fn downgraded(&self, key: &LaneKey, id: EntryId) -> Visit<()> {
        self.about(key, |lane, scene| lane.downgraded(id, scene))
    }

    /// It is certain that it has not.
    pub(crate) fn not_downgraded(&self, key: &LaneKey, id: EntryId) -> Visit<()> {
        self.about(key, |lane, _| lane.not_downgraded(id))
    }

    /// The lane whose entry this is.
    pub(crate) fn lane_of(&self, name: &Name, id: EntryId) -> Option<LaneKey> {
        let shard = lock(self.shard(name));
        let is_it = |lane: &Lane| lane.entry() == Some(id);
        let owns = |lanes: &NameMap<Lane>| lanes.get(name).is_some_and(is_it);
        let kind = if owns(&shard.queue) {
            LaneKind::Queue
        } else if owns(&shard.barge) {
            LaneKind::Barge
        } else if shard.solo.get(&id).is_some_and(|(_, lane)| is_it(lane)) {
            LaneKind::Solo(id)
        } else {
            // A solo lane that had to ask again has another entry id than its own: rare, so it is searched for last.
            LaneKind::Solo(*shard.solo.iter().find(|(_, (_, lane))| is_it(lane))?.0)
        };
        Some(LaneKey { name: name.clone(), kind })
    }

    /// The keeper's round: what is due now, how many leases were found to have ended, and when to come again.
    pub(crate) fn look(&self) -> (Vec<Action>, u64, Tick) {
        // Whoever makes something due while we look must call us again: we may have passed its shard.
        self.planned.store(Tick::NEVER.0, Ordering::SeqCst);
        let now = self.clock.now();
        let (neglected, mut next) = self.releases.look(now);
        let mut actions: Vec<Action> = neglected.into_iter().map(Action::GoOnLeaving).collect();
        let mut lost = 0;
        let due =
            |until: Tick| self.shards.iter().any(|shard| lock(shard).due.is_some_and(|due| due <= until));
        let until = if due(now) { now + self.rules.together() } else { now };
        for shard in &self.shards {
            let mut shard = lock(shard);
            if shard.due.is_some_and(|due| due <= until) {
                lost += shard.look(self, now, &mut actions);
            }
            next = next.min(shard.due.unwrap_or(Tick::NEVER));
        }
        // An idle keeper comes by often enough that a lease of the usual length never has to call it.
        let next = next.min(now + self.rules.lease / 3);
        self.planned.store(next.0, Ordering::SeqCst);
        (actions, lost, next)
    }

    /// Everything ends here. Returns how many held locks were lost by it.
    pub(crate) fn end(&self, why: Lost, error: Option<&Error>) -> (Vec<Action>, u64) {
        let (mut actions, mut lost) = (Vec::new(), 0);
        for shard in &self.shards {
            let mut shard = lock(shard);
            let end = |lane: &mut Lane, scene: &mut Scene<'_>| lost += u64::from(lane.end(why, error, scene));
            shard.each(self, self.clock.now(), &mut actions, |_| true, end);
        }
        (actions, lost)
    }

    /// How many lanes have something to do, and entries leave: none when nothing is held and nobody waits.
    #[cfg(all(test, shuttle))]
    pub(crate) fn busy(&self) -> usize {
        let busy = |lane: &&Lane| !lane.is_idle();
        let count = |s: &Shard| {
            s.queue.values().filter(busy).count()
                + s.barge.values().filter(busy).count()
                + s.solo.len()
                + s.leaving.len()
        };
        self.shards.iter().map(|shard| count(&lock(shard))).sum()
    }
}

impl Shard {
    /// Does something to a lane: one that has something to do, or whatever is there or can be made.
    fn visit<T>(
        &mut self,
        key: &LaneKey,
        make: Option<Terms>,
        act: impl FnOnce(&mut Lane, &mut Leaving) -> (T, Tick, bool),
    ) -> Option<(T, Tick, bool)> {
        let found = match key.kind {
            LaneKind::Queue => self.queue.get_mut(&key.name),
            LaneKind::Barge => self.barge.get_mut(&key.name),
            LaneKind::Solo(id) => self.solo.get_mut(&id).map(|(_, lane)| lane),
        };
        let (done, was_idle) = match found {
            Some(lane) if make.is_none() && lane.is_idle() => return None,
            Some(lane) => {
                let was_idle = lane.is_idle();
                (act(lane, &mut self.leaving), was_idle)
            }
            None => {
                // A new one never counted as idle.
                let mut lane = Lane::new(make?);
                let done = act(&mut lane, &mut self.leaving);
                self.keep(key, lane);
                (done, false)
            }
        };
        let idle = done.2;
        self.idle = self.idle + usize::from(idle) - usize::from(was_idle);
        if idle {
            self.tidy(key.kind);
        }
        Some(done)
    }

    fn keep(&mut self, key: &LaneKey, lane: Lane) {
        match key.kind {
            LaneKind::Queue => drop(self.queue.insert(key.name.clone(), lane)),
            LaneKind::Barge => drop(self.barge.insert(key.name.clone(), lane)),
            LaneKind::Solo(id) => drop(self.solo.insert(id, (key.name.clone(), lane))),
        }
    }

    /// A lane of this kind has become idle.
    fn tidy(&mut self, kind: LaneKind) {
        if let LaneKind::Solo(id) = kind {
            self.solo.remove(&id);
            self.idle -= 1;
        } else if self.idle > IDLE {
            self.queue.retain(|_, lane| !lane.is_idle());
            self.barge.retain(|_, lane| !lane.is_idle());
            self.idle = 0;
        }
    }

    fn look(&mut self, table: &Table, now: Tick, actions: &mut Vec<Action>) -> u64 {
        let (mut lost, mut due) = (0, Tick::NEVER);
        self.each(
            table,
            now,
            actions,
            |lane| lane.due_soon(now, &table.rules),
            |lane, scene| lost += u64::from(lane.look(scene)),
        );
        for lane in
            self.queue.values().chain(self.barge.values()).chain(self.solo.values().map(|(_, lane)| lane))
        {
            due = due.min(lane.due());
        }
        self.due = Some(due);
        lost
    }

    /// Visits the lanes that are `wanted`, and forgets those of which nothing is left.
    fn each(
        &mut self,
        table: &Table,
        now: Tick,
        actions: &mut Vec<Action>,
        wanted: impl Fn(&Lane) -> bool,
        mut act: impl FnMut(&mut Lane, &mut Scene<'_>),
    ) {
        let fresh_id = || table.fresh_id();
        let mut wakers = Wakers::default();
        let leaving = &mut self.leaving;
        let mut visit = |name: &Name, kind: LaneKind, lane: &mut Lane| {
            if wanted(lane) {
                let key = &LaneKey { name: name.clone(), kind };
                let (rules, fresh_id, wakers) = (&table.rules, &fresh_id, &mut wakers);
                act(lane, &mut Scene { key, rules, now, fresh_id, actions, wakers, leaving });
            }
            !lane.is_idle()
        };
        self.queue.retain(|name, lane| visit(name, LaneKind::Queue, lane));
        self.barge.retain(|name, lane| visit(name, LaneKind::Barge, lane));
        self.solo.retain(|id, (name, lane)| visit(name, LaneKind::Solo(*id), lane));
        self.idle = 0;
        wakers.wake();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::time::Duration;

    use leasehold_core::store::Term;
    use leasehold_core::traits::Death;
    use leasehold_core::{Lease, Token, TokenBlock};

    use super::*;
    use crate::budget::Budget;

    const LEASE: Duration = Duration::from_secs(3);

    fn grant(first: u64) -> Grant {
        let tokens = TokenBlock { first: Token(first), len: 8 };
        Grant { tokens, term: Term::For(LEASE), started: true, contended: true, release_requested: false }
    }

    /// A table in which the first claim has just been sent, its lane, its entry, and when it was sent.
    fn asked(budget: Budget, terms: Terms, tries: bool) -> (Table, LaneKey, EntryId, Tick) {
        let (lease, retry_for, try_for, death) = (LEASE, LEASE, LEASE, Death::LeaseEnd);
        let table =
            Table::new(Rules { lease, budget, retry_for, try_for, death }, Clock::manual(), SessionId(1));
        let kind = if terms.barges { LaneKind::Barge } else { LaneKind::Queue };
        let key = LaneKey { name: Name::new("n").unwrap(), kind };
        let start = table.clock.now();
        let Enter::First(request) = table.enter(&key, Want::Exclusive, terms, tries, start).answer else {
            panic!("nobody else is there")
        };
        (table, key, request.id, start)
    }

    #[test]
    fn a_renewal_that_is_answered_after_the_loss_was_told_does_not_keep_the_lock_from_others() {
        let terms = Terms { lease: Lease::Kept(LEASE), barges: false, retry_for: Some(LEASE) };
        let (table, key, id, start) = asked(Budget::default(), terms, false);
        let visit = table.held_at_once(&key, id, grant(1), start).expect("the lane");
        let handed = visit.answer.expect("a grant that is good");
        let Enter::Wait(_next) = table.enter(&key, Want::Exclusive, terms, false, start).answer else {
            panic!("somebody holds it")
        };
        table.clock.advance(LEASE / 3);
        let asked = table.clock.now();
        table.clock.advance(LEASE);
        let now = table.clock.now();
        assert_eq!(handed.hold.lost_by(now), Some(Lost::Expired));
        let actions = table.renewed(&key, id, Ok(Renewed::Held(grant(1))), asked).actions;
        assert!(!handed.hold.is_good(now));
        // The entry goes, and whoever waits here asks for another one.
        assert!(
            matches!(&actions[..], [Action::Bury(_, gone, _), Action::Join(_, ask)] if *gone == id && ask.id != id),
            "{actions:?}"
        );
    }

    /// A store that has forgotten the entry says "revoked"; the clock knows better. And what was told once stays so.
    #[test]
    fn a_lease_that_ended_by_the_clock_has_expired_whatever_a_renewal_says() {
        for seen in [false, true] {
            let terms = Terms { lease: Lease::Kept(LEASE), barges: false, retry_for: None };
            let (table, key, id, start) = asked(Budget::default(), terms, false);
            let visit = table.held_at_once(&key, id, grant(1), start).expect("the lane");
            let hold = visit.answer.expect("a grant that is good").hold;
            table.clock.advance(LEASE);
            if seen {
                assert_eq!(hold.lost_by(table.clock.now()), Some(Lost::Expired));
                table.gone(&key, id, Lost::Revoked);
            } else {
                let lost = table.renewed(&key, id, Ok(Renewed::Gone(Lost::Revoked)), start).answer;
                assert_eq!(lost, Some(Lost::Expired));
            }
            assert_eq!(hold.lost_by(table.clock.now()), Some(Lost::Expired));
        }
    }

    /// Nothing else wants it, so "busy" would not be true.
    #[test]
    fn a_lease_that_is_over_before_its_answer_is_a_failure_at_the_limit() {
        for tries in [false, true] {
            let terms = Terms { lease: Lease::Fixed(LEASE), barges: false, retry_for: None };
            let (table, key, id, start) = asked(Budget::off(), terms, tries);
            let waiter = table.first_waits(&key, id, Want::Exclusive, terms, tries).answer;
            table.clock.advance(LEASE);
            let actions = table.joined(&key, id, Ok(Joined::Held(grant(1))), start).actions;
            let late = match waiter.take() {
                Some(Outcome::Failed(error)) if tries => error,
                None if !tries => match table.overdue(&key, &waiter) {
                    Overdue::Failed(error) => error,
                    other => panic!("{other:?} after {actions:?}"),
                },
                other => panic!("{other:?} after {actions:?}"),
            };
            assert!(late.to_string().contains("before the store's answer"), "{late}");
        }
    }

    /// The second request may have made it again, after it was taken away and before that was told.
    #[test]
    fn an_entry_that_was_asked_for_twice_and_is_taken_away_leaves_once_more() {
        for twice in [false, true] {
            let terms = Terms { lease: Lease::Kept(LEASE), barges: false, retry_for: None };
            let (table, key, id, _) = asked(Budget::default(), terms, false);
            let _waiter = table.first_waits(&key, id, Want::Exclusive, terms, false).answer;
            if twice {
                table.clock.advance(LEASE);
                let (actions, ..) = table.look();
                assert!(matches!(&actions[..], [Action::Join(_, ask)] if ask.id == id), "{actions:?}");
            }
            table.joined(&key, id, Ok(Joined::Held(grant(1))), table.clock.now());
            let visit = table.gone(&key, id, Lost::Revoked);
            assert_eq!(visit.answer, Some(Lost::Revoked));
            let disowned = matches!(&visit.actions[..], [Action::Disown(_, gone)] if *gone == id);
            assert_eq!(disowned, twice, "{:?}", visit.actions);
        }
    }

    #[test]
    fn a_grant_in_the_moment_of_the_limit_is_a_grant() {
        let terms = Terms { lease: Lease::Kept(LEASE), barges: true, retry_for: None };
        let (table, key, id, start) = asked(Budget::default(), terms, false);
        let waiter = table.first_waits(&key, id, Want::Exclusive, terms, false).answer;
        assert!(matches!(table.overdue(&key, &waiter), Overdue::Unanswered(about) if about == id));
        table.joined(&key, id, Ok(Joined::Held(grant(1))), start);
        assert!(matches!(table.overdue(&key, &waiter), Overdue::Done));
    }
}
