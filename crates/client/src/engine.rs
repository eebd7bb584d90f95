//! The engine: carries out what the local queues decide, and brings them the store's answers and notes.
//!
//! A request to the store belongs to the client, never to the future that caused it: it is polled once on the spot (most
//! stores on one host are done then), and what is not done goes on in a task of its own. So a dropped `lock()` leaves
//! nothing behind, whatever the moment.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::store::{Ask, Inbox, Joined, Left, News, Note, Pending, Renewal, Session};
use leasehold_core::view::Lost;
use leasehold_core::{
    Backoff, EntryId, Error, Kind, Label, Name, Result, Retry, SessionId, Tick, Traits, Want,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tracing::Instrument;

use crate::claim::Claim;
use crate::guard::Guard;
use crate::local::hold::Hold;
use crate::local::lane::{Enter, Released};
use crate::local::table::{Table, Visit};
use crate::local::waiter::{Handed, Outcome, Waiter};
use crate::local::{Action, Due, LaneKey, LaneKind, Terms};
use crate::owners::Owners;
use crate::sync::{Mutex, lock};
use crate::telemetry;

/// How many entries one renewal request carries.
const BATCH: usize = 512;

/// The pauses between tries at a store that can't be reached.
const RETRY: Backoff = Backoff { first: Duration::from_millis(5), most: Duration::from_millis(500) };

pub(crate) struct Engine {
    pub(crate) session: Arc<dyn Session>,
    pub(crate) table: Table,
    pub(crate) owners: Owners,
    pub(crate) namespace: String,
    pub(crate) label: Label,
    pub(crate) id: SessionId,
    pub(crate) traits: &'static Traits,
    pub(crate) url: String,
    pub(crate) runtime: Handle,
    pub(crate) keeper: Arc<Notify>,
    closed: AtomicBool,
    /// Entries whose `leave` is under way, and whether they must be left once more when it is done.
    leaving: Mutex<HashMap<EntryId, bool>>,
}

/// What an [`Engine`] is made of.
pub(crate) struct Parts {
    pub(crate) session: Arc<dyn Session>,
    pub(crate) table: Table,
    pub(crate) namespace: String,
    pub(crate) label: Label,
    pub(crate) id: SessionId,
    pub(crate) traits: &'static Traits,
    pub(crate) url: String,
    pub(crate) runtime: Handle,
}

/// How long a claim waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Try,
    Within(Duration),
    Forever,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts { session, table, namespace, label, id, traits, url, runtime } = parts;
        Arc::new(Engine {
            session,
            table,
            owners: Owners::default(),
            namespace,
            label,
            id,
            traits,
            url,
            runtime,
            keeper: Arc::new(Notify::new()),
            closed: AtomicBool::new(false),
            leaving: Mutex::default(),
        })
    }

    pub(crate) fn now(&self) -> Tick {
        self.table.clock.now()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) { Err(closed()) } else { Ok(()) }
    }

    /// Gets a lock, or `None` if it can't be had within the patience.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        claim: &Claim,
        patience: Patience,
    ) -> Result<Option<Guard>> {
        let name = claim.name.as_ref().map_err(|e| e.clone().at(self.url.clone()))?;
        let want = *claim.want.as_ref().map_err(Error::clone)?;
        claim.check(want, self.traits).map_err(|e| self.explain(e, name))?;
        self.check_open()?;
        // Permits are counted, not owned: taking two one after the other is what they are for.
        let owner = if matches!(want, Want::Permits { .. }) { None } else { claim.owner_now() };
        if let Some(owner) = &owner
            && let Some(guard) = self.owners.enter(name, owner, want, claim.reentrant)?
        {
            return Ok(Some(guard));
        }
        let asked = self.now();
        let mut held = match claim.backoff() {
            None => self.wait(claim, name, want, patience, asked).await,
            Some(backoff) => self.spin(claim, name, want, backoff, patience, asked).await,
        };
        let Some(guard) = held.as_mut().map_err(|e| self.explain(e.clone(), name))? else {
            telemetry::busy(want);
            return Ok(None);
        };
        telemetry::acquired(guard, asked);
        if let Some(owner) = owner {
            self.owners.register(guard, owner);
        }
        // A task that only ever finds free locks must let others run now and then, the keeper among them. Not before the claim:
        // its place in the queue is that of its first poll.
        tokio::task::coop::consume_budget().await;
        held
    }

    async fn wait(
        self: &Arc<Self>,
        claim: &Claim,
        name: &Name,
        want: Want,
        patience: Patience,
        asked: Tick,
    ) -> Result<Option<Guard>> {
        let tries = matches!(patience, Patience::Try | Patience::Within(Duration::ZERO));
        let key = self.lane_for(claim, name, want);
        let terms = Terms { lease: claim.lease_or(self.table.rules.lease), barges: claim.barges() };
        let waiting = match self.enter(key, want, terms, tries, asked) {
            Entered::Held(key, handed) => {
                return Ok(Some(Guard::new(self.clone(), key, handed, want, asked)));
            }
            Entered::Busy => return Ok(None),
            Entered::Waiting(waiting) => waiting,
        };
        let key = waiting.key.clone();
        let waiting = waiting
            .instrument(tracing::debug_span!(target: "leasehold", "wait", %name, want = want.as_str()));
        let outcome = match patience {
            Patience::Within(d) if !tries => match tokio::time::timeout(d, waiting).await {
                Ok(outcome) => outcome,
                Err(_) => return Ok(None),
            },
            _ => waiting.await,
        };
        match outcome {
            Outcome::Handed(handed) => Ok(Some(Guard::new(self.clone(), key, handed, want, self.now()))),
            Outcome::Busy => Ok(None),
            Outcome::Failed(error) => Err(error),
        }
    }

    /// Takes it if it is free, else tries again after a growing, jittered pause.
    async fn spin(
        self: &Arc<Self>,
        claim: &Claim,
        name: &Name,
        want: Want,
        backoff: Backoff,
        patience: Patience,
        asked: Tick,
    ) -> Result<Option<Guard>> {
        let spinning = async {
            let mut tries = 0;
            loop {
                let held = self
                    .wait(claim, name, want, Patience::Try, if tries == 0 { asked } else { self.now() })
                    .await?;
                if held.is_some() || patience == Patience::Try {
                    return Ok(held);
                }
                self.check_open()?;
                let random = self.table.fresh_id().0 as u32;
                tokio::time::sleep(backoff.pause(tries, random.wrapping_mul(0x9E37_79B9) >> 16)).await;
                tries = tries.saturating_add(1);
            }
        };
        match patience {
            // Boxed, so that the futures of all other claims don't carry its size around.
            Patience::Within(time) => {
                Box::pin(tokio::time::timeout(time, spinning)).await.unwrap_or(Ok(None))
            }
            _ => Box::pin(spinning).await,
        }
    }

    /// Claims that can be handed on to each other share a lane.
    fn lane_for(&self, claim: &Claim, name: &Name, want: Want) -> LaneKey {
        let alone =
            self.table.rules.budget.is_off() || claim.lease.is_some() || matches!(want, Want::Permits { .. });
        let kind = match (alone, claim.barges()) {
            (false, false) => LaneKind::Queue,
            (false, true) => LaneKind::Barge,
            (true, _) => LaneKind::Solo(self.table.fresh_id()),
        };
        LaneKey { name: name.clone(), kind }
    }

    /// The part of a claim that needs no waiting: everything, if the store answers on the spot.
    fn enter(self: &Arc<Self>, key: LaneKey, want: Want, terms: Terms, tries: bool, asked: Tick) -> Entered {
        let visit = self.table.enter(&key, want, terms, tries, asked);
        let request = match self.settle(visit) {
            Enter::Now(handed) => return Entered::Held(key, handed),
            Enter::Busy => return Entered::Busy,
            Enter::Wait(waiter) => return Entered::Waiting(self.waiting(key, waiter)),
            Enter::First(request) => request,
        };
        let (id, LaneKey { name, kind }) = (request.id, key);
        let (name, first) = self.join(request.on(name));
        let key = LaneKey { name, kind };
        if let Asked::Answered(Ok(Joined::Held(grant))) = &first
            && let Some(visit) = self.table.held_at_once(&key, id, *grant, asked)
            && let Some(handed) = self.settle(visit)
        {
            return Entered::Held(key, handed);
        }
        let waiter = self.settle(self.table.first_waits(&key, id, want, terms, tries));
        let waiting = self.waiting(key.clone(), waiter);
        self.joined(&key, id, first, asked);
        if self.check_open().is_err() {
            self.end_lanes(Lost::SessionGone, Some(&closed()));
        }
        Entered::Waiting(waiting)
    }

    fn waiting(self: &Arc<Self>, key: LaneKey, waiter: Arc<Waiter>) -> WaitingTask {
        WaitingTask { engine: self.clone(), key, waiter, done: false }
    }

    /// Asks the store, and looks once whether it has answered. The name comes back.
    fn join(&self, ask: Ask) -> (Name, Asked<Joined>) {
        if let Some(answer) = self.session.join_now(&ask) {
            return (ask.name, Asked::Answered(answer));
        }
        let name = ask.name.clone();
        let _context = self.runtime.enter();
        (name, Asked::new(self.session.clone().join(ask)))
    }

    fn leave(&self, name: &Name, id: EntryId) -> Asked<Left> {
        if let Some(answer) = self.session.leave_now(name, id) {
            return Asked::Answered(answer);
        }
        lock(&self.leaving).entry(id).or_insert(false);
        let _context = self.runtime.enter();
        let asked = Asked::new(self.session.clone().leave(name.clone(), id));
        if let Asked::Answered(Ok(_)) = asked {
            lock(&self.leaving).remove(&id);
        }
        asked
    }

    /// A `leave` is over. What was disowned meanwhile is left once more: it may have been made after the first.
    fn left(self: &Arc<Self>, name: &Name, id: EntryId) {
        let again = lock(&self.leaving).remove(&id);
        if again == Some(true) {
            self.leave_in_background(name, id, self.now() + self.table.rules.lease);
        }
    }

    /// An entry that nobody here knows is taken out, unless that is being done: two at once would make the first believe that
    /// somebody took the lock away.
    fn disown(self: &Arc<Self>, name: &Name, id: EntryId) {
        if let Some(again) = lock(&self.leaving).get_mut(&id) {
            *again = true;
            return;
        }
        self.leave_in_background(name, id, self.now() + self.table.rules.lease);
    }

    fn joined(self: &Arc<Self>, key: &LaneKey, id: EntryId, answer: Asked<Joined>, asked: Tick) {
        match answer {
            Asked::Answered(answer) => {
                let visit = self.table.joined(key, id, answer, asked);
                self.settle(visit);
            }
            Asked::Pending(answer) => {
                let (engine, key) = (self.clone(), key.clone());
                self.runtime.spawn(async move {
                    let answer = answer.await;
                    engine.joined(&key, id, Asked::Answered(answer), asked);
                });
            }
        }
    }

    /// Does what a visit to the table asked for.
    pub(crate) fn settle<T>(self: &Arc<Self>, visit: Visit<T>) -> T {
        if visit.hurry {
            self.keeper.notify_one();
        }
        if !visit.actions.is_empty() {
            self.carry_out(visit.actions);
        }
        visit.answer
    }

    /// Says to the store what must be said.
    pub(crate) fn carry_out(self: &Arc<Self>, actions: Vec<Action>) {
        let mut due = Vec::new();
        for action in actions {
            match action {
                Action::Join(key, ask) => {
                    let (id, asked) = (ask.id, self.now());
                    let (_, answer) = self.join(ask);
                    self.joined(&key, id, answer, asked);
                }
                Action::Leave(name, id, until) => self.leave_in_background(&name, id, until),
                Action::Disown(name, id) => self.disown(&name, id),
                Action::Bury(name, id, after) => {
                    let engine = self.clone();
                    self.runtime.spawn(async move {
                        tokio::time::sleep(after).await;
                        engine.leave_in_background(&name, id, engine.now() + engine.table.rules.lease);
                    });
                }
                Action::Renew(entry) => due.push(entry),
            }
        }
        self.renew(due);
    }

    /// Renews in batches, grouped by the store's nodes, each entry judged on its own.
    fn renew(self: &Arc<Self>, mut due: Vec<Due>) {
        if due.is_empty() {
            return;
        }
        let _context = self.runtime.enter();
        due.sort_by_key(|d| self.session.group(&d.key.name));
        for group in due.chunk_by(|a, b| self.session.group(&a.key.name) == self.session.group(&b.key.name)) {
            for batch in group.chunks(BATCH) {
                let asked = self.now();
                let lines = batch.iter().map(|d| Renewal {
                    name: d.key.name.clone(),
                    id: d.id,
                    token: d.token,
                    more_tokens: d.more_tokens,
                });
                match Asked::new(self.session.clone().renew(lines.collect())) {
                    Asked::Answered(answers) => self.renewed(batch, answers, asked),
                    Asked::Pending(answer) => {
                        let (engine, batch) = (self.clone(), batch.to_vec());
                        self.runtime.spawn(async move {
                            let answers = answer.await;
                            engine.renewed(&batch, answers, asked);
                        });
                    }
                }
            }
        }
    }

    fn renewed(
        self: &Arc<Self>,
        batch: &[Due],
        answers: Result<Vec<Result<leasehold_core::store::Renewed>>>,
        asked: Tick,
    ) {
        let mut answers = match answers {
            Ok(answers) => answers.into_iter(),
            Err(error) => vec![Err(error); batch.len()].into_iter(),
        };
        for due in batch {
            let answer = answers
                .next()
                .unwrap_or_else(|| Err(Error::new(Kind::Unavailable, "a renewal was not answered")));
            telemetry::renewed(due, &answer);
            let visit = self.table.renewed(&due.key, due.id, answer, asked);
            if self.settle(visit) {
                telemetry::lost_because(&due.key.name, Lost::Revoked);
            }
        }
    }

    /// Gives a guard back without waiting for the store.
    pub(crate) fn release_in_background(self: &Arc<Self>, key: &LaneKey, hold: &Arc<Hold>, now: Tick) {
        let visit = self.table.release(key, hold, now);
        let released = self.settle(visit);
        telemetry::released(&released);
        if let Released::Leave(id) = released {
            let until = hold.valid_until().min(now + self.table.rules.lease);
            self.leave_in_background(&key.name, id, until);
        }
    }

    /// Gives a guard back and waits until the store has it.
    pub(crate) async fn release(self: &Arc<Self>, key: &LaneKey, hold: &Arc<Hold>, now: Tick) -> Result<()> {
        let lost = hold.lost_by(now);
        let visit = self.table.release(key, hold, now);
        let released = self.settle(visit);
        telemetry::released(&released);
        let left = match released {
            Released::Kept => Left::Done,
            Released::NotHeld => Left::NotThere,
            Released::Leave(id) => {
                let until = hold.valid_until().min(now + self.table.rules.lease);
                self.leave_and_wait(&key.name, id, until).await.map_err(|e| self.explain(e, &key.name))?
            }
        };
        // A guard that said it was lost stays lost, even if the store had not noticed yet.
        let why = match left {
            Left::Done => lost,
            Left::NotThere => lost.or_else(|| hold.lost_by(self.now())).or(Some(Lost::Revoked)),
        };
        match why {
            None => Ok(()),
            Some(why) => {
                let what = format!("the lease had ended before it was released: {why}");
                Err(self.explain(Error::new(Kind::Lost, what), &key.name))
            }
        }
    }

    /// Takes an entry out of the store. Goes on in a task of its own if it takes time, so that dropping this future does
    /// not stop it.
    async fn leave_and_wait(self: &Arc<Self>, name: &Name, id: EntryId, until: Tick) -> Result<Left> {
        let first = match self.leave(name, id) {
            Asked::Answered(Ok(left)) => return Ok(left),
            first => first,
        };
        let task = self.runtime.spawn(self.clone().leave_until(first, name.clone(), id, until));
        task.await.unwrap_or_else(|_| Err(Error::new(Kind::Unavailable, "the runtime was shut down")))
    }

    fn leave_in_background(self: &Arc<Self>, name: &Name, id: EntryId, until: Tick) {
        match self.leave(name, id) {
            Asked::Answered(Ok(_)) => {}
            first => drop(self.runtime.spawn(self.clone().leave_until(first, name.clone(), id, until))),
        }
    }

    /// Repeats a release until the lease would have ended anyway.
    async fn leave_until(
        self: Arc<Self>,
        first: Asked<Left>,
        name: Name,
        id: EntryId,
        until: Tick,
    ) -> Result<Left> {
        let patience = (self.table.rules.lease / 3).min(self.table.rules.retry_for);
        let mut answer = match first {
            Asked::Answered(answer) => answer,
            Asked::Pending(pending) => self.answer_within(patience, pending).await,
        };
        let mut tries = 0;
        let left = loop {
            match answer {
                // After a lost answer "not there" means that the first try did it.
                Ok(left) => break Ok(if tries > 0 { Left::Done } else { left }),
                Err(error) if error.retry_advice() == Retry::Never || self.now() >= until => {
                    break Err(error);
                }
                Err(error) => {
                    tracing::debug!(target: "leasehold", %name, %error, tries, "release is tried again");
                    tokio::time::sleep(RETRY.pause(tries, id.0 as u32)).await;
                    tries += 1;
                    answer = self.answer_within(patience, self.session.clone().leave(name.clone(), id)).await;
                }
            }
        };
        self.left(&name, id);
        left
    }

    /// Waits for an answer, but not for ever. The request itself goes on: it is never dropped half-way.
    async fn answer_within<T: Send + 'static>(&self, time: Duration, request: Pending<T>) -> Result<T> {
        match tokio::time::timeout(time, self.runtime.spawn(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Error::new(Kind::Unavailable, "the runtime was shut down")),
            Err(_) => Err(Error::new(Kind::Unavailable, format!("the store did not answer within {time:?}"))),
        }
    }

    /// Asks until there is an answer, or the client's patience is over. Only for what can be repeated.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        request: impl Fn(Arc<dyn Session>) -> Pending<T>,
    ) -> Result<T> {
        self.check_open()?;
        let patience = self.table.rules.retry_for;
        let give_up = self.now() + patience;
        let mut tries = 0;
        loop {
            let pending = {
                let _context = self.runtime.enter();
                request(self.session.clone())
            };
            // A first answer is worth the whole patience; later ones what is left of it.
            let left = give_up.since(self.now()).max(Duration::from_millis(10));
            let error = match self.answer_within(left, pending).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if error.retry_advice() == Retry::Never || self.now() >= give_up {
                return Err(if error.store().is_none() { error.at(self.url.clone()) } else { error });
            }
            tokio::time::sleep(RETRY.pause(tries, self.table.fresh_id().0 as u32)).await;
            tries += 1;
        }
    }

    /// Turns an exclusive hold into a shared one. Asking twice does no harm.
    pub(crate) async fn downgrade(self: &Arc<Self>, key: &LaneKey, hold: &Arc<Hold>) -> Result<()> {
        let (name, id) = (&key.name, hold.id);
        match self.ask(|s| s.downgrade(name.clone(), id)).await.map_err(|e| self.explain(e, name))? {
            Left::Done => {
                let visit = self.table.downgraded(key, id);
                self.settle(visit);
                Ok(())
            }
            Left::NotThere => {
                let visit = self.table.gone(key, id, Lost::Revoked);
                self.settle(visit);
                Err(self
                    .explain(Error::new(Kind::Lost, "the lease had ended before it was downgraded"), name))
            }
        }
    }

    /// Gives everything back and ends the session.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.end_lanes(Lost::SessionGone, Some(&closed()));
        let answer = {
            let _context = self.runtime.enter();
            self.session.clone().close()
        };
        self.keeper.notify_one();
        self.answer_within(self.table.rules.retry_for, answer).await.map_err(|e| {
            let e = if e.store().is_none() { e.at(self.url.clone()) } else { e };
            e.advice("what this client held ends by itself")
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn end_lanes(self: &Arc<Self>, why: Lost, error: Option<&Error>) {
        let (actions, lost) = self.table.end(why, error);
        if lost > 0 && error.is_none() {
            telemetry::all_lost(lost, why);
        }
        self.carry_out(actions);
    }

    /// Adds where it happened.
    pub(crate) fn explain(&self, error: Error, name: &Name) -> Error {
        let error = if error.name().is_none() { error.on(name) } else { error };
        if error.store().is_none() { error.at(self.url.clone()) } else { error }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The keeper sees that there is nothing left to keep.
        self.keeper.notify_one();
    }
}

fn closed() -> Error {
    Error::new(Kind::Refused, "the client is closed").advice("connect again to lock again")
}

enum Entered {
    Held(LaneKey, Handed),
    Busy,
    Waiting(WaitingTask),
}

/// A request that the store has answered on the spot, or not yet. What is pending was polled once with a waker that does
/// nothing; polling it again, in its task, registers the real one.
enum Asked<T> {
    Answered(Result<T>),
    Pending(Pending<T>),
}

impl<T> Asked<T> {
    fn new(mut request: Pending<T>) -> Self {
        match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Asked::Answered(answer),
            Poll::Pending => Asked::Pending(request),
        }
    }
}

