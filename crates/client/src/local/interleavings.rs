//! The local queue and the hand-over of guards under the `shuttle` checker, which runs them in thousands of different
//! interleavings: `RUSTFLAGS="--cfg shuttle" cargo test -p leasehold-client --lib` (part of `cargo xtask test`).
//!
//! Two clients, each with its table of lanes, meet at a store that is the rule behind a mutex. A small engine does what
//! the real one does, without tasks and timers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::queue::{Effects, Now, Policy, Queue};
use leasehold_core::store::{Joined, Left, News, Renewal};
use leasehold_core::traits::Death;
use leasehold_core::{Clock, EntryId, Label, Lease, Name, SessionId, Tick, Token, Want};
use shuttle::thread::JoinHandle;

use super::lane::{Enter, Released};
use super::leaving::Going;
use super::reentrancy::HoldCount;
use super::table::Table;
use super::waiter::{Handed, Outcome, Waiter};
use super::{Action, LaneKey, LaneKind, Rules, Terms};
use crate::budget::Budget;
use crate::sync::{Arc, Mutex, lock};

const POLICY: Policy = Policy { death: Death::AtOnce, block: 4 };

/// One name, two clients, and a witness that sees every entry and exit.
struct World {
    queue: Mutex<Queue>,
    tables: Vec<Table>,
    witness: Mutex<Witness>,
    wall: AtomicU64,
    /// Answers on their way.
    answers: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Witness {
    writers: u32,
    readers: u32,
    highest: u64,
}

/// How a downgrade goes on.
#[derive(Clone, Copy)]
enum Downgrade {
    Answered,
    /// The one who asked does not wait: request and answer come later, or never meet the entry.
    Dropped,
    /// It has its effect, and the answer never comes.
    AnswerLost,
    /// It certainly has no effect.
    Refused,
}

impl Witness {
    /// The only one inside changes what it counts on.
    fn becomes(&mut self, want: Want) {
        let (from, to) = match want {
            Want::Shared => (&mut self.writers, &mut self.readers),
            _ => (&mut self.readers, &mut self.writers),
        };
        *from -= 1;
        *to += 1;
        assert!(self.writers == 0 || (self.writers, self.readers) == (1, 0), "two at once");
    }

    fn enters(&mut self, want: Want, token: Token) {
        match want {
            Want::Shared => self.readers += 1,
            _ => self.writers += 1,
        }
        assert!(self.writers <= 1 && (self.writers == 0 || self.readers == 0), "two at once");
        if want == Want::Exclusive {
            assert!(token.0 > self.highest, "the token {token} came after {}", self.highest);
        }
        self.highest = self.highest.max(token.0);
    }

    fn leaves(&mut self, want: Want) {
        match want {
            Want::Shared => self.readers -= 1,
            _ => self.writers -= 1,
        }
    }
}

fn name() -> Name {
    Name::new("n").unwrap()
}

fn key() -> LaneKey {
    LaneKey { name: name(), kind: LaneKind::Queue }
}

fn terms() -> Terms {
    Terms { lease: Lease::Kept(Duration::from_secs(30)), barges: false, retry_for: None }
}

impl World {
    fn new(handovers: u32) -> Arc<Self> {
        let rules = Rules {
            lease: Duration::from_secs(30),
            budget: Budget { handovers, time: Duration::from_secs(1) },
            retry_for: Duration::from_secs(1),
            try_for: Duration::from_secs(1),
            death: Death::AtOnce,
        };
        let table = |id: u128| Table::new(rules.clone(), Clock::manual(), SessionId(id << 64));
        Arc::new(World {
            queue: Mutex::new(Queue::default()),
            tables: vec![table(1), table(2)],
            witness: Mutex::default(),
            wall: AtomicU64::new(1),
            answers: Mutex::default(),
        })
    }

    fn session(client: usize) -> SessionId {
        SessionId((client as u128 + 1) << 64)
    }

