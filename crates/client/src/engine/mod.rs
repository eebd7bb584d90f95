//! The engine: carries out what the local queues decide, and brings them the store's answers and notes.
//!
//! A request to the store belongs to the client, never to the future that caused it: it is polled once on the spot (most
//! stores on one host are done then). What is not done is polled by the future that waits for it, and goes on in a task of its own
//! when that is dropped, or was not polled for long. So a dropped `lock()` leaves nothing behind, whatever the moment.
//!
//! # Layout
//!
//! - this file: claims come in, guards go out and come back, actions are carried out.
//! - [`waiting`]: a task that waits for a lock.
//! - [`asking`]: how the store is asked, and renewals.
//! - [`leaving`]: how entries leave the store.
//! - [`mail`]: where the store's notes arrive.

mod asking;
mod leaving;
mod mail;
mod waiting;

pub(crate) use mail::Mail;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::store::{Ask, Joined, Leave, Left, Session};
use leasehold_core::view::Lost;
use leasehold_core::{Backoff, EntryId, Error, Kind, Label, Name, Result, SessionId, Tick, Traits, Want};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tracing::Instrument;

use crate::claim::Claim;
use crate::guard::Guard;
use crate::local::hold::Hold;
use crate::local::lane::{Enter, Released};
use crate::local::leaving::Going;
use crate::local::table::{Table, Visit};
use crate::local::waiter::{Handed, Lent, Outcome};
use crate::local::{Action, LaneKey, LaneKind, Terms};
use crate::owners::Owners;
use crate::telemetry;
use asking::Asked;
use waiting::WaitingTask;

pub(crate) struct Engine {
    pub(crate) about: About,
    pub(crate) session: Arc<dyn Session>,
    pub(crate) table: Table,
    pub(crate) runtime: Handle,
    pub(crate) owners: Owners,
    pub(crate) keeper: Arc<Notify>,
    closed: AtomicBool,
}

/// Who we are, and where.
pub(crate) struct About {
    pub(crate) namespace: String,
    pub(crate) label: Label,
    pub(crate) id: SessionId,
    pub(crate) traits: &'static Traits,
    /// The store's URL, without a password.
    pub(crate) url: String,
}

/// How long a claim waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Try,
    Within(Duration),
    Forever,
}

