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
//! - [`gate`]: whether the client is open.
//! - [`asking`]: how the store is asked, and renewals.
//! - [`leaving`]: how entries leave the store.
//! - [`departures`]: which are leaving it now, for tries.
//! - [`downgrade`]: how a writer becomes a reader.
//! - [`mail`]: where the store's notes arrive.

mod asking;
mod departures;
mod downgrade;
mod gate;
mod leaving;
mod mail;
mod waiting;

pub(crate) use mail::Mail;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use leasehold_background::{Background, Sleep, contain_panic};
use leasehold_core::store::{Ask, Joined, Leave, Left, Session};
use leasehold_core::view::Lost;
use leasehold_core::{
    Backoff, Clock, EntryId, Error, Kind, Label, Name, Result, Retry, SessionId, Tick, Token, Traits, Want,
};
use tokio::sync::Notify;
use tracing::Instrument;
use tracing::instrument::Instrumented;

use crate::claim::Claim;
use crate::guard::Guard;
use crate::local::hold::Hold;
use crate::local::lane::{Enter, Overdue, Released};
use crate::local::leaving::Going;
use crate::local::table::{Table, Visit};
use crate::local::waiter::{Handed, Lent, Outcome};
use crate::local::{Action, LENT, LaneKey, LaneKind, ON_ITS_WAY, STALLED, Terms};
use crate::outage::Outages;
use crate::owners::Owners;
use crate::telemetry;
use asking::{Asked, Said};
use departures::Departures;
use gate::Gate;
pub(crate) use gate::InFlight;
use leaving::not_confirmed;
use waiting::{Waited, WaitingTask};

pub(crate) struct Engine {
    pub(crate) about: About,
    pub(crate) session: Arc<dyn Session>,
    pub(crate) table: Table,
    pub(crate) background: Background,
    pub(crate) owners: Owners,
    pub(crate) keeper: Arc<Notify>,
    pub(crate) outages: Outages,
    gate: Arc<Gate>,
    failing: leaving::FailingReleases,
    departures: Arc<Departures>,
    /// What the store said last, of whatever request, since it has answered one.
    said: Said,
}

/// Who we are, and where.
pub(crate) struct About {
    pub(crate) namespace: String,
    pub(crate) label: Label,
    pub(crate) id: SessionId,
    pub(crate) traits: &'static Traits,
    /// The store's URL, without a password.
    pub(crate) url: String,
    /// How long a request to the store may take.
    pub(crate) timeout: Duration,
}

/// How often a clock that a test moves is looked at: it can jump at any time.
const LOOK_AT_MANUAL_CLOCK: Duration = Duration::from_millis(1);

/// How long a claim waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Try,
    Within(Duration),
    Forever,
}

impl Engine {
    pub(crate) fn new(
        about: About,
        session: Arc<dyn Session>,
        table: Table,
        background: Background,
        outages: Outages,
    ) -> Arc<Self> {
        Arc::new(Engine {
            about,
            session,
            table,
            background,
            owners: Owners::default(),
            keeper: Arc::new(Notify::new()),
            outages,
            gate: Arc::default(),
            failing: leaving::FailingReleases::default(),
            departures: Arc::default(),
            said: Said::default(),
        })
    }

    pub(crate) fn now(&self) -> Tick {
        self.table.clock.now()
    }

    /// A sleep until this moment of the client's clock, or a moment's one if a test moves that clock.
    pub(crate) fn sleep_until(&self, moment: Tick) -> Sleep {
        let look = Clock::system().now() + LOOK_AT_MANUAL_CLOCK;
        self.background.sleep_until(if self.table.clock.is_manual() { look } else { moment })
    }

    /// Whether this process is a child that was forked since the client was opened. Then nothing of the client may be touched:
    /// its session is the parent's, and its mutexes may be locked by threads that did not come along.
    pub(crate) fn is_forked(&self) -> bool {
        !self.background.is_alive()
    }

    pub(crate) fn check_not_forked(&self) -> Result<()> {
        if self.is_forked() { Err(forked()) } else { Ok(()) }
    }