    /// One event at the store; those it concerns are told afterwards.
    fn at_store<T>(&self, event: impl FnOnce(&mut Queue, Now, &mut Effects) -> T) -> T {
        let mut out = Effects::default();
        let answer = {
            let mut queue = lock(&self.queue);
            let now = Now { tick: Tick(1), wall: self.wall.fetch_add(1, Ordering::SeqCst) };
            event(&mut queue, now, &mut out)
        };
        for (session, id, news) in out.notes {
            let client = (session.0 >> 64) as usize - 1;
            let Some(key) = self.tables[client].lane_of(&name(), id) else {
                if matches!(news, News::Granted(_)) {
                    self.carry_out(client, vec![Action::Disown(name(), id)]);
                }
                continue;
            };
            let actions = match news {
                News::Granted(grant) => self.tables[client].granted(&key, id, grant, None).actions,
                News::Gone(why) => self.tables[client].gone(&key, id, why).actions,
                News::ReleaseRequested => self.tables[client].release_requested(&key, id).actions,
                News::Retry => continue,
            };
            self.carry_out(client, actions);
        }
        answer
    }

    fn carry_out(&self, client: usize, actions: Vec<Action>) {
        let (me, label) = (Self::session(client), Label::new("c"));
        for action in actions {
            let visit = match action {
                Action::Join(key, ask) => {
                    let answer = self.at_store(|q, now, out| q.join(me, &label, &ask, POLICY, now, out));
                    let visit = self.tables[client].joined(&key, ask.id, answer, Tick(1));
                    self.carry_out(client, visit.actions);
                    continue;
                }
                // No request is lent to a task here: an answer that comes late is a thread of its own.
                Action::GoOn(..) | Action::GoOnLeaving(_) => continue,
                Action::Disown(_, id) => {
                    if self.tables[client].disown(&name(), id) {
                        self.leave(client, id, None);
                    }
                    continue;
                }
                Action::Bury(_, id, _) => {
                    self.leave(client, id, None);
                    continue;
                }
                Action::Leave(Going { leave, .. }) => {
                    self.leave(client, leave.id, leave.used);
                    continue;
                }
                Action::Renew(due) => {
                    let ask =
                        Renewal { name: name(), id: due.id, token: due.token, more_tokens: due.more_tokens };
                    let answer = self.at_store(|q, now, out| q.renew(&ask, POLICY, now, out));
                    self.tables[client].renewed(&due.key, due.id, Ok(answer), Tick(1))
                }
            };
            self.carry_out(client, visit.actions);
        }
    }

    /// The engine's `leave`.
    fn leave(&self, client: usize, id: EntryId, used: Option<Token>) -> Left {
        let left = self.at_store(|q, now, out| q.leave(id, used, POLICY, now, out));
        if self.tables[client].left(&name(), id) {
            self.at_store(|q, now, out| q.leave(id, None, POLICY, now, out));
        }
        left
    }

    /// The engine's `enter`, with a store whose answer is on its way for a while, and may come after the grant that followed it,
    /// or after the release that followed that.
    fn enter(
        self: &Arc<Self>,
        client: usize,
        want: Want,
        tries: bool,
    ) -> Result<Option<Handed>, Arc<Waiter>> {
        let table = &self.tables[client];
        let visit = table.enter(&key(), want, terms(), tries, Tick(1));
        self.carry_out(client, visit.actions);
        let ask = match visit.answer {
            Enter::Now(handed) => return Ok(Some(handed)),
            Enter::Busy => return Ok(None),
            Enter::Wait(waiter) => return Err(waiter),
            Enter::First(request) => request.on(name()),
        };
        let (me, label) = (Self::session(client), Label::new("c"));
        let answer = self.at_store(|q, now, out| q.join(me, &label, &ask, POLICY, now, out));
        if let Ok(Joined::Held(grant)) = &answer
            && let Some(visit) = table.held_at_once(&key(), ask.id, *grant, Tick(1))
        {
            self.carry_out(client, visit.actions);
            if let Some(handed) = visit.answer {
                return Ok(Some(handed));
            }
        }
        let visit = table.first_waits(&key(), ask.id, want, terms(), tries);
        self.carry_out(client, visit.actions);
        let (world, id) = (self.clone(), ask.id);
        let answer = shuttle::thread::spawn(move || {
            let visit = world.tables[client].joined(&key(), id, answer, Tick(1));
            world.carry_out(client, visit.actions);
        });
        lock(&self.answers).push(answer);
        Err(visit.answer)
    }