impl Engine {
    pub(crate) fn new(about: About, session: Arc<dyn Session>, table: Table, runtime: Handle) -> Arc<Self> {
        Arc::new(Engine {
            about,
            session,
            table,
            runtime,
            owners: Owners::default(),
            keeper: Arc::new(Notify::new()),
            closed: AtomicBool::new(false),
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
        let name = claim.checked_name(self)?;
        let want = *claim.want.as_ref().map_err(Error::clone)?;
        claim.check(want, self.about.traits).map_err(|e| self.explain(e, name))?;
        self.check_open()?;
        // Permits are counted, not owned: taking two one after the other is what they are for.
        let owner = if matches!(want, Want::Permits { .. }) { None } else { claim.owner_now() };
        if let Some(owner) = &owner
            && let Some(guard) = self.owners.enter(name, owner, want, claim.reentrant)?
        {
            return Ok(Some(guard));
        }
        let asked = self.now();
        let held = match claim.backoff() {
            None => self.wait(claim, name, want, patience, asked).await,
            Some(backoff) => self.spin(claim, name, want, backoff, patience, asked).await,
        };
        let mut guard = match held {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                telemetry::busy(want);
                return Ok(None);
            }
            Err(error) => return Err(self.explain(error, name)),
        };
        // Closed meanwhile: the guard goes back, whatever the store made of a claim that came after the goodbye.
        self.check_open()?;
        telemetry::acquired(&guard, asked);
        if let Some(owner) = owner {
            self.owners.register(&mut guard, owner);
        }
        // A task that only ever finds free locks must let others run now and then, the keeper among them. Not before the claim:
        // its place in the queue is that of its first poll.
        tokio::task::coop::consume_budget().await;
        Ok(Some(guard))
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
        let waiting = waiting
            .instrument(tracing::debug_span!(target: "leasehold", "wait", %name, want = want.as_str()));
        let waited = match patience {
            Patience::Within(d) if !tries => match tokio::time::timeout(d, waiting).await {
                Ok(waited) => waited,
                Err(_) => return Ok(None),
            },
            _ => waiting.await,
        };
        match waited.outcome {
            Outcome::Handed(handed) => {
                let now = self.now();
                Ok(Some(Guard::new(waited.engine, waited.key, handed, want, now)))
            }
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
            Enter::Wait(waiter) => return Entered::Waiting(WaitingTask::new(self.clone(), key, waiter)),
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
        let waiting = match first {
            Asked::Answered(answer) => {
                let waiting = WaitingTask::new(self.clone(), key.clone(), waiter);
                self.joined(&key, id, answer, asked);
                waiting
            }
            // Polled where it is waited for: no task, and one wake-up less.
            Asked::Pending(answer) => {
                WaitingTask::with(self.clone(), key, waiter, Lent { answer, id, asked })
            }
        };
        if self.check_open().is_err() {
            self.end_lanes(Lost::SessionGone, Some(&closed()));
        }
        Entered::Waiting(waiting)
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

    /// The store has answered.
    fn joined(self: &Arc<Self>, key: &LaneKey, id: EntryId, answer: Result<Joined>, asked: Tick) {
        let visit = self.table.joined(key, id, answer, asked);
        self.settle(visit);
    }

    /// Waits for an answer in a task of its own.
    fn go_on(self: &Arc<Self>, key: LaneKey, request: Lent) {
        let engine = self.clone();
        self.runtime.spawn(async move {
            let Lent { answer, id, asked } = request;
            let answer = answer.await;
            engine.joined(&key, id, answer, asked);
        });
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
                    match self.join(ask).1 {
                        Asked::Answered(answer) => self.joined(&key, id, answer, asked),
                        Asked::Pending(answer) => self.go_on(key, Lent { answer, id, asked }),
                    }
                }
                Action::GoOn(key, request) => self.go_on(key, request),
                Action::GoOnLeaving(neglected) => self.go_on_leaving(neglected),
                Action::Leave(going) => self.leave_in_background(going),
                Action::Disown(name, id) => self.disown(name, id),
                Action::Bury(name, id, after) => self.bury(name, id, after),
                Action::Renew(entry) => due.push(entry),
            }
        }
        self.renew(due);
    }

    /// The local part of giving a guard back, and until when the store's part is worth trying.
    fn give_back(self: &Arc<Self>, key: &LaneKey, hold: &Arc<Hold>, now: Tick) -> (Released, Tick) {
        let visit = self.table.release(key, hold, now);
        let released = self.settle(visit);
        telemetry::released(&released);
        (released, hold.valid_until().min(now + self.table.rules.lease))
    }

    /// Gives a guard back without waiting for the store.
    pub(crate) fn release_in_background(self: &Arc<Self>, key: LaneKey, hold: &Arc<Hold>, now: Tick) {
        if let (Released::Leave { id, used, listed }, until) = self.give_back(&key, hold, now) {
            let leave = Leave { name: key.name, id, used: Some(used) };
            self.leave_in_background(Going { leave, until, listed });
        }
    }

    /// Gives a guard back and waits until the store has it.
    pub(crate) async fn release(self: &Arc<Self>, key: LaneKey, hold: &Arc<Hold>, now: Tick) -> Result<()> {
        let lost = hold.lost_by(now);
        let (released, until) = self.give_back(&key, hold, now);
        let (name, left) = match released {
            Released::Kept => (key.name, Left::Done),
            Released::NotHeld => (key.name, Left::NotThere),
            Released::Leave { id, used, listed } => {
                let leave = Leave { name: key.name, id, used: Some(used) };
                self.leave_and_wait(Going { leave, until, listed }).await?
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
                Err(self.explain(Error::new(Kind::Lost, what), &name))
            }
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
        self.answer_within(self.table.rules.retry_for, answer)
            .await
            .map_err(|e| self.placed(e).advice("what this client held ends by itself"))
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

    /// Adds where it happened, and to which lock.
    pub(crate) fn explain(&self, error: Error, name: &Name) -> Error {
        self.placed(if error.name().is_none() { error.on(name) } else { error })
    }

    /// Adds where it happened.
    fn placed(&self, error: Error) -> Error {
        if error.store().is_none() { error.at(self.about.url.clone()) } else { error }
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
