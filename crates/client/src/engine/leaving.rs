//! How entries leave the store: repeated after lost answers, never twice at once, and never for nothing.
//!
//! A release that fails is repeated until the entry ends by itself: for the length of a lease where leases end by time, for
//! as long as the client lives where they don't. Whoever waits for it is told after the length of a lease in either case.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_background::{Background, contain_panic, is_thread_ending};
use leasehold_core::store::{Leave, Left, Pending};
use leasehold_core::{Backoff, EntryId, Error, Kind, Name, Result, Retry, Tick};

use super::asking::{Asked, Said, no_answer};
use super::{Engine, Where, forked};
use crate::local::leaving::Going;
use crate::local::release::{Heard, Neglected, Release};
use crate::local::{RETRY, STALLED};
use crate::outage::Outages;
use crate::sync::{Mutex, lock};

/// How soon a release is repeated that whoever waited for it has given up on.
const LATER: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(2) };

/// A release that fails for so long is worth a line in the log.
const WORTH_TELLING: Duration = Duration::from_secs(1);

impl Engine {
    /// Takes an entry out of the store, and looks once whether it has answered. Tells whether a connection of the caller's runtime
    /// carries the request.
    fn leave(&self, leave: &Leave, place: Where) -> (Asked<Left>, Where) {
        if let Some(answer) = self.session.leave_now(leave) {
            return (Asked::Answered(answer), Where::Background);
        }
        let here = if place == Where::Here { self.session.leave_here(leave) } else { None };
        match here {
            Some(request) => (self.ask(|_| request), Where::Here),
            None => {
                let leave = leave.clone();
                (self.ask(|session| session.leave(leave)), Where::Background)
            }
        }
    }

    /// A `leave` is over. What was disowned meanwhile is left once more: it may have been made after the first.
    fn left(self: &Arc<Self>, going: &Going) {
        let Going { leave: Leave { name, id, .. }, listed, .. } = going;
        if *listed && self.table.left(name, *id) {
            self.leave_in_background(self.going(name.clone(), *id, false));
        }
    }

    /// An entry that is not known to have held.
    fn going(&self, name: Name, id: EntryId, listed: bool) -> Going {
        let rules = &self.table.rules;
        Going { leave: Leave::new(name, id), until: rules.gone_by(self.now() + rules.lease), listed }
    }

    /// An entry that nobody here knows is taken out, unless that is being done: two at once would make the first believe that
    /// somebody took the lock away.
    pub(super) fn disown(self: &Arc<Self>, name: Name, id: EntryId) {
        if self.table.disown(&name, id) {
            self.leave_in_background(self.going(name, id, true));
        }
    }

    /// A lease has ended for us. Soon it has for the store, which then has to notice.
    pub(super) fn bury(self: &Arc<Self>, name: Name, id: EntryId, after: Duration) {
        let engine = self.clone();
        self.background.spawn(async move {
            engine.background.sleep(after).await;
            engine.leave_in_background(engine.going(name, id, false));
        });
    }

    /// Takes an entry out of the store. Goes on in a task of its own if this future is dropped or not polled, or if the first try fails;
    /// that is waited for no longer than `limit`, and [`LENT`](crate::local::LENT) at least. The name comes back.
    pub(super) async fn leave_and_wait(
        self: &Arc<Self>,
        going: Going,
        limit: Duration,
    ) -> Result<(Name, Left)> {
        let asked = self.now();
        let (first, carried) = self.leave(&going.leave, Where::Here);
        let answer = match first {
            Asked::Answered(answer) => Heard::Here(answer),
            Asked::Pending(request) => FirstTry::new(self, going.clone(), request, carried, limit).await,
        };
        if let Heard::Here(answer) = &answer {
            self.heard(answer, asked);
        }
        let name = going.leave.name.clone();
        let left = match answer {
            Heard::Here(Ok(left)) => {
                self.left(&going);
                Ok(left)
            }
            Heard::Here(failed) => {
                let said = Arc::new(Said::default());
                if let Err(error) = &failed {
                    said.note(error);
                }
                let first = First::Asked(Asked::Answered(failed));
                let leaving = self.clone().leave_until(first, going, said.clone());
                let task = self.background.spawn_in_flight(leaving);
                let gone = |_| Err(Error::new(Kind::Unavailable, "the release panicked"));
                let answer = self.background.timeout(limit, task).await;
                let unknown = || Err(not_confirmed(limit, said.last()));
                answer.map_or_else(unknown, |left| left.unwrap_or_else(gone))
            }
            Heard::Elsewhere(left) => left,
        };
        left.map_err(|e| self.explain(e, &name)).map(|left| (name, left))
    }