    fn wait(waiter: &Waiter) -> Outcome {
        shuttle::future::block_on(std::future::poll_fn(|cx| waiter.poll(cx)))
    }

    fn release(&self, client: usize, handed: &Handed) {
        let visit = self.tables[client].release(&key(), &handed.hold, Tick(1));
        assert_ne!(visit.answer, Released::NotHeld, "a hold was taken away");
        if let Released::Leave { id, used, .. } = visit.answer {
            let left = self.leave(client, id, Some(used));
            assert_eq!(left, Left::Done, "somebody else took out what was held");
        }
        self.carry_out(client, visit.actions);
    }

    /// Locks, looks around, unlocks.
    fn visit(self: &Arc<Self>, client: usize, want: Want, tries: bool) {
        let handed = match self.enter(client, want, tries) {
            Ok(Some(handed)) => handed,
            Ok(None) => return,
            Err(waiter) => match Self::wait(&waiter) {
                Outcome::Handed(handed) => handed,
                Outcome::Busy => return,
                Outcome::Failed(error) => panic!("{error}"),
            },
        };
        lock(&self.witness).enters(want, handed.token);
        shuttle::thread::yield_now();
        lock(&self.witness).leaves(want);
        self.release(client, &handed);
    }

    /// Begins to wait, and changes its mind: what it was handed meanwhile goes on to the next.
    fn cancelled_visit(self: &Arc<Self>, client: usize, want: Want) {
        let waiter = match self.enter(client, want, false) {
            Ok(Some(handed)) => return self.release(client, &handed),
            Ok(None) => return,
            Err(waiter) => waiter,
        };
        let polled = shuttle::future::block_on(std::future::poll_fn(|cx| Poll::Ready(waiter.poll(cx))));
        if let Poll::Ready(Outcome::Handed(handed)) = polled {
            return self.release(client, &handed);
        }
        let visit = self.tables[client].cancel(&key(), &waiter);
        self.carry_out(client, visit.actions);
        if let Some(handed) = visit.answer {
            self.release(client, &handed);
        }
    }

    /// Waits until it holds.
    fn lock(self: &Arc<Self>, client: usize, want: Want) -> Handed {
        match self.enter(client, want, false) {
            Ok(Some(handed)) => handed,
            Ok(None) => panic!("busy, and it waits"),
            Err(waiter) => match Self::wait(&waiter) {
                Outcome::Handed(handed) => handed,
                other => panic!("{other:?}"),
            },
        }
    }

    /// A writer becomes a reader, in each way in which that can go on.
    fn downgrading_visit(self: &Arc<Self>, client: usize, how: Downgrade) {
        let handed = self.lock(client, Want::Exclusive);
        let id = handed.hold.id;
        lock(&self.witness).enters(Want::Exclusive, handed.token);
        shuttle::thread::yield_now();
        assert!(self.begin_downgrade(client, &handed), "it was held");
        // From here on it counts on no more than reading.
        lock(&self.witness).becomes(Want::Shared);
        let mut reads = Want::Shared;
        match how {
            Downgrade::Answered => self.downgrade(client, id),
            Downgrade::Dropped => self.later(move |world| world.downgrade(client, id)),
            Downgrade::AnswerLost => {
                self.at_store(|q, now, out| q.downgrade(id, POLICY, now, out));
            }
            Downgrade::Refused => {
                let visit = self.tables[client].not_downgraded(&key(), id);
                self.carry_out(client, visit.actions);
                lock(&self.witness).becomes(Want::Exclusive);
                reads = Want::Exclusive;
            }
        }
        shuttle::thread::yield_now();
        lock(&self.witness).leaves(reads);
        self.release(client, &handed);
    }

    fn begin_downgrade(&self, client: usize, handed: &Handed) -> bool {
        let visit = self.tables[client].downgrade_begins(&key(), &handed.hold);
        self.carry_out(client, visit.actions);
        visit.answer
    }

    /// The request and its answer, some time after the one who asked for it may have gone.
    fn downgrade(&self, client: usize, id: EntryId) {
        let left = self.at_store(|q, now, out| q.downgrade(id, POLICY, now, out));
        if left == Left::Done {
            let visit = self.tables[client].downgraded(&key(), id);
            self.carry_out(client, visit.actions);
        }
    }

