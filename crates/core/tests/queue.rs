//! Random histories of a queue, side by side with a naive model, and with what must be true after every step.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::queue::{Effects, Entry, Now, Policy, Queue};
use leasehold_core::store::{Ask, Grant, Joined, Left, News, Otherwise, Renewal, Renewed, Term};
use leasehold_core::traits::Death;
use leasehold_core::view::Happened;
use leasehold_core::{EntryId, Kind, Label, Lease, Name, SessionId, Tick, Token, TokenBlock, Want};
use model::{Answer, Asked, Dies, Model, Ms, Told};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

const SLOTS: u8 = 10;
const SESSIONS: u8 = 4;
const BLOCK: u32 = 3;

/// Something that happens to a lock. A slot is an attempt; a slot that is gone and joins again is a new attempt.
#[derive(Debug, Clone)]
enum Step {
    Join {
        slot: u8,
        asked: Asked,
    },
    JoinAgain(u8),
    Renew {
        slot: u8,
        more_tokens: bool,
    },
    Leave(u8),
    Downgrade(u8),
    SetLimit(u32),
    RevokeAll,
    RevokeOne(u8),
    /// All holders, or the one in this slot.
    Request(Option<u8>),
    SessionGone(u8),
    Pass(Ms),
    WallJump(i64),
}

fn a_want() -> impl Strategy<Value = Want> {
    prop_oneof![
        2 => Just(Want::Exclusive),
        3 => Just(Want::Shared),
        // Mostly one limit; now and then another, to be refused.
        4 => (1u32..=4).prop_map(|n| Want::Permits { n, of: 4 }),
        1 => (1u32..=3).prop_map(|n| Want::Permits { n, of: 3 }),
    ]
}

fn an_ask() -> impl Strategy<Value = Asked> {
    let otherwise = prop_oneof![
        4 => Just(model::Otherwise::Queue),
        2 => Just(model::Otherwise::Barge),
        1 => Just(model::Otherwise::GoAway),
    ];
    (a_want(), any::<bool>(), 1u64..40, 1u64..40, otherwise)
        .prop_map(|(want, fixed, lease, place, otherwise)| Asked { want, fixed, lease, place, otherwise })
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..SLOTS, an_ask()).prop_map(|(slot, asked)| Step::Join { slot, asked }),
        2 => (0..SLOTS).prop_map(Step::JoinAgain),
        4 => (0..SLOTS, any::<bool>()).prop_map(|(slot, more_tokens)| Step::Renew { slot, more_tokens }),
        6 => (0..SLOTS).prop_map(Step::Leave),
        2 => (0..SLOTS).prop_map(Step::Downgrade),
        1 => (0u32..6).prop_map(Step::SetLimit),
        1 => Just(Step::RevokeAll),
        1 => (0..SLOTS).prop_map(Step::RevokeOne),
        3 => prop::option::of(0..SLOTS).prop_map(Step::Request),
        1 => (0..SESSIONS).prop_map(Step::SessionGone),
        6 => (0u64..15).prop_map(Step::Pass),
        1 => (-50_000i64..50_000).prop_map(Step::WallJump),
    ]
}

/// The queue, the model, and what the outside world was told.
struct World {
    queue: Queue,
    model: Model,
    policy: Policy,
    now: Ms,
    wall: u64,
    /// The current attempt of each slot, and what it asked for.
    attempts: BTreeMap<u8, (u128, Asked)>,
    next_id: u128,
    /// The last token of the highest block handed out so far.
    highest: u64,
    /// Whom the store told, by answer or note, that it holds; each may be told of one grant once.
    granted: BTreeSet<u128>,
    /// When the last request about an entry that got an answer was sent: what a client counts a pushed term from.
    asked_at: BTreeMap<u128, Ms>,
    /// What a watcher believes: who waits (false) and who holds (true).
    watched: BTreeMap<u128, bool>,
    /// Those that barge, were told to try, and have not tried since.
    called: BTreeSet<u128>,
}

type Checked<T = ()> = Result<T, TestCaseError>;

