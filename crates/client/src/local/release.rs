//! Releases that whoever waits for them polls.
//!
//! Like a claim's, the request belongs to the client: one that is polled once and then left alone (a buffered stream does that) must not keep what
//! the store holds for it, a connection or a turn, from all others. So each is written down when it begins, and goes on in a task of its own
//! if it is not answered within [`LENT`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::TryLockError;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::store::{Left, Pending};
use leasehold_core::{Result, Tick};

use super::LENT;
use super::leaving::Going;
use crate::engine::Where;
use crate::sync::{Arc, Mutex, lock};

/// A release that somebody waits for.
pub(crate) struct Release {
    pub(crate) going: Going,
    /// Whose connection carries the request.
    pub(crate) carried: Where,
    /// How long it is waited for when a task has taken it.
    pub(crate) limit: Duration,
    state: Mutex<State>,
}

enum State {
    /// Whoever waits for it polls it. That one is woken if it is taken.
    Lent(Pending<Left>, Option<Waker>),
    /// A task does, and tells whoever waits.
    Taken(Option<Waker>),
    /// The task was told.
    Answered(Result<Left>),
    /// Whoever waited was told.
    Over,
}

/// By whom the answer was heard.
pub(crate) enum Heard {
    /// By whoever waits for it: it was the first try.
    Here(Result<Left>),
    /// By a task, which has tried for as long as it was worth it.
    Elsewhere(Result<Left>),
}

impl Release {
    pub(crate) fn new(going: Going, request: Pending<Left>, carried: Where, limit: Duration) -> Arc<Self> {
        Arc::new(Release { going, carried, limit, state: Mutex::new(State::Lent(request, None)) })
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Heard> {
        let mut state = lock(&self.state);
        let heard = match &mut *state {
            State::Lent(request, waker) => match request.as_mut().poll(cx) {
                Poll::Ready(answer) => Heard::Here(answer),
                Poll::Pending => return waits(waker, cx),
            },
            State::Taken(waker) => return waits(waker, cx),
            State::Answered(answer) => Heard::Elsewhere(answer.clone()),
            State::Over => return Poll::Pending,
        };
        let over = std::mem::replace(&mut *state, State::Over);
        drop(state);
        drop(over);
        Poll::Ready(heard)
    }

    /// Takes the request from whoever polls it. `None` if it is answered, or was taken before.
    pub(crate) fn take(&self) -> Option<Pending<Left>> {
        Self::take_from(&mut lock(&self.state))
    }

    fn take_from(state: &mut State) -> Option<Pending<Left>> {
        match std::mem::replace(state, State::Over) {
            State::Lent(request, waker) => {
                *state = State::Taken(waker);
                Some(request)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// The task that took it has done what it could.
    pub(crate) fn answer(&self, answer: Result<Left>) {
        let was = std::mem::replace(&mut *lock(&self.state), State::Answered(answer));
        if let State::Taken(Some(waker)) = was {
            waker.wake();
        }
    }

    fn is_lent(&self) -> bool {
        match self.state.try_lock() {
            Ok(state) => matches!(*state, State::Lent(..)),
            Err(TryLockError::Poisoned(state)) => matches!(*state.into_inner(), State::Lent(..)),
            // It is being polled.
            Err(TryLockError::WouldBlock) => true,
        }
    }
}

/// Remembers whom to wake.
fn waits<T>(waker: &mut Option<Waker>, cx: &Context<'_>) -> Poll<T> {
    if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *waker = Some(cx.waker().clone());
    }
    Poll::Pending
}

/// A release that nobody has polled for long, with its request.
pub(crate) struct Neglected {
    pub(crate) release: Arc<Release>,
    pub(crate) request: Pending<Left>,
}

impl fmt::Debug for Neglected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Neglected").field(&self.release.going).finish()
    }
}

/// The releases that are lent, in the order in which they have to be looked at. Some that are over may be among them.
#[derive(Default)]
pub(crate) struct Releases(Mutex<VecDeque<(Tick, Arc<Release>)>>);

impl Releases {
    /// Writes one down. Tells when it has to be looked at.
    pub(crate) fn begin(&self, release: Arc<Release>, now: Tick) -> Tick {
        let due = now + LENT;
        let mut list = lock(&self.0);
        while list.front().is_some_and(|(_, release)| !release.is_lent()) {
            list.pop_front();
        }
        list.push_back((due, release));
        due
    }

    /// Takes out those that are due, and tells when to look again.
    pub(crate) fn look(&self, now: Tick) -> (Vec<Neglected>, Tick) {
        let mut list = lock(&self.0);
        let mut neglected = Vec::new();
        while let Some((due, release)) = list.front() {
            if *due > now && release.is_lent() {
                return (neglected, *due);
            }
            let Some((_, release)) = list.pop_front() else { break };
            let request = match release.state.try_lock() {
                Ok(mut state) => Release::take_from(&mut state),
                Err(TryLockError::Poisoned(state)) => Release::take_from(&mut state.into_inner()),
                // It is being polled at this moment, so it is in good hands.
                Err(TryLockError::WouldBlock) => {
                    list.push_back((now + LENT, release.clone()));
                    None
                }
            };
            neglected.extend(request.map(|request| Neglected { release, request }));
        }
        (neglected, Tick::NEVER)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use leasehold_core::store::Leave;
    use leasehold_core::{EntryId, Name};

    use super::*;

    fn release(request: Pending<Left>) -> Arc<Release> {
        let leave = Leave::new(Name::new("n").unwrap(), EntryId(1));
        Release::new(Going { leave, until: Tick::NEVER, listed: false }, request, Where::Background, LENT)
    }

    fn never() -> Pending<Left> {
        Box::pin(std::future::pending())
    }

    fn polled(release: &Release) -> Option<Heard> {
        match release.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(heard) => Some(heard),
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_is_not_answered_in_time_is_taken_once_and_answered_elsewhere() {
        let (releases, start) = (Releases::default(), Tick(1));
        let release = release(never());
        let due = releases.begin(release.clone(), start);
        assert!(polled(&release).is_none());
        let (early, next) = releases.look(start);
        assert!(early.is_empty() && next == due);
        assert_eq!(releases.look(due).0.len(), 1);
        assert!(releases.look(due + LENT).0.is_empty() && release.take().is_none());
        assert!(polled(&release).is_none());
        release.answer(Ok(Left::Done));
        assert!(matches!(polled(&release), Some(Heard::Elsewhere(Ok(Left::Done)))));
    }

    #[test]
    fn what_is_answered_is_not_looked_at() {
        let (releases, start) = (Releases::default(), Tick(1));
        let quick = release(Box::pin(async { Ok(Left::Done) }));
        releases.begin(quick.clone(), start);
        assert!(matches!(polled(&quick), Some(Heard::Here(Ok(Left::Done)))));
        let due = releases.begin(release(never()), start + Duration::from_millis(1));
        assert_eq!(lock(&releases.0).len(), 1, "what is over is forgotten");
        assert_eq!(releases.look(start).1, due);
    }
}