    /// Something that happens by itself.
    fn later(self: &Arc<Self>, what: impl FnOnce(&Arc<World>) + Send + 'static) {
        let world = self.clone();
        lock(&self.answers).push(shuttle::thread::spawn(move || what(&world)));
    }

    /// A reader tries to read once more while it reads.
    fn nested_try(self: &Arc<Self>, client: usize) {
        let outer = self.lock(client, Want::Shared);
        lock(&self.witness).enters(Want::Shared, outer.token);
        let inner = match self.enter(client, Want::Shared, true) {
            Ok(inner) => inner,
            Err(waiter) => match Self::wait(&waiter) {
                Outcome::Handed(inner) => Some(inner),
                Outcome::Busy => None,
                Outcome::Failed(error) => panic!("{error}"),
            },
        };
        if let Some(inner) = inner {
            self.release(client, &inner);
        }
        lock(&self.witness).leaves(Want::Shared);
        self.release(client, &outer);
    }

    /// What the store holds an entry as.
    fn held_as(&self, id: EntryId) -> Option<Want> {
        let shown = lock(&self.queue).snapshot(&name(), Now { tick: Tick(1), wall: 1 });
        shown.holders.iter().find(|holder| holder.id == id).map(|holder| holder.want)
    }

    /// Somebody takes the lock away.
    fn revoke(&self) {
        self.at_store(|q, now, out| q.revoke(None, POLICY, now, out));
    }

    /// Somebody asks the holders for the lock.
    fn request(&self) {
        self.at_store(|q, now, out| q.request_release(None, POLICY, now, out));
        shuttle::thread::yield_now();
    }