impl World {
    fn new(dies: Dies) -> Self {
        let death = if dies == Dies::ByLease { Death::LeaseEnd } else { Death::AtOnce };
        World {
            queue: Queue::default(),
            model: Model::new(dies),
            policy: Policy { death, block: BLOCK },
            now: 0,
            wall: 1_000_000,
            attempts: BTreeMap::new(),
            next_id: 0,
            highest: 0,
            granted: BTreeSet::new(),
            asked_at: BTreeMap::new(),
            watched: BTreeMap::new(),
            called: BTreeSet::new(),
        }
    }

    fn now(&self) -> Now {
        Now { tick: tick(self.now), wall: self.wall }
    }

    fn step(&mut self, step: &Step) -> Checked {
        let mut out = Effects::new(true);
        let mut told = Vec::new();
        self.model.pass(self.now, &mut told);
        let held_before: BTreeSet<u128> = self.model.line.iter().filter(|p| p.holds).map(|p| p.id).collect();
        self.apply(step, &mut out, &mut told)?;
        self.hear(&out, &told)?;
        self.watch(&out)?;
        self.check_against_the_model()?;
        self.check_invariants(&held_before)?;
        self.check_the_watcher()
    }

    fn apply(&mut self, step: &Step, out: &mut Effects, told: &mut Vec<Told>) -> Checked {
        match *step {
            Step::Pass(ms) => {
                // A store looks again when the next entry ends, or at the next event, whatever comes first.
                self.now += ms;
                self.wall += ms * 1000;
                self.queue.expire(self.policy, self.now(), out);
                self.model.pass(self.now, told);
            }
            Step::WallJump(by) => self.wall = self.wall.saturating_add_signed(by),
            Step::Join { slot, asked } => {
                let known = self.attempts.get(&slot).is_some_and(|(id, _)| self.model.knows(*id));
                if !known {
                    self.next_id += 1;
                    self.attempts.insert(slot, (self.next_id, asked));
                }
                self.join(slot, out)?;
            }
            Step::JoinAgain(slot) => {
                if self.attempts.get(&slot).is_some_and(|(id, _)| self.model.knows(*id)) {
                    self.join(slot, out)?;
                }
            }
            Step::Renew { slot, more_tokens } => self.renew(slot, more_tokens, out)?,
            Step::Leave(slot) => {
                let Some(&(id, _)) = self.attempts.get(&slot) else { return Ok(()) };
                let tokens = self.entry(id).and_then(|e| e.grant).map(|g| g.tokens);
                let used = tokens.map(|t| Token(t.first.0 + u64::from(slot) % u64::from(t.len)));
                let gives_back = tokens.is_some_and(|t| t.last().0 == self.highest);
                let left = self.queue.leave(EntryId(id), used, self.policy, self.now(), out);
                prop_assert_eq!(left == Left::Done, self.model.leave(id, self.now, told));
                if let (true, Left::Done, Some(used)) = (gives_back, left, used) {
                    // What was not used may be given out again; what was used may not.
                    self.highest = used.0;
                }
            }
            Step::Downgrade(slot) => {
                let Some(&(id, _)) = self.attempts.get(&slot) else { return Ok(()) };
                let left = self.queue.downgrade(EntryId(id), self.policy, self.now(), out);
                prop_assert_eq!(left == Left::Done, self.model.downgrade(id, self.now, told));
            }
            Step::SetLimit(limit) => {
                let set = self.queue.set_limit(limit, self.policy, self.now(), out);
                prop_assert_eq!(set.is_ok(), self.model.set_limit(limit, self.now, told));
            }
            Step::RevokeAll => {
                let views = self.queue.revoke(None, self.policy, self.now(), out);
                let holders: Vec<u128> = self.model.line.iter().filter(|p| p.holds).map(|p| p.id).collect();
                prop_assert_eq!(views.iter().map(|v| v.id.0).collect::<Vec<_>>(), holders);
                self.model.revoke(None, self.now, told);
            }
            Step::RevokeOne(slot) => self.revoke_one(slot, out, told)?,
            Step::Request(slot) => self.request(slot, out, told)?,
            Step::SessionGone(session) => {
                let session = u128::from(session);
                self.queue.session_gone(SessionId(session), self.policy, self.now(), out);
                self.model.session_gone(session, self.now, told);
                let left =
                    self.queue.entries.iter().chain(&self.queue.bargers).any(|e| e.session.0 == session);
                prop_assert!(!left, "a lost session left something behind");
            }
        }
        Ok(())
    }

