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

impl Witness {
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
    Terms { lease: Lease::Kept(Duration::from_secs(30)), barges: false }
}

impl World {
    fn new(handovers: u32) -> Arc<Self> {
        let rules = Rules {
            lease: Duration::from_secs(30),
            budget: Budget { handovers, time: Duration::from_secs(1) },
            retry_for: Duration::from_secs(1),
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
            let visit = match news {
                News::Granted(grant) => self.tables[client].granted(&key, id, grant, None),
                News::Gone(why) => self.tables[client].gone(&key, id, why),
                News::ReleaseRequested => self.tables[client].release_requested(&key, id),
                News::Retry => continue,
            };
            self.carry_out(client, visit.actions);
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