    fn must_be_empty(&self) {
        let answers = std::mem::take(&mut *lock(&self.answers));
        answers.into_iter().for_each(|answer| answer.join().unwrap());
        assert!(lock(&self.queue).is_idle(), "an entry stayed at the store");
        assert_eq!(self.tables.iter().map(Table::busy).sum::<usize>(), 0, "a lane stayed in a client");
    }
}

fn explore(handovers: u32, visits: fn(&Arc<World>, usize)) {
    let scenario = move || {
        let world = World::new(handovers);
        let threads: Vec<_> = (0..4)
            .map(|at| {
                let world = world.clone();
                shuttle::thread::spawn(move || visits(&world, at))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        world.must_be_empty();
    };
    shuttle::check_random(scenario, 2_000);
    shuttle::check_pct(scenario, 1_000, 3);
}

#[test]
fn writers_of_two_clients_never_meet_and_all_get_in() {
    explore(2, |world, at| (0..3).for_each(|_| world.visit(at % 2, Want::Exclusive, false)));
}

#[test]
fn readers_and_writers_never_meet_and_all_get_in() {
    explore(2, |world, at| {
        for round in 0..3 {
            let want = if (at + round) % 3 == 0 { Want::Exclusive } else { Want::Shared };
            world.visit(at % 2, want, false);
        }
    });
}

#[test]
fn a_cancelled_waiter_leaves_nothing_behind() {
    explore(1, |world, at| {
        for round in 0..3 {
            let want = if (at + round) % 2 == 0 { Want::Exclusive } else { Want::Shared };
            if at == 0 || round == 1 {
                world.cancelled_visit(at % 2, want);
            } else {
                world.visit(at % 2, want, false);
            }
        }
    });
}

#[test]
fn a_request_at_any_moment_leaves_nobody_waiting() {
    explore(2, |world, at| {
        for round in 0..3 {
            let want = if (at + round) % 3 == 0 { Want::Exclusive } else { Want::Shared };
            match (at, round) {
                (3, _) => world.request(),
                (0, 1) => world.cancelled_visit(0, want),
                _ => world.visit(at % 2, want, false),
            }
        }
    });
}

#[test]
fn a_try_never_waits_for_a_holder() {
    explore(2, |world, at| {
        for round in 0..3 {
            world.visit(at % 2, if round == 1 { Want::Shared } else { Want::Exclusive }, at % 2 == round % 2);
        }
    });
}

#[test]
fn a_downgrade_that_goes_on_in_any_way_never_leaves_a_writer_with_a_shared_entry() {
    explore(2, |world, at| {
        let how = [Downgrade::Answered, Downgrade::Dropped, Downgrade::AnswerLost, Downgrade::Refused];
        for round in 0..3 {
            match (at, round) {
                (0, _) => world.downgrading_visit(0, how[round]),
                (1, 1) => world.downgrading_visit(1, how[3]),
                (1, _) => world.visit(1, Want::Shared, false),
                (2, _) => world.visit(0, Want::Exclusive, false),
                _ => world.visit(at % 2, if round == 1 { Want::Exclusive } else { Want::Shared }, false),
            }
        }
    });
}

/// One owner: a downgrade in one task, a re-entry as writer in another.
#[test]
fn a_downgrade_and_a_re_entry_as_writer_never_both_succeed() {
    let scenario = || {
        let world = World::new(2);
        let handed = Arc::new(world.lock(0, Want::Exclusive));
        let (id, count) = (handed.hold.id, Arc::new(HoldCount::new(true)));
        let downgrade = {
            let (world, handed, count) = (world.clone(), handed.clone(), count.clone());
            shuttle::thread::spawn(move || {
                let begins = count.downgrade();
                if begins {
                    assert!(world.begin_downgrade(0, &handed));
                    world.downgrade(0, id);
                }
                begins
            })
        };
        let again = {
            let (world, handed, count) = (world.clone(), handed.clone(), count.clone());
            shuttle::thread::spawn(move || {
                let writes = count.enter(true).is_ok();
                if writes {
                    for _ in 0..3 {
                        shuttle::thread::yield_now();
                        let as_what = (world.held_as(id), handed.hold.is_downgraded());
                        assert_eq!(as_what, (Some(Want::Exclusive), false), "a writer that only reads");
                    }
                    assert!(!count.leave());
                }
                writes
            })
        };
        let other = {
            let world = world.clone();
            shuttle::thread::spawn(move || world.visit(1, Want::Shared, false))
        };
        let (downgraded, wrote) = (downgrade.join().unwrap(), again.join().unwrap());
        assert!(downgraded || wrote, "one of them succeeds");
        assert!(count.leave(), "the last guard");
        world.release(0, &handed);
        other.join().unwrap();
        world.must_be_empty();
    };
    shuttle::check_random(scenario, 2_000);
    shuttle::check_pct(scenario, 1_000, 3);
}

/// Whenever a lock is taken away, in the moment of its grant too, a guard that says it is held is one.
#[test]
fn a_revocation_at_any_moment_is_never_missed() {
    let scenario = || {
        let world = World::new(2);
        let claims: Vec<_> = (0..3)
            .map(|at| {
                let world = world.clone();
                shuttle::thread::spawn(move || (at % 2, world.lock(at % 2, Want::Shared)))
            })
            .collect();
        let revoker = {
            let world = world.clone();
            shuttle::thread::spawn(move || (0..2).for_each(|_| world.revoke()))
        };
        revoker.join().unwrap();
        let guards: Vec<_> = claims.into_iter().map(|claim| claim.join().unwrap()).collect();
        let answers = std::mem::take(&mut *lock(&world.answers));
        answers.into_iter().for_each(|answer| answer.join().unwrap());
        for (client, guard) in guards {
            let held = world.held_as(guard.hold.id).is_some();
            assert_eq!(guard.hold.is_good(Tick(1)), held, "a guard that lies");
            let visit = world.tables[client].release(&key(), &guard.hold, Tick(1));
            if let Released::Leave { id, used, .. } = visit.answer {
                assert_eq!(world.leave(client, id, Some(used)), Left::Done);
            }
            world.carry_out(client, visit.actions);
        }
        world.must_be_empty();
    };
    shuttle::check_random(scenario, 2_000);
    shuttle::check_pct(scenario, 1_000, 3);
}

#[test]
fn a_try_by_a_reader_is_always_answered() {
    explore(1, |world, at| {
        for round in 0..3 {
            match at {
                0 => world.nested_try(round % 2),
                1 => world.nested_try(0),
                2 => world.visit(1, if round == 0 { Want::Shared } else { Want::Exclusive }, round == 1),
                _ => world.request(),
            }
        }
    });
}