    fn join(&mut self, slot: u8, out: &mut Effects) -> Checked {
        let (id, asked) = self.attempts[&slot];
        let session = u128::from(slot % SESSIONS);
        let before = self.model.line.iter().find(|p| p.id == id).map(|p| p.holds);
        let answer = self.model.join(id, session, asked, self.now);
        let ask = ask(id, asked);
        let joined =
            self.queue.join(SessionId(session), &Label::new("test"), &ask, self.policy, self.now(), out);
        match (joined, answer) {
            (Ok(Joined::Held(grant)), Answer::Held) => {
                self.check_answered_grant(id, grant, before == Some(true))?;
            }
            (Ok(Joined::Waiting(waiting)), Answer::Waiting) => self.check_place(id, waiting.place)?,
            (Ok(Joined::Busy), Answer::Busy) => {
                prop_assert_eq!(asked.otherwise, model::Otherwise::GoAway);
            }
            (Err(e), Answer::WrongLimit) => prop_assert_eq!(e.kind(), Kind::Mismatch),
            (joined, answer) => prop_assert!(false, "the queue says {:?}, the model {:?}", joined, answer),
        }
        self.asked_at.insert(id, self.now);
        self.called.remove(&id);
        Ok(())
    }

    fn renew(&mut self, slot: u8, more_tokens: bool, out: &mut Effects) -> Checked {
        let Some(&(id, _)) = self.attempts.get(&slot) else { return Ok(()) };
        let before = self.entry(id).and_then(|e| e.grant);
        let renewal =
            Renewal { name: name(), id: EntryId(id), token: before.map(|g| g.tokens.first), more_tokens };
        let answer = self.model.renew(id, self.now);
        match (self.queue.renew(&renewal, self.policy, self.now(), out), answer) {
            (Renewed::Held(grant), Some(Answer::Held)) => {
                let same_block = before.is_some() && !more_tokens;
                self.check_answered_grant(id, grant, same_block)?;
                prop_assert!(grant.started, "a renewed lease runs");
            }
            (Renewed::Waiting(waiting), Some(Answer::Waiting)) => self.check_place(id, waiting.place)?,
            (Renewed::Gone(_), None) => {}
            (renewed, answer) => prop_assert!(false, "the queue says {:?}, the model {:?}", renewed, answer),
        }
        self.asked_at.insert(id, self.now);
        self.called.remove(&id);
        Ok(())
    }

    fn revoke_one(&mut self, slot: u8, out: &mut Effects, told: &mut Vec<Told>) -> Checked {
        let Some(&(id, _)) = self.attempts.get(&slot) else { return Ok(()) };
        // Any token of the block names the holder; a number that is no token of a holder takes nothing away.
        let Some(tokens) = self.entry(id).and_then(|e| e.grant).map(|g| g.tokens) else {
            let views = self.queue.revoke(Some(Token(1)), self.policy, self.now(), out);
            prop_assert!(views.is_empty());
            return Ok(());
        };
        let views = self.queue.revoke(Some(tokens.last()), self.policy, self.now(), out);
        prop_assert_eq!(views.iter().map(|v| v.id.0).collect::<Vec<_>>(), vec![id]);
        self.model.revoke(Some(id), self.now, told);
        Ok(())
    }

    fn request(&mut self, slot: Option<u8>, out: &mut Effects, told: &mut Vec<Told>) -> Checked {
        let attempt = slot.map(|slot| self.attempts.get(&slot).map_or(0, |(id, _)| *id));
        let token = |id| self.entry(id).and_then(|e| e.grant).map_or(Token(1), |g| g.tokens.last());
        let views = self.queue.request_release(attempt.map(token), self.policy, self.now(), out);
        prop_assert!(views.iter().all(|v| v.release_requested));
        let news = self.model.request(attempt, told);
        let asked: Vec<u128> = views.iter().map(|v| v.id.0).collect();
        prop_assert_eq!(&asked, &self.model.meant(attempt), "who was asked");
        let seen = out.events.iter().flatten().filter(|(what, _)| *what == Happened::ReleaseRequested);
        prop_assert_eq!(
            seen.map(|(_, e)| e.id.0).collect::<Vec<_>>(),
            news,
            "watchers see the first request"
        );
        Ok(())
    }

