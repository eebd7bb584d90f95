//! How the store is asked: on the spot where it can answer there, else by whoever waits or in a task, and never for ever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_background::is_thread_ending;
use leasehold_core::store::{Pending, Renewal, Renewed, Session};
use leasehold_core::{Error, Kind, Result, Retry, Tick};

use super::{Engine, closed};
use crate::local::{Due, RETRY};
use crate::sync::{Mutex, lock};
use crate::telemetry;

/// How many entries one renewal request carries.
const BATCH: usize = 512;

/// A request that the store has answered on the spot, or not yet. What is pending was polled once with a waker that does
/// nothing; polling it again, in its task, registers the real one.
pub(super) enum Asked<T> {
    Answered(Result<T>),
    Pending(Pending<T>),
}

impl<T> Asked<T> {
    pub(super) fn new(mut request: Pending<T>) -> Self {
        match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Asked::Answered(answer),
            Poll::Pending => Asked::Pending(request),
        }
    }
}

impl Engine {
    /// Sends a request and looks once whether it is answered. A thread that is ending can poll nothing: there the
    /// request is sent by the background thread, when that polls it.
    pub(super) fn ask<T, F>(&self, request: F) -> Asked<T>
    where
        T: Send + 'static,
        F: FnOnce(Arc<dyn Session>) -> Pending<T> + Send + 'static,
    {
        let session = self.session.clone();
        if is_thread_ending() {
            return Asked::Pending(Box::pin(async move { request(session).await }));
        }
        let _context = self.background.enter();
        Asked::new(request(session))
    }