/// A task that waits. Dropping it takes it out of the queue, and gives back what it was handed meanwhile.
pub(crate) struct WaitingTask {
    engine: Arc<Engine>,
    key: LaneKey,
    waiter: Arc<Waiter>,
    done: bool,
}

impl Future for WaitingTask {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let polled = self.waiter.poll(cx);
        self.done |= polled.is_ready();
        polled
    }
}

impl Drop for WaitingTask {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let visit = self.engine.table.cancel(&self.key, &self.waiter);
        if let Some(handed) = self.engine.settle(visit) {
            self.engine.release_in_background(&self.key, &handed.hold, self.engine.now());
        }
    }
}

/// Where the store's notes arrive. Holds the engine weakly: the store must not keep a dropped client alive.
pub(crate) struct Mail(pub(crate) std::sync::OnceLock<Weak<Engine>>);

impl Mail {
    fn engine(&self) -> Option<Arc<Engine>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

impl Inbox for Mail {
    fn note(&self, note: Note) {
        let Some(engine) = self.engine() else { return };
        let Some(key) = engine.table.lane_of(&note.name, note.id) else {
            if let News::Granted(_) = note.news {
                // Cancelled while the grant was on its way.
                engine.disown(&note.name, note.id);
            }
            return;
        };
        match note.news {
            News::Granted(grant) => {
                let visit = engine.table.granted(&key, note.id, grant, None);
                engine.settle(visit);
            }
            News::Retry => engine.carry_out(vec![Action::Renew(Due {
                key,
                id: note.id,
                token: None,
                more_tokens: false,
            })]),
            News::Gone(why) => {
                let visit = engine.table.gone(&key, note.id, why);
                if engine.settle(visit) {
                    telemetry::lost_because(&note.name, why);
                }
            }
        }
    }

    fn session_gone(&self) {
        if let Some(engine) = self.engine() {
            engine.end_lanes(Lost::SessionGone, None);
        }
    }
}