    /// The notes are exactly those that the model wants: each granted and each removed entry is told once, and nobody else.
    fn hear(&mut self, out: &Effects, told: &[Told]) -> Checked {
        let mut heard = Vec::new();
        let mut retries = 0;
        for (session, id, news) in &out.notes {
            match news {
                News::Granted(grant) => {
                    heard.push(Told::Granted(id.0));
                    self.check_pushed_grant(id.0, *grant)?;
                }
                News::Gone(_) => {
                    heard.push(Told::Gone(id.0));
                    self.granted.remove(&id.0);
                }
                News::ReleaseRequested => heard.push(Told::Requested(id.0)),
                News::Retry => {
                    retries += 1;
                    let barger = self.queue.bargers.iter().find(|b| b.id == *id);
                    prop_assert!(
                        barger.is_some_and(|b| b.session == *session),
                        "only one that barges is told to try"
                    );
                    self.called.insert(id.0);
                }
            }
        }
        let mut expected = told.to_vec();
        heard.sort();
        expected.sort();
        prop_assert_eq!(heard, expected, "who was told, against who had to be told");
        let room: Vec<u128> =
            self.model.bargers.iter().filter(|p| self.model.has_room_for(p.want)).map(|p| p.id).collect();
        self.called.retain(|id| self.model.bargers.iter().any(|p| p.id == *id));
        let somebody_comes = room.iter().any(|id| self.called.contains(id));
        prop_assert!(
            room.is_empty() || somebody_comes,
            "{:?} could hold, and none of them was told to try",
            room
        );
        prop_assert!(retries <= 1, "a herd: {} were told to try", retries);
        Ok(())
    }

    fn check_answered_grant(&mut self, id: u128, grant: Grant, again: bool) -> Checked {
        if again {
            let known = self.entry(id).and_then(|e| e.grant).map(|g| g.tokens);
            prop_assert_eq!(Some(grant.tokens), known, "asking again gives the same tokens");
        } else {
            self.check_new_block(grant.tokens)?;
            self.granted.insert(id);
        }
        let ends = self.entry(id).unwrap().ends;
        let expected = match (self.policy.death, ends) {
            (_, None) => Term::Open,
            (Death::AtOnce, Some(end)) => Term::Until(end),
            (Death::LeaseEnd, Some(end)) => Term::For(end.since(tick(self.now))),
        };
        prop_assert_eq!(grant.term, expected);
        let requested = self.model.line.iter().any(|p| p.id == id && p.requested);
        prop_assert_eq!(grant.release_requested, requested, "every answer says whether it was asked for");
        Ok(())
    }

    fn check_pushed_grant(&mut self, id: u128, grant: Grant) -> Checked {
        prop_assert!(self.granted.insert(id), "{} was told twice that it holds", id);
        self.check_new_block(grant.tokens)?;
        prop_assert!(!grant.release_requested, "a request never passes to the next holder");
        // What the client believes must end no later than what the store keeps, though the client counts from
        // the moment when it sent its last answered request.
        if let (Term::For(term), Some(entry)) = (grant.term, self.entry(id)) {
            let believed = tick(self.asked_at[&id]) + term;
            prop_assert!(
                entry.ends.is_some_and(|end| believed <= end),
                "{} would hold longer than the store lets it",
                id
            );
        }
        Ok(())
    }

    fn check_new_block(&mut self, tokens: TokenBlock) -> Checked {
        prop_assert_eq!(tokens.len, BLOCK);
        prop_assert!(tokens.first.0 > self.highest, "{:?} is not above {}", tokens, self.highest);
        prop_assert!(tokens.first.0 >= self.wall, "tokens rise past a store that forgot everything");
        prop_assert!(tokens.last().0 < Token::END);
        self.highest = tokens.last().0;
        Ok(())
    }

    fn check_place(&self, id: u128, place: Option<u32>) -> Checked {
        let waiting = self.model.line.iter().filter(|p| !p.holds).position(|p| p.id == id);
        prop_assert_eq!(place, waiting.map(|at| at as u32));
        Ok(())
    }

