//! Steps that wait for a connection go together.
//!
//! A transaction has a price of its own, whatever it does: the way to the database and back, and the commit, which waits for the disk. A
//! process with many claims and releases under way pays it once for up to [`MOST`] of them.
//!
//! Nobody waits for company. While a connection is free, a step goes out alone, at once. While none is, steps are put down, and whoever is
//! done with a connection sees that a task takes them. Where there was company the last time there will be again: then
//! steps are put down too while a connection is free, and taken as soon as those that are ready to run have run. No timer is in it.
//!
//! The transaction does only what needs no decision: to take a free lock, and to give one back that nobody waits for. It goes through
//! the locks in the order of their names, as everybody does who locks several rows, so no two wait for each other. Every answer, error
//! and doubt is that of one step:
//!
//! - what is refused as a whole had no effect, and each is tried alone;
//! - a lost answer is unknown for each, and each is asked for again by its id.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use leasehold_core::{Error, Kind, Result, Retry};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::backend::{Backend, Step, Stepped};
use crate::desk::Desk;

/// How many go in one transaction: whoever else wants one of their rows waits for all of them.
const MOST: usize = 32;

/// As few are not divided into two transactions: each has its price.
const LEAST: usize = 8;

/// How many go out alone after a transaction of which most were undone: locks that others want too gain nothing by company.
const APART: usize = 256;

/// Steps on their way out.
pub(crate) struct Outbox {
    runtime: Handle,
    lanes: usize,
    state: Mutex<State>,
    /// None is put down or under way.
    settled: Notify,
}

#[derive(Default)]
struct State {
    /// Put down, to be taken by the next transaction.
    waiting: Vec<Sent>,
    /// A task comes for them.
    called: bool,
    /// Transactions under way.
    busy: usize,
    /// The last time there were several: there will be again.
    crowded: bool,
    /// So many are to go out alone.
    apart: usize,
}

/// A step that somebody waits for.
struct Sent {
    step: Step,
    answer: oneshot::Sender<Result<Stepped>>,
}

/// How a step goes out.
enum Way<B: Backend> {
    Alone(Step, Busy<B>),
    Together(oneshot::Receiver<Result<Stepped>>),
}