    /// Nobody has polled it for long.
    pub(super) fn go_on_leaving(self: &Arc<Self>, Neglected { release, request }: Neglected) {
        let engine = self.clone();
        self.background.spawn_in_flight(async move {
            let going = release.going.clone();
            let first = First::taken(request, release.carried);
            let said = Arc::new(Said::default());
            let mut leaving = pin!(engine.clone().leave_until(first, going, said.clone()));
            match engine.background.timeout(release.limit, leaving.as_mut()).await {
                Some(left) => release.answer(left),
                None => {
                    release.answer(Err(not_confirmed(release.limit, said.last())));
                    let _ = leaving.await;
                }
            }
        });
    }

    pub(super) fn leave_in_background(self: &Arc<Self>, going: Going) {
        match self.leave(&going.leave, Where::Background).0 {
            Asked::Answered(Ok(_)) => self.left(&going),
            first => {
                let (in_flight, departure) =
                    (self.gate.begin_leave(), self.departures.begin(&going.leave.name));
                let leaving = self.clone().leave_until(First::Asked(first), going, Arc::default());
                self.background.spawn_in_flight(async move {
                    let _ = leaving.await;
                    drop((in_flight, departure));
                });
            }
        }
    }

    /// Repeats a release until the lease would have ended anyway, and for no longer than a lease. If the entry stays for longer
    /// than that, it goes on in a task of its own. Why tries failed is noted for whoever gives up sooner.
    async fn leave_until(self: Arc<Self>, first: First, going: Going, said: Arc<Said>) -> Result<Left> {
        let patience = self.patience_with_a_release();
        let (begun, until) = (self.now(), going.until.min(self.now() + self.table.rules.lease));
        let mut told = false;
        let mut asked = begun;
        let (leave, mut tries) = (&going.leave, 0);
        let mut answer = match first {
            First::Asked(Asked::Answered(answer)) => answer,
            First::Asked(Asked::Pending(mut pending)) => self.answer_here(patience, &mut pending).await,
            First::Taken(mut request) => match self.background.timeout(STALLED, &mut request).await {
                Some(answer) => answer,
                None => {
                    self.background.spawn(request);
                    tries = 1;
                    self.answer_here(patience, &mut self.session.clone().leave(leave.clone())).await
                }
            },
        };
        let left = loop {
            self.heard(&answer, asked);
            if let Err(error) = &answer {
                said.note(error);
            }
            match answer {
                // After a lost answer "not there" means that the first try did it.
                Ok(left) => break Ok(if tries > 0 { Left::Done } else { left }),
                Err(error) if error.retry_advice() == Retry::Never => break Err(error),
                Err(error) if self.now() >= until => {
                    break Err(said.last().unwrap_or(error).tried_for(self.now().since(begun)));
                }
                Err(error) => {
                    contain_panic(|| {
                        tracing::debug!(target: "leasehold", name = %leave.name, %error, tries, "release is tried again");
                    });
                    if !told && self.now().since(begun) >= WORTH_TELLING {
                        self.failing.begin(&going, &error, begun, &self.outages);
                        told = true;
                    }
                    self.background.sleep(RETRY.pause(tries, leave.id.0 as u32)).await;
                    tries += 1;
                    asked = self.now();
                    let mut pending = self.session.clone().leave(leave.clone());
                    answer = self.answer_here(patience, &mut pending).await;
                }
            }
        };
        let goes_on = left.as_ref().is_err_and(|error| error.retry_advice() != Retry::Never)
            && self.now() < going.until;
        if goes_on {
            if let (Err(error), false) = (&left, told) {
                self.failing.begin(&going, error, begun, &self.outages);
            }
            self.background.spawn(leave_at_last(self.background, Arc::downgrade(&self), going));
        } else {
            if told {
                self.failing.end(left.is_ok(), self.now(), self.outages.url());
            }
            self.left(&going);
        }
        left
    }

    /// How long one try at a release is waited for.
    pub(super) fn patience_with_a_release(&self) -> Duration {
        (self.table.rules.lease / 3).min(self.table.rules.retry_for)
    }

    /// Waits for an answer where it is, without a task for it. What takes too long goes on in one.
    async fn answer_here(&self, time: Duration, request: &mut Pending<Left>) -> Result<Left> {
        match self.background.timeout(time, &mut *request).await {
            Some(answer) => answer,
            None => {
                let never = Box::pin(std::future::pending());
                self.background.spawn_in_flight(std::mem::replace(request, never));
                Err(no_answer())
            }
        }
    }
}

/// The first try at a release.
enum First {
    Asked(Asked<Left>),
    /// A connection of the caller's runtime carries it. That runtime may stand still: if it is not answered soon, the background
    /// thread sends it once more.
    Taken(Pending<Left>),
}

impl First {
    /// One that was taken from the task that polled it.
    fn taken(request: Pending<Left>, carried: Where) -> Self {
        match carried {
            Where::Here => First::Taken(request),
            Where::Background => First::Asked(Asked::Pending(request)),
        }
    }
}