    fn check_against_the_model(&self) -> Checked {
        type Line = (u128, Want, bool, bool, Option<Tick>);
        let entry = |e: &Entry| -> Line {
            (e.id.0, e.want, e.grant.is_some(), e.grant.is_some_and(|g| g.release_requested), e.ends)
        };
        let person = |p: &model::Person| -> Line { (p.id, p.want, p.holds, p.requested, p.ends.map(tick)) };
        let queue: Vec<Line> = self.queue.entries.iter().map(entry).collect();
        let line: Vec<Line> = self.model.line.iter().map(person).collect();
        prop_assert_eq!(queue, line, "the queue, against the model");
        // Those that barge have no order among them.
        let mut queue: Vec<Line> = self.queue.bargers.iter().map(entry).collect();
        let mut line: Vec<Line> = self.model.bargers.iter().map(person).collect();
        queue.sort_by_key(|e| e.0);
        line.sort_by_key(|e| e.0);
        prop_assert_eq!(queue, line, "those that barge, against the model");
        prop_assert_eq!(self.queue.limit, self.model.limit);
        Ok(())
    }

    fn check_invariants(&self, held_before: &BTreeSet<u128>) -> Checked {
        let Queue { entries, bargers, .. } = &self.queue;
        let held = self.queue.held();
        prop_assert!(entries[held..].iter().all(|e| e.grant.is_none()), "the holders are a prefix");
        let holding: Vec<Want> = entries[..held].iter().map(|e| e.want).collect();
        let newcomers = entries[..held].iter().any(|e| !held_before.contains(&e.id.0));
        if newcomers {
            // Only a limit that was lowered may leave more than fits, and then nobody new gets in.
            prop_assert!(
                model::compatible(&holding, self.queue.limit),
                "the holders can't hold together: {:?}",
                holding
            );
        } else {
            let all_permits = holding.iter().all(|w| matches!(w, Want::Permits { .. }));
            prop_assert!(all_permits || model::compatible(&holding, None));
        }
        if let Some(first_waiter) = entries.get(held) {
            let with = [&holding[..], &[first_waiter.want]].concat();
            prop_assert!(!model::compatible(&with, self.queue.limit), "somebody waits who could hold");
        }
        let over = |e: &Entry| e.ends.is_some_and(|end| end <= tick(self.now));
        prop_assert!(!entries.iter().chain(bargers).any(over), "what has ended is still there");
        prop_assert!(bargers.iter().all(|b| b.grant.is_none()));
        prop_assert_eq!(self.queue.next_end(), entries.iter().chain(bargers).filter_map(|e| e.ends).min());
        let permits = entries.iter().chain(bargers).any(|e| matches!(e.want, Want::Permits { .. }));
        prop_assert_eq!(
            self.queue.limit.is_some(),
            permits,
            "a limit lasts as long as somebody holds or wants permits"
        );
        let told = entries[..held].iter().all(|e| self.granted.contains(&e.id.0));
        prop_assert!(told, "a holder was never told that it holds");
        self.check_snapshot(held)
    }

    fn check_snapshot(&self, held: usize) -> Checked {
        let seen = self.queue.snapshot(&name(), self.now());
        prop_assert_eq!(seen.holders.len(), held);
        prop_assert!(seen.holders.iter().all(|v| v.token.is_some() && v.place.is_none()));
        let places: Vec<u32> = seen.waiters.iter().filter_map(|v| v.place).collect();
        let queued = (self.queue.entries.len() - held) as u32;
        prop_assert_eq!(places, (0..queued).collect::<Vec<_>>());
        prop_assert_eq!(seen.waiters.iter().filter(|v| v.barges).count(), self.queue.bargers.len());
        Ok(())
    }

    /// A watcher that saw every event knows who holds and who waits.
    fn check_the_watcher(&self) -> Checked {
        let truth: BTreeMap<u128, bool> = self
            .queue
            .entries
            .iter()
            .chain(&self.queue.bargers)
            .map(|e| (e.id.0, e.grant.is_some()))
            .collect();
        prop_assert_eq!(&self.watched, &truth, "what a watcher knows, against the queue");
        Ok(())
    }