impl Outbox {
    /// Transactions go out from tasks of this runtime, over so many connections.
    pub(crate) fn new(runtime: Handle, lanes: usize) -> Self {
        Outbox { runtime, lanes, state: Mutex::default(), settled: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all that was begun is answered.
    pub(crate) async fn settled(&self) {
        let mut settled = pin!(self.settled.notified());
        loop {
            settled.as_mut().enable();
            if self.state().is_settled() {
                return;
            }
            settled.as_mut().await;
            settled.set(self.settled.notified());
        }
    }
}

impl State {
    fn is_settled(&self) -> bool {
        self.busy == 0 && self.waiting.is_empty()
    }

    /// Takes what goes in the next transaction: about half of what waits, so that the database works on the one half while we work on
    /// the other. One step for each lock, in the order of their names.
    fn take(&mut self) -> Vec<Sent> {
        let most = self.waiting.len().div_ceil(2).clamp(LEAST, MOST);
        let mut taken: Vec<Sent> = Vec::with_capacity(most.min(self.waiting.len()));
        let mut names = HashSet::new();
        for sent in std::mem::take(&mut self.waiting) {
            if taken.len() < most && names.insert(sent.step.name().clone()) {
                taken.push(sent);
            } else {
                self.waiting.push(sent);
            }
        }
        taken.sort_by(|a, b| a.step.name().cmp(b.step.name()));
        self.crowded = taken.len() > 1;
        taken
    }
}

/// A transaction under way. What was put down meanwhile goes when it is done.
struct Busy<B: Backend>(Arc<Desk<B>>);

impl<B: Backend> Drop for Busy<B> {
    fn drop(&mut self) {
        let mut state = self.0.outbox.state();
        state.busy -= 1;
        if state.is_settled() {
            drop(state);
            self.0.outbox.settled.notify_waiters();
        } else {
            self.0.call(state);
        }
    }
}

/// Takes what was put down to the database.
struct Courier<B: Backend> {
    desk: Arc<Desk<B>>,
    came: bool,
}

impl<B: Backend> Courier<B> {
    async fn run(mut self) {
        // A new task may be the next to run. After this, it runs when the others have.
        tokio::task::yield_now().await;
        self.came = true;
        self.desk.outbox.state().called = false;
        while let Some((sent, busy)) = self.desk.begin() {
            tokio::spawn(async move {
                busy.0.carry(sent).await;
            });
        }
    }
}

impl<B: Backend> Drop for Courier<B> {
    /// A courier that never came, because its runtime was shut down, lets nobody wait for it.
    fn drop(&mut self) {
        if !self.came {
            let mut state = self.desk.outbox.state();
            state.called = false;
            let never_sent = std::mem::take(&mut state.waiting);
            drop(state);
            drop(never_sent);
            self.desk.outbox.settled.notify_waiters();
        }
    }
}

impl<B: Backend> Desk<B> {
    /// Does a step, alone or with others. Once it was polled it goes out, even if it is dropped.
    pub(crate) async fn step(self: &Arc<Self>, step: Step) -> Result<Stepped> {
        match self.put_down(step) {
            Way::Alone(step, _busy) => self.backend.step(&step).await,
            Way::Together(answered) => answered.await.unwrap_or_else(|_| {
                Err(Error::new(Kind::Unavailable, "the runtime was shut down").retry(Retry::SameId))
            }),
        }
    }

    /// Puts a step where the next transaction takes it from, if it goes with others.
    fn put_down(self: &Arc<Self>, step: Step) -> Way<B> {
        let mut state = self.outbox.state();
        let free = state.busy < self.outbox.lanes && state.waiting.is_empty() && !state.crowded;
        if free || state.apart > 0 {
            state.apart = state.apart.saturating_sub(1);
            state.busy += 1;
            drop(state);
            return Way::Alone(step, Busy(self.clone()));
        }
        let (answer, answered) = oneshot::channel();
        state.waiting.push(Sent { step, answer });
        self.call(state);
        Way::Together(answered)
    }

    /// Has a task come for what was put down, if there is a connection for it.
    fn call(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.called || state.waiting.is_empty() || state.busy >= self.outbox.lanes {
            return;
        }
        state.called = true;
        drop(state);
        self.outbox.runtime.spawn(Courier { desk: self.clone(), came: false }.run());
    }

    /// Begins a transaction with what was put down, if there is a connection for it.
    fn begin(self: &Arc<Self>) -> Option<(Vec<Sent>, Busy<B>)> {
        let mut state = self.outbox.state();
        if state.waiting.is_empty() || state.busy >= self.outbox.lanes {
            return None;
        }
        state.busy += 1;
        let sent = state.take();
        drop(state);
        Some((sent, Busy(self.clone())))
    }

    /// Does what goes in one transaction, and hands out the answers.
    async fn carry(&self, sent: Vec<Sent>) {
        let (steps, answers): (Vec<Step>, Vec<_>) =
            sent.into_iter().map(|Sent { step, answer }| (step, answer)).unzip();
        let outcomes = match self.all(&steps).await {
            Ok(outcomes) => outcomes.into_iter().map(|outcome| outcome.map(Ok)).collect(),
            // It is not known to have been done, or can't be done now: so it is with each.
            Err(error) if error.kind() == Kind::Unavailable => vec![Some(Err(error)); steps.len()],
            // The database does not like it as a whole.
            Err(_) => vec![None; steps.len()],
        };
        let each = steps.iter().zip(outcomes).zip(answers).map(|((step, outcome), answer)| async {
            let outcome = match outcome {
                Some(outcome) => outcome,
                None => self.backend.step(step).await,
            };
            // Whoever asked may be gone, with its runtime.
            let _ = answer.send(outcome);
        });
        join_all(each).await;
    }

    /// Does these in one transaction, and sees whether that was worth it.
    async fn all(&self, steps: &[Step]) -> Result<Vec<Option<Stepped>>> {
        if let [_] = steps {
            return Ok(vec![None]);
        }
        let outcomes = self.backend.steps(steps).await?;
        let undone = |outcome: &&Option<Stepped>| matches!(outcome, None | Some(Stepped::Undone));
        if outcomes.iter().filter(undone).count() * 2 > steps.len() {
            self.outbox.state().apart = APART;
        }
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{EntryId, Name};

    use super::*;
    use crate::backend::Departing;

    fn state(names: impl IntoIterator<Item = usize>) -> State {
        let sent = |n: usize| {
            let name = Name::new(format!("{n:02}")).unwrap();
            let step = Step::Depart(Departing { name, id: EntryId(n as u128), used: None });
            Sent { step, answer: oneshot::channel().0 }
        };
        State { waiting: names.into_iter().map(sent).collect(), ..State::default() }
    }

    fn names(sent: &[Sent]) -> Vec<String> {
        sent.iter().map(|sent| sent.step.name().as_str().to_owned()).collect()
    }

    #[test]
    fn about_half_of_what_waits_goes_together_but_not_too_many_and_not_too_few() {
        for (waiting, taken) in [(1, 1), (2, 2), (8, 8), (11, 8), (40, 20), (64, 32), (90, 32)] {
            let mut state = state(0..waiting);
            assert_eq!(state.take().len(), taken, "of {waiting}");
            assert_eq!((state.waiting.len(), state.crowded), (waiting - taken, taken > 1));
        }
    }

    #[test]
    fn a_lock_is_in_a_transaction_once_and_its_steps_stay_in_order() {
        let mut state = state([3, 1, 3, 2, 1, 3]);
        assert_eq!(names(&state.take()), ["01", "02", "03"]);
        assert_eq!(names(&state.waiting), ["03", "01", "03"]);
        assert_eq!(names(&state.take()), ["01", "03"]);
        assert_eq!(names(&state.take()), ["03"]);
        assert!(state.is_settled());
    }
}