/// Repeats a release for as long as the entry is at the store and the client lives. A client that is closed or dropped takes its
/// session with it, and what the session has at such a store.
async fn leave_at_last(background: Background, engine: Weak<Engine>, going: Going) {
    let (leave, mut tries) = (&going.leave, 0);
    loop {
        background.sleep(LATER.pause(tries, leave.id.0 as u32)).await;
        let Some(engine) = engine.upgrade() else { return };
        tries += 1;
        let over = engine.check_open().is_err() || engine.now() >= going.until;
        let asked = engine.now();
        let mut pending = engine.session.clone().leave(leave.clone());
        let left = engine.answer_here(engine.patience_with_a_release(), &mut pending).await;
        engine.heard(&left, asked);
        let given_up = left.as_ref().is_err_and(|error| over || error.retry_advice() == Retry::Never);
        if left.is_ok() || given_up {
            engine.failing.end(left.is_ok(), engine.now(), engine.outages.url());
            engine.left(&going);
            return;
        }
    }
}

/// The releases that fail, so that the log has a line when that begins and one when it is over, and not two for each lock.
#[derive(Default)]
pub(super) struct FailingReleases(Mutex<Failing>);

#[derive(Default)]
struct Failing {
    /// How many fail now.
    now: usize,
    /// How many were given up since it began: they end by themselves.
    given_up: usize,
    since: Option<Tick>,
    /// Whether there was a line: an outage has its own.
    told: bool,
}

impl FailingReleases {
    fn begin(&self, going: &Going, error: &Error, since: Tick, outages: &Outages) {
        let mut failing = lock(&self.0);
        failing.now += 1;
        if failing.since.is_some() {
            return;
        }
        let endless = going.until == Tick::NEVER;
        (failing.since, failing.told) = (Some(since), endless || !outages.is_told());
        if failing.told {
            let name = &going.leave.name;
            let until = if endless { "it succeeds" } else { "its lease ends" };
            let store = outages.url();
            contain_panic(|| {
                tracing::warn!(target: "leasehold", store, %name, %error, until, "a lock can't be given back, and is tried again");
            });
        }
    }

    fn end(&self, left: bool, now: Tick, store: &str) {
        let mut failing = lock(&self.0);
        failing.now -= 1;
        failing.given_up += usize::from(!left);
        if let (0, Some(since)) = (failing.now, failing.since) {
            let (after, given_up) = (now.since(since), failing.given_up);
            if failing.told {
                contain_panic(|| {
                    tracing::info!(target: "leasehold", store, ?after, given_up, "no lock is left that can't be given back");
                });
            }
            *failing = Failing::default();
        }
    }
}

/// Whoever waits for a release is told what was in its way, if that is known. The release itself goes on.
pub(super) fn not_confirmed(limit: Duration, cause: Option<Error>) -> Error {
    let silence = || {
        Error::new(Kind::Unavailable, "the store did not confirm the release")
            .advice("it is tried again in the background for as long as the lock would be held")
    };
    cause.unwrap_or_else(silence).tried_for(limit)
}

/// The first try at a release that somebody waits for. It needs no task of its own, unless the one who waits goes away or does not look.
struct FirstTry<'a> {
    engine: &'a Arc<Engine>,
    release: Arc<Release>,
}

impl<'a> FirstTry<'a> {
    fn new(
        engine: &'a Arc<Engine>,
        going: Going,
        request: Pending<Left>,
        carried: Where,
        limit: Duration,
    ) -> Self {
        let release = Release::new(going, request, carried, limit);
        if engine.table.lend(release.clone()) {
            engine.keeper.notify_one();
        }
        FirstTry { engine, release }
    }
}

impl Future for FirstTry<'_> {
    type Output = Heard;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Heard> {
        if self.engine.is_forked() {
            return Poll::Ready(Heard::Elsewhere(Err(forked())));
        }
        if is_thread_ending() {
            // Nothing can be polled here but the answer of a task.
            if let Some(request) = self.release.take() {
                self.engine.go_on_leaving(Neglected { release: self.release.clone(), request });
            }
            return self.release.poll(cx);
        }
        // Stores set timers and start tasks, and whoever polls us may run elsewhere.
        let _context = self.engine.background.enter();
        self.release.poll(cx)
    }
}

impl Drop for FirstTry<'_> {
    fn drop(&mut self) {
        if self.engine.is_forked() {
            return std::mem::forget(self.release.clone());
        }
        if let Some(request) = self.release.take() {
            let (going, first) = (self.release.going.clone(), First::taken(request, self.release.carried));
            let departure = self.engine.departures.begin(&going.leave.name);
            let leaving = self.engine.clone().leave_until(first, going, Arc::default());
            self.engine.background.spawn_in_flight(async move {
                let _ = leaving.await;
                drop(departure);
            });
        }
    }
}