    fn watch(&mut self, out: &Effects) -> Checked {
        for (what, entry) in out.events.iter().flatten() {
            let id = entry.id.0;
            match what {
                Happened::Queued => prop_assert_eq!(self.watched.insert(id, false), None),
                Happened::Acquired => prop_assert_ne!(self.watched.insert(id, true), Some(true)),
                Happened::Released => prop_assert_eq!(self.watched.remove(&id), Some(true)),
                Happened::Left => prop_assert_eq!(self.watched.remove(&id), Some(false)),
                Happened::ReleaseRequested => prop_assert_eq!(self.watched.get(&id), Some(&true)),
                _ => prop_assert!(self.watched.remove(&id).is_some()),
            }
        }
        Ok(())
    }

    fn entry(&self, id: u128) -> Option<&Entry> {
        self.queue.entries.iter().find(|e| e.id.0 == id)
    }
}

fn tick(ms: Ms) -> Tick {
    Tick((ms + 1_000) * 1_000_000)
}

fn name() -> Name {
    Name::new("x").unwrap()
}

fn ask(id: u128, asked: Asked) -> Ask {
    let lease = Duration::from_millis(asked.lease);
    Ask {
        name: name(),
        id: EntryId(id),
        want: asked.want,
        lease: if asked.fixed { Lease::Fixed(lease) } else { Lease::Kept(lease) },
        place: Duration::from_millis(asked.place),
        otherwise: match asked.otherwise {
            model::Otherwise::Queue => Otherwise::Queue,
            model::Otherwise::Barge => Otherwise::Barge,
            model::Otherwise::GoAway => Otherwise::GoAway,
        },
    }
}

fn run(dies: Dies, steps: &[Step]) -> Checked {
    let mut world = World::new(dies);
    for step in steps {
        world.step(step)?;
    }
    // In the end everybody leaves, and nothing is left but the highest token.
    for session in 0..SESSIONS {
        world.step(&Step::SessionGone(session))?;
    }
    prop_assert!(world.queue.is_idle() && world.queue.limit.is_none());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_whose_leases_end_by_time_does_what_the_model_does(steps in prop::collection::vec(a_step(), 0..80)) {
        run(Dies::ByLease, &steps)?;
    }

    #[test]
    fn a_queue_that_notices_death_at_once_does_what_the_model_does(steps in prop::collection::vec(a_step(), 0..80)) {
        run(Dies::AtOnce, &steps)?;
    }
}

fn asked(want: Want, otherwise: model::Otherwise) -> Asked {
    Asked { want, fixed: false, lease: 30, place: 10, otherwise }
}

#[test]
fn a_waiter_that_repeats_its_join_does_not_believe_in_more_time_than_the_store_gives() {
    // The answer to the first join was lost; the second is the one that the client counts from.
    let queue = |want| asked(want, model::Otherwise::Queue);
    run(
        Dies::ByLease,
        &[
            Step::Join { slot: 0, asked: queue(Want::Exclusive) },
            Step::Join { slot: 1, asked: queue(Want::Exclusive) },
            Step::Pass(5),
            Step::JoinAgain(1),
            Step::Leave(0),
        ],
    )
    .unwrap();
}

#[test]
fn one_that_barges_can_repeat_its_join_after_the_limit_changed() {
    let permits = |otherwise| asked(Want::Permits { n: 3, of: 4 }, otherwise);
    run(
        Dies::AtOnce,
        &[
            Step::Join { slot: 0, asked: permits(model::Otherwise::Queue) },
            Step::Join { slot: 1, asked: permits(model::Otherwise::Barge) },
            Step::SetLimit(5),
            Step::JoinAgain(1),
        ],
    )
    .unwrap();
}

#[test]
fn a_limit_that_was_lowered_takes_no_permit_away_and_lets_nobody_in() {
    let permits = |n| asked(Want::Permits { n, of: 4 }, model::Otherwise::Queue);
    run(
        Dies::AtOnce,
        &[
            Step::Join { slot: 0, asked: permits(2) },
            Step::Join { slot: 1, asked: permits(2) },
            Step::Join { slot: 2, asked: permits(1) },
            Step::SetLimit(2),
            Step::Leave(0),
            Step::Leave(1),
        ],
    )
    .unwrap();
}