    /// A future whose timers and answers come from the background thread, which a forked child does not have.
    pub(crate) async fn unless_forked<T>(
        &self,
        mut future: impl Future<Output = Result<T>> + Unpin,
    ) -> Result<T> {
        std::future::poll_fn(|cx| match self.is_forked() {
            true => Poll::Ready(Err(forked())),
            false => Pin::new(&mut future).poll(cx),
        })
        .await
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_not_forked()?;
        if self.gate.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Gets a lock, or `None` if another one has it when the patience is over. A store that is not available then is an error.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        claim: &Claim,
        patience: Patience,
    ) -> Result<Option<Guard>> {
        // No time at all to wait is one honest try, which takes as long as its answer.
        let patience = if patience == Patience::Within(Duration::ZERO) { Patience::Try } else { patience };
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
        let ours_may_leave = patience == Patience::Try && self.departures.of(name);
        let mut held = self.claim(claim, name, want, patience, asked).await;
        if ours_may_leave && matches!(held, Ok(None)) {
            let time = claim.retry_for.unwrap_or(self.table.rules.try_for);
            let _ = self.background.timeout(time, self.departures.over(name)).await;
            held = self.claim(claim, name, want, patience, asked).await;
        }
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

    async fn claim(
        self: &Arc<Self>,
        claim: &Claim,
        name: &Name,
        want: Want,
        patience: Patience,
        asked: Tick,
    ) -> Result<Option<Guard>> {
        match claim.backoff() {
            None => self.wait(claim, name, want, self.time_for(claim, patience), asked).await,
            Some(backoff) => self.spin(claim, name, want, backoff, patience, asked).await,
        }
    }

    /// How long a claim waits for the lock, and for the store.
    fn time_for(&self, claim: &Claim, patience: Patience) -> Time {
        let rules = &self.table.rules;
        let time = Time { tries: false, limit: None, last_answer: ON_ITS_WAY, retry_for: None };
        match patience {
            // A limit of zero is no time for any store: it is a try.
            Patience::Try | Patience::Within(Duration::ZERO) => {
                Time { tries: true, limit: Some(claim.retry_for.unwrap_or(rules.try_for)), ..time }
            }
            Patience::Within(limit) if claim.answered => {
                Time { limit: Some(limit), last_answer: rules.try_for.max(ON_ITS_WAY), ..time }
            }
            Patience::Within(limit) => Time { limit: Some(limit), ..time },
            Patience::Forever => Time { retry_for: Some(claim.retry_for.unwrap_or(rules.retry_for)), ..time },
        }
    }

    async fn wait(
        self: &Arc<Self>,
        claim: &Claim,
        name: &Name,
        want: Want,
        Time { tries, limit, last_answer, retry_for }: Time,
        asked: Tick,
    ) -> Result<Option<Guard>> {
        let key = self.lane_for(claim, name, want);
        let lease = claim.lease_or(self.table.rules.lease);
        let terms = Terms { lease, barges: claim.barges(), retry_for };
        let waiting = match self.enter(key, want, terms, tries, asked) {
            Entered::Held(key, handed) => {
                return Ok(Some(Guard::new(self.clone(), key, handed, want, asked)));
            }
            Entered::Busy => return Ok(None),
            Entered::Waiting(waiting) => waiting,
        };
        let waiting = waiting
            .instrument(tracing::debug_span!(target: "leasehold", "wait", %name, want = want.as_str()));
        let waited = match limit {
            None => waiting.await,
            Some(limit) => match self.wait_within(limit, last_answer, pin!(waiting)).await? {
                Some(waited) => waited,
                None => return Ok(None),
            },
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

    /// Waits no longer than `limit`, and `last_answer` more for an answer that is on its way then. `None` if another
    /// one has the lock; that the store is not available is an error.
    async fn wait_within(
        &self,
        limit: Duration,
        last_answer: Duration,
        mut waiting: Pin<&mut Instrumented<WaitingTask>>,
    ) -> Result<Option<Waited>> {
        let (mut step, mut left) = (limit, last_answer);
        let mut asked_about = None;
        loop {
            let waited = self.background.timeout(step, waiting.as_mut()).await;
            if waited.is_some() {
                return Ok(waited);
            }
            match waiting.inner().overdue() {
                Overdue::Done => return Ok(Some(waiting.await)),
                Overdue::Busy => return Ok(None),
                Overdue::Failed(error) => return Err(error),
                // Another one of this client got it meanwhile.
                Overdue::Unanswered(id) if asked_about.is_some_and(|before| before != id) => return Ok(None),
                Overdue::Unanswered(_) if left.is_zero() => {
                    let time = limit.saturating_add(last_answer);
                    return Err(Error::new(Kind::Unavailable, "the store did not answer").tried_for(time));
                }
                Overdue::Unanswered(id) => asked_about = Some(id),
            }
            // An answer that says that another one has the lock does not end the wait: it is looked for.
            step = left.min(ON_ITS_WAY);
            left -= step;
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
        let only_one = patience == Patience::Try;
        let one_try = self.time_for(claim, Patience::Try);
        let Time { limit, retry_for, .. } = self.time_for(claim, patience);
        let try_for = match patience {
            Patience::Within(_) => self.table.rules.try_for,
            Patience::Try | Patience::Forever => one_try.limit.unwrap_or(self.table.rules.try_for),
        };
        // A limit that no clock can reach is none.
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
        let spinning = async {
            // Since when the store is not available, and what it said of that.
            let mut trouble: Option<(Tick, Error)> = None;
            let mut tries = 0;
            loop {
                let asked = if tries == 0 { asked } else { self.now() };
                // A store that has answered gets the time to answer once more, also where the limit ends meanwhile.
                let answered = trouble.is_none() && (tries > 0 || claim.answered);
                let short = left().filter(|left| !answered && *left < try_for);
                let time = Time { limit: Some(short.unwrap_or(try_for)), ..one_try };
                let failed = match self.wait(claim, name, want, time, asked).await {
                    Ok(None) if !only_one => None,
                    Err(error) if !only_one && error.retry_advice() != Retry::Never => Some(error),
                    ended => return ended,
                };
                let time_is_over = left() == Some(Duration::ZERO);
                match failed {
                    None if time_is_over => return Ok(None),
                    None => trouble = None,
                    Some(error) => {
                        let (since, error) = match trouble.take() {
                            // What the store said before tells more than that there was no time for another answer.
                            Some(said) if time_is_over && short.is_some() => said,
                            Some((since, _)) => (since, error),
                            None => (asked, error),
                        };
                        if time_is_over || retry_for.is_some_and(|d| self.now() >= since + d) {
                            return Err(error.tried_for(self.now().since(since)));
                        }
                        trouble = Some((since, error));
                    }
                }
                self.check_open()?;
                let random = self.table.fresh_id().0 as u32;
                let pause = backoff.pause(tries, random.wrapping_mul(0x9E37_79B9) >> 16);
                self.background.sleep(left().map_or(pause, |left| left.min(pause))).await;
                tries = tries.saturating_add(1);
            }
        };
        // Boxed, so that the futures of all other claims don't carry its size around.
        self.unless_forked(Box::pin(spinning)).await
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
        let Sent { name, first, in_flight, here } = self.join(request.on(name), Where::Here);
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
                WaitingTask::with(self.clone(), key, waiter, Lent { answer, id, asked, in_flight, here })
            }
        };
        if self.check_open().is_err() {
            self.end_lanes(Lost::SessionGone, Some(&closed()));
        }
        Entered::Waiting(waiting)
    }

    /// Asks the store, and looks once whether it has answered.
    fn join(&self, ask: Ask, place: Where) -> Sent {
        let answered =
            |name, answer| Sent { name, first: Asked::Answered(answer), in_flight: None, here: None };
        if let Some(answer) = self.session.join_now(&ask) {
            return answered(ask.name, answer);
        }
        let Some(in_flight) = self.gate.begin_join() else {
            return answered(ask.name, Err(closed()));
        };
        let name = ask.name.clone();
        let by_here = if place == Where::Here { self.session.join_here(&ask) } else { None };
        let (first, here) = match by_here {
            Some(request) => (self.ask(|_| request), Some(ask)),
            None => (self.ask(|session| session.join(ask)), None),
        };
        Sent { name, first, in_flight: Some(in_flight), here }
    }

    /// The store has answered.
    fn joined(self: &Arc<Self>, key: &LaneKey, id: EntryId, answer: Result<Joined>, asked: Tick) {
        self.heard(&answer, asked);
        let visit = self.table.joined(key, id, answer, asked);
        self.settle(visit);
    }

    /// Waits for an answer in a task of its own. A request that a connection of the caller's runtime carries is sent
    /// once more by the background thread if it is not answered soon: that runtime may stand still. Both have one id,
    /// so the store has one entry, and the goodbye of the session and the exit of the process wait for the first answer
    /// only.
    fn go_on(self: &Arc<Self>, key: LaneKey, request: Lent) {
        let (engine, exit_waits) = (self.clone(), self.background.in_flight());
        let departure = self.departures.begin(&key.name);
        self.background.spawn(async move {
            let _departure = departure;
            let Lent { mut answer, id, asked, in_flight, here } = request;
            let Some(ask) = here else {
                engine.joined(&key, id, answer.await, asked);
                return drop((in_flight, exit_waits));
            };
            if let Some(answer) = engine.background.timeout(STALLED, &mut answer).await {
                engine.joined(&key, id, answer, asked);
                return drop((in_flight, exit_waits));
            }
            let resent = engine.now();
            let mut again = engine.session.clone().join(ask);
            let (first, late) = tokio::select! {
                biased;
                first = &mut answer => ((first, asked), (again, resent)),
                first = &mut again => ((first, resent), (answer, asked)),
            };
            engine.joined(&key, id, first.0, first.1);
            drop((in_flight, exit_waits));
            engine.joined(&key, id, late.0.await, late.1);
        });
    }

    fn join_in_background(self: &Arc<Self>, key: LaneKey, ask: Ask) {
        let (id, asked) = (ask.id, self.now());
        let Sent { first, in_flight, here, .. } = self.join(ask, Where::Background);
        match first {
            Asked::Answered(answer) => self.joined(&key, id, answer, asked),
            Asked::Pending(answer) => self.go_on(key, Lent { answer, id, asked, in_flight, here }),
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
            // Each by itself: stores call subscribers of `tracing`, and one that panics keeps no other lock from what
            // it needs.
            contain_panic(|| match action {
                Action::Join(key, ask) => self.join_in_background(key, ask),
                Action::GoOn(key, request) => self.go_on(key, request),
                Action::GoOnLeaving(neglected) => self.go_on_leaving(neglected),
                Action::Leave(going) => self.leave_in_background(going),
                Action::Disown(name, id) => self.disown(name, id),
                Action::Bury(name, id, after) => self.bury(name, id, after),
                Action::Renew(entry) => due.push(entry),
            });
        }
        self.renew(due);
    }

    /// The local part of giving a guard back, and until when the store's part is worth trying.
    fn give_back(self: &Arc<Self>, key: &LaneKey, hold: &Arc<Hold>, now: Tick) -> (Released, Tick) {
        let visit = self.table.release(key, hold, now);
        let released = self.settle(visit);
        telemetry::released(&released);
        (released, hold.valid_until())
    }

    /// Gives a guard back without waiting for the store.
    pub(crate) fn release_in_background(self: &Arc<Self>, key: LaneKey, hold: &Arc<Hold>, now: Tick) {
        if let (Released::Leave { id, used, listed }, until) = self.give_back(&key, hold, now) {
            let leave = Leave { name: key.name, id, used: Some(used) };
            self.leave_in_background(Going { leave, until, listed });
        }
    }

    /// Gives a guard back and waits until the store has it, but no longer than `limit`: the release itself goes on.
    pub(crate) async fn release(
        self: &Arc<Self>,
        key: LaneKey,
        hold: &Arc<Hold>,
        now: Tick,
        limit: Option<Duration>,
    ) -> Result<()> {
        let lost = hold.lost_by(now);
        let (released, until) = self.give_back(&key, hold, now);
        let (name, left, used) = match released {
            Released::Kept => (key.name, Left::Done, None),
            Released::NotHeld => (key.name, Left::NotThere, None),
            Released::Leave { id, used, listed } => {
                let leave = Leave { name: key.name, id, used: Some(used) };
                let (name, limit) = (leave.name.clone(), limit.unwrap_or(self.table.rules.retry_for));
                let leaving = self.leave_and_wait(Going { leave, until, listed }, limit);
                let (name, left) = if limit >= LENT {
                    leaving.await?
                } else {
                    let unknown = || Err(self.explain(not_confirmed(limit, None), &name));
                    self.background.timeout(limit, leaving).await.unwrap_or_else(unknown)?
                };
                (name, left, Some(used))
            }
        };
        // A guard that said it was lost stays lost, even if the store had not noticed yet.
        let why = match (left, used) {
            (Left::Done, _) if lost.is_none() => return Ok(()),
            (Left::NotThere, Some(used)) if lost.is_none() => self.why_it_left(hold, &name, used).await,
            _ => lost.or_else(|| hold.lost_by(self.now())),
        };
        Err(self.lost_before("released", why, &name))
    }

    /// Why the entry of a hold that was good when it was given back was not at the store.
    async fn why_it_left(&self, hold: &Hold, name: &Name, used: Token) -> Option<Lost> {
        if self.now() >= hold.valid_until() {
            return Some(Lost::Expired);
        }
        if self.is_closed() {
            return Some(Lost::SessionGone);
        }
        self.why_gone(name.clone(), hold.id, used).await
    }

    /// Gives everything back and ends the session. Every call waits for the same goodbye, no longer than `patience`.
    pub(crate) async fn close(self: &Arc<Self>, patience: Duration) -> Result<()> {
        self.check_not_forked()?;
        let began = self.now();
        if self.gate.close() {
            self.end_lanes(Lost::SessionGone, Some(&closed()));
            self.keeper.notify_one();
            let engine = self.clone();
            self.background.spawn_in_flight(async move {
                // The goodbye is said whether or not all are answered by then.
                let patience = (engine.table.rules.retry_for / 2).max(engine.about.timeout);
                let _ = engine.background.timeout(patience, engine.gate.drained()).await;
                let session = engine.session.clone();
                engine.gate.said_goodbye(session.close().await);
            });
        }
        let gate = self.gate.clone();
        let goodbye = Box::pin(async move { gate.goodbye().await });
        self.answer_within(patience, goodbye).await.map_err(|e| {
            let e = if e.retry_advice() == Retry::Never { e } else { e.tried_for(self.now().since(began)) };
            self.placed(e).advice("what this client held ends by itself")
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// Resolves when the client is closed.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let gate = self.gate.clone();
        async move { gate.closed().await }
    }

    fn end_lanes(self: &Arc<Self>, why: Lost, error: Option<&Error>) {
        let (actions, lost) = self.table.end(why, error);
        if lost > 0 && error.is_none() {
            telemetry::all_lost(lost, why, &self.outages);
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
        if self.is_forked() {
            // One more reference, which is never given back: the session is the parent's, and must not end here.
            std::mem::forget(self.session.clone());
            return;
        }
        // The keeper sees that there is nothing left to keep.
        self.keeper.notify_one();
    }
}

/// The client belongs to another process: its session and its connections are those of the parent.
pub(crate) fn forked() -> Error {
    Error::new(Kind::Refused, "this process was forked from the one that opened the client")
        .advice("connect again in the child: the locks are still the parent's")
}

fn closed() -> Error {
    Error::new(Kind::Refused, "the client is closed").advice("connect again to lock again")
}

/// Whose connections a request uses, where a store has both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// Those of the caller's runtime: the caller waits for the answer.
    Here,
    /// Those of the background thread: the request has to be carried out whatever becomes of the caller.
    Background,
}

/// How long a claim waits.
#[derive(Clone, Copy)]
struct Time {
    /// It does not wait for another holder.
    tries: bool,
    /// Its limit.
    limit: Option<Duration>,
    /// How much longer than that it waits for an answer that is on its way.
    last_answer: Duration,
    /// How long it bears a store in trouble, if it has no limit.
    retry_for: Option<Duration>,
}

/// A claim that was sent to the store.
struct Sent {
    name: Name,
    first: Asked<Joined>,
    /// The goodbye of the session waits for it.
    in_flight: Option<InFlight>,
    /// What was asked, if a connection of the caller's runtime carries it.
    here: Option<Ask>,
}

enum Entered {
    Held(LaneKey, Handed),
    Busy,
    Waiting(WaitingTask),
}