    /// Waits for an answer, but not for ever. The request itself goes on: it is never dropped half-way. The exit of the
    /// process does not wait for it: what gives a lock back does not come this way.
    pub(super) async fn answer_within<T: Send + 'static>(
        &self,
        time: Duration,
        request: Pending<T>,
    ) -> Result<T> {
        let answer = self.answer_in_time(time, request).await;
        answer.unwrap_or_else(|| {
            let silence = no_answer();
            Err(match self.said.last() {
                Some(error) => silence.because(error),
                None => silence,
            })
        })
    }

    /// The same: `None` if there is no answer by then.
    async fn answer_in_time<T: Send + 'static>(
        &self,
        time: Duration,
        request: Pending<T>,
    ) -> Option<Result<T>> {
        let panicked = |_| Err(Error::new(Kind::Unavailable, "the request to the store panicked"));
        let answer = self.background.timeout(time, self.background.spawn(request)).await;
        answer.map(|answer| answer.unwrap_or_else(panicked))
    }

    /// Takes note of whether the store answers.
    pub(super) fn heard<T>(&self, answer: &Result<T>, asked: Tick) {
        match answer {
            Ok(_) => {
                self.said.forget();
                self.outages.answered(|| self.now());
            }
            Err(error) if error.retry_advice() == Retry::Never => {}
            Err(error) => {
                self.said.note(error);
                self.outages.failed(error, asked, self.now(), || self.table.held());
            }
        }
    }

    /// Asks until there is an answer, or the patience is over. Only for what can be repeated.
    pub(crate) async fn ask_for<T: Send + 'static>(
        &self,
        patience: Duration,
        request: impl Fn(Arc<dyn Session>) -> Pending<T>,
    ) -> Result<T> {
        self.check_open()?;
        let first = {
            let _context = self.background.enter();
            Asked::Pending(request(self.session.clone()))
        };
        self.unless_forked(std::pin::pin!(self.ask_again(first, patience, request))).await
    }

    /// The same for what was asked once.
    pub(super) async fn ask_again<T: Send + 'static>(
        &self,
        first: Asked<T>,
        patience: Duration,
        request: impl Fn(Arc<dyn Session>) -> Pending<T>,
    ) -> Result<T> {
        let began = self.now();
        let give_up = began + patience;
        let mut tries = 0;
        let mut asked = first;
        let mut said = None;
        loop {
            // A first answer is worth the whole patience; later ones what is left of it.
            let sent = self.now();
            let left = give_up.since(sent).max(Duration::from_millis(10));
            let answer = match asked {
                Asked::Answered(answer) => answer,
                Asked::Pending(pending) => match self.answer_in_time(left, pending).await {
                    Some(answer) => answer,
                    // What the store said before tells more than that it has said nothing since.
                    None => Err(said.take().unwrap_or_else(no_answer)),
                },
            };
            self.heard(&answer, sent);
            let error = match answer {
                Ok(answer) => return Ok(answer),
                // Closed meanwhile: whatever the connections say then, that is why.
                Err(_) if self.is_closed() => return Err(self.placed(closed())),
                Err(error) if error.retry_advice() == Retry::Never => return Err(self.placed(error)),
                Err(error) => error,
            };
            let pause = RETRY.pause(tries, self.table.fresh_id().0 as u32);
            self.background.sleep(pause.min(give_up.since(self.now()))).await;
            if self.now() >= give_up {
                return Err(self.placed(error).tried_for(self.now().since(began)));
            }
            said = Some(error);
            tries += 1;
            let _context = self.background.enter();
            asked = Asked::Pending(request(self.session.clone()));
        }
    }

    /// Renews in batches, grouped by the store's nodes, each entry judged on its own.
    pub(super) fn renew(self: &Arc<Self>, due: Vec<Due>) {
        if due.is_empty() {
            return;
        }
        // A store may have to work to know the group of a name, so it is asked once for each.
        let mut groups: BTreeMap<u64, Vec<Due>> = BTreeMap::new();
        for due in due {
            groups.entry(self.session.group(&due.key.name)).or_default().push(due);
        }
        for group in groups.into_values() {
            for batch in group.chunks(BATCH) {
                let asked = self.now();
                let entries = batch.iter().map(|d| Renewal {
                    name: d.key.name.clone(),
                    id: d.id,
                    token: d.token,
                    more_tokens: d.more_tokens,
                });
                let entries = entries.collect();
                match self.ask(move |session| session.renew(entries)) {
                    Asked::Answered(answers) => self.renewed(batch, answers, asked),
                    Asked::Pending(answer) => {
                        let (engine, batch) = (self.clone(), batch.to_vec());
                        self.background.spawn(async move {
                            let answers = answer.await;
                            engine.renewed(&batch, answers, asked);
                        });
                    }
                }
            }
        }
    }

    fn renewed(self: &Arc<Self>, batch: &[Due], answers: Result<Vec<Result<Renewed>>>, asked: Tick) {
        let mut lost = Vec::new();
        let mut answers = match answers {
            Ok(answers) => answers.into_iter(),
            Err(error) => vec![Err(error); batch.len()].into_iter(),
        };
        for due in batch {
            let answer = answers
                .next()
                .unwrap_or_else(|| Err(Error::new(Kind::Unavailable, "a renewal was not answered")));
            telemetry::renewed(due, &answer);
            self.heard(&answer, asked);
            let visit = self.table.renewed(&due.key, due.id, answer, asked);
            if let Some(why) = self.settle(visit) {
                lost.push((&due.key.name, why));
            }
        }
        telemetry::lost(&lost, &self.outages);
    }
}

/// What is said of a store that is silent.
const NO_ANSWER: &str = "the store did not answer";

pub(super) fn no_answer() -> Error {
    Error::new(Kind::Unavailable, NO_ANSWER)
}

/// The last error of a store that fails, for those that give up while it is silent: what it said before tells them
/// more. Silence itself is not noted.
#[derive(Default)]
pub(super) struct Said {
    /// Whether there is one: a look at it costs next to nothing.
    any: AtomicBool,
    last: Mutex<Option<Error>>,
}

impl Said {
    pub(super) fn note(&self, error: &Error) {
        if error.what() != NO_ANSWER {
            let mut last = lock(&self.last);
            *last = Some(error.clone());
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// The store has answered.
    pub(super) fn forget(&self) {
        if self.any.load(Ordering::Relaxed) {
            let mut last = lock(&self.last);
            *last = None;
            self.any.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn last(&self) -> Option<Error> {
        lock(&self.last).clone()
    }
}
