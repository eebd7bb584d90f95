//! Requests that are ready at the same moment go to the server in one call.
//!
//! A script has a price of its own, whatever it does: to be entered, to read the clock, to be parsed and answered. A process with many
//! claims and releases under way pays it once for up to [`MOST`] of them (`scripts/many.lua`).
//!
//! Nobody waits for company. Where few are under way each goes out alone, at once. Where many are, a request is put down, and a task takes all
//! that lie there as soon as those that are ready to run have run: no timer, and no waiting for answers.
//!
//! What waits for one call at a time waits for the server, and then the server waits for it. So what lies there goes in at least two
//! calls, if it is enough for two, and their answers are handed out one after the other: the server works on the one while we work on
//! the other.
//!
//! The call does only what needs no decision: to take a free lock, and to give one back that nobody waits for. All else comes back
//! undone and goes out alone, as if it had never been in company. So every answer, error and doubt is that of one request:
//!
//! - what is refused as a whole had no effect, and each is asked for alone;
//! - a lost answer is unknown for each, and each is asked for again by its id.
//!
//! In a cluster names are in different slots, and a call is about one; so nothing goes together there.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::store::{Ask, Leave, Otherwise};
use leasehold_core::{Error, Kind, Lease, Result, Retry, Want};
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::keys::{Key, is_plain};
use crate::session::Desk;
use crate::state;
use crate::wire::{Call, Mark};

/// How many go in one call: the server does nothing else meanwhile. For so many it works 0.1 to 0.2 ms, by its instructions, and the gain
/// of more is small.
const MOST: usize = 32;

/// As few are not divided into two calls: each call has its price.
const LEAST: usize = 8;

/// With fewer under way, each goes out alone.
const FEW: usize = 4;

/// After so many turns of the runtime those that were answered have asked for the next, and the call with it is written: in the first
/// they ask, and in the second the [`Courier`] goes.
const TURNS: usize = 2;

/// How many go out alone after a call of which most came back undone: locks that others want too gain nothing by company.
const APART: usize = 256;

/// What can go together with others.
#[derive(Clone)]
pub(crate) enum Request {
    Join(Ask),
    Leave(Leave),
}

/// What came of a request: the answer of its script, and the connection that it came by.
type Answer = Result<(Value, Mark)>;

/// Requests on their way out.
pub(crate) struct Outbox {
    runtime: Handle,
    state: Mutex<State>,
    /// None is put down or in company.
    settled: Notify,
}

#[derive(Default)]
struct State {
    /// Put down, to be taken by the next call.
    waiting: Vec<Sent>,
    /// Went out alone, and not answered yet.
    alone: usize,
    /// Put down or gone out in company, and not answered yet.
    together: usize,
    /// The last time there were several: there will be again.
    crowded: bool,
    /// So many are to go out alone.
    apart: usize,
}

/// A request that somebody waits for.
struct Sent {
    key: Key,
    request: Request,
    answer: oneshot::Sender<Answer>,
}

/// How a request goes out.
enum Way {
    Alone(Request, Key),
    Together(oneshot::Receiver<Answer>),
}

/// What is the same for all claims of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Terms {
    want: Want,
    lease: Lease,
    place: Duration,
    otherwise: Otherwise,
}

/// What goes in one call.
struct Batch {
    terms: Option<Terms>,
    sent: Vec<Sent>,
}

impl Request {
    /// Whether the call can carry it at all.
    fn is_plain(&self) -> bool {
        match self {
            // A permit is never taken without looking at the others, and a name that is not its own key is a part of the record.
            Request::Join(ask) => !matches!(ask.want, Want::Permits { .. }) && is_plain(&ask.name),
            Request::Leave(_) => true,
        }
    }

    fn terms(&self) -> Option<Terms> {
        match self {
            Request::Join(Ask { want, lease, place, otherwise, .. }) => {
                Some(Terms { want: *want, lease: *lease, place: *place, otherwise: *otherwise })
            }
            Request::Leave(_) => None,
        }
    }
}

impl Batch {
    fn takes(&self, terms: Option<Terms>, most: usize) -> bool {
        self.sent.len() < most && (terms.is_none() || self.terms.is_none() || self.terms == terms)
    }

    /// As few as there can be, but two if that is worth it, in the order in which they came.
    fn all(waiting: Vec<Sent>) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        let most = waiting.len().div_ceil(2).clamp(LEAST, MOST);
        for sent in waiting {
            let terms = sent.request.terms();
            match batches.iter_mut().find(|batch| batch.takes(terms, most)) {
                Some(batch) => {
                    batch.terms = batch.terms.or(terms);
                    batch.sent.push(sent);
                }
                None => batches.push(Batch { terms, sent: vec![sent] }),
            }
        }
        batches
    }
}

impl Outbox {
    /// Calls go out from tasks of this runtime.
    pub(crate) fn new(runtime: Handle) -> Self {
        Outbox { runtime, state: Mutex::default(), settled: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was put down.
    fn take(&self) -> Vec<Sent> {
        let mut state = self.state();
        let waiting = std::mem::take(&mut state.waiting);
        state.crowded = waiting.len() > 1;
        waiting
    }

    /// Waits until all that went in company is answered.
    pub(crate) async fn settled(&self) {
        let mut settled = pin!(self.settled.notified());
        loop {
            settled.as_mut().enable();
            if self.state().together == 0 {
                return;
            }
            settled.as_mut().await;
            settled.set(self.settled.notified());
        }
    }
}

/// One that went out alone and is not answered yet.
struct Alone<'a>(&'a Outbox);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.state().alone -= 1;
    }
}

/// Some that are in company and not answered yet.
struct Together<'a>(&'a Outbox, usize);

impl Drop for Together<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.together -= self.1;
        if state.together == 0 {
            drop(state);
            self.0.settled.notify_waiters();
        }
    }
}

/// Takes what was put down to the server.
struct Courier {
    desk: Arc<Desk>,
    /// It took what was there.
    came: bool,
}

impl Courier {
    /// Sends what was put down, once all who are ready had the chance to put something down, and brings the answers.
    async fn run(mut self) {
        // A new task may be the next to run. After this, it runs when the others have.
        tokio::task::yield_now().await;
        self.came = true;
        let batches = Batch::all(self.desk.outbox.take());
        join_all(batches.into_iter().enumerate().map(|(before, batch)| self.desk.carry(batch, before))).await;
    }
}

impl Drop for Courier {
    /// A courier that never came, because its runtime was shut down, lets nobody wait for it.
    fn drop(&mut self) {
        if !self.came {
            let never_sent = self.desk.outbox.take();
            drop(Together(&self.desk.outbox, never_sent.len()));
        }
    }
}

impl Sent {
    fn answers(self, answer: Answer) {
        // Whoever asked may be gone, with its runtime.
        let _ = self.answer.send(answer);
    }
}

impl Desk {
    /// Sends a request, alone or with others, and waits for its answer. Ends when one call and, if that left it undone, another have had
    /// their time. Once it was polled it goes out, even if it is dropped.
    pub(crate) async fn send(self: &Arc<Self>, key: Key, request: Request) -> Answer {
        if self.store.config.is_cluster() || !request.is_plain() {
            return self.run_marked(self.lone_call(&request, &key)).await;
        }
        match self.put_down(request, key) {
            Way::Together(answered) => answered.await.unwrap_or_else(|_| {
                Err(Error::new(Kind::Unavailable, "the runtime was shut down").retry(Retry::SameId))
            }),
            Way::Alone(request, key) => {
                let _counted = Alone(&self.outbox);
                self.run_marked(self.lone_call(&request, &key)).await
            }
        }
    }

    /// Puts a request where the next call takes it from, if it goes with others; else it is counted as one that goes out alone.
    fn put_down(self: &Arc<Self>, request: Request, key: Key) -> Way {
        let mut state = self.outbox.state();
        let few = !state.crowded && state.alone + state.together < FEW;
        if state.apart > 0 || few {
            state.apart = state.apart.saturating_sub(1);
            state.alone += 1;
            return Way::Alone(request, key);
        }
        let (answer, answered) = oneshot::channel();
        state.together += 1;
        state.waiting.push(Sent { key, request, answer });
        if state.waiting.len() == 1 {
            drop(state);
            self.outbox.runtime.spawn(Courier { desk: self.clone(), came: false }.run());
        }
        Way::Together(answered)
    }

    /// Sends what goes in one call, and hands out the answers after those of so many calls before it.
    async fn carry(&self, Batch { sent, .. }: Batch, before: usize) {
        let _counted = Together(&self.outbox, sent.len());
        if sent.len() == 1 {
            return self.carry_alone(sent).await;
        }
        let answer = self.run_marked(self.call_of_many(&sent)).await;
        // Usually they come together. Nobody loses by it: those before would run first anyway.
        for _ in 0..before * TURNS {
            tokio::task::yield_now().await;
        }
        let undone = match answer {
            Ok((value, mark)) => self.answer_done(&value, mark, sent),
            // It is not known to have been done, or can't be done now: so it is with each.
            Err(error) if error.kind() == Kind::Unavailable => {
                return sent.into_iter().for_each(|sent| sent.answers(Err(error.clone())));
            }
            // The server does not like it as a whole, as one without memory that takes releases only.
            Err(_) => sent,
        };
        self.carry_alone(undone).await;
    }

    async fn carry_alone(&self, sent: Vec<Sent>) {
        let each = sent.into_iter().map(|sent| async {
            let answer = self.run_marked(self.lone_call(&sent.request, &sent.key)).await;
            sent.answers(answer);
        });
        join_all(each).await;
    }

    /// The call of one alone.
    fn lone_call(&self, request: &Request, key: &Key) -> Call {
        match request {
            Request::Join(ask) => self.join_call(ask, key),
            Request::Leave(leave) => self.leave_call(leave, key, "l"),
        }
    }

    /// The call of all of them.
    fn call_of_many(&self, sent: &[Sent]) -> Call {
        let keys: Vec<&str> = sent.iter().map(|sent| sent.key.text.as_str()).collect();
        let mut call = Call::script(&self.store.scripts.many, sent[0].key.slot, &keys);
        let mut terms = None;
        for Sent { request, .. } in sent {
            call = match request {
                Request::Join(ask) => {
                    terms = terms.or(Some(ask));
                    call.arg(ask.id.to_string())
                }
                Request::Leave(leave) => call.arg(state::leaving(leave)),
            };
        }
        match terms {
            Some(ask) => call.arg(self.terms(ask)).arg(self.kept(ask)),
            None => call,
        }
    }

    /// Answers those that were done, and gives the others back.
    fn answer_done(&self, value: &Value, mark: Mark, sent: Vec<Sent>) -> Vec<Sent> {
        let Some((first, undone)) = read(value, sent.len()) else {
            sent.into_iter().for_each(|sent| sent.answers(Err(state::unreadable(value))));
            return Vec::new();
        };
        if undone.len() * 2 > sent.len() {
            self.outbox.state().apart = APART;
        }
        let mut left = Vec::new();
        for (at, sent) in sent.into_iter().enumerate() {
            if undone.contains(&at) {
                left.push(sent);
                continue;
            }
            let value = match &sent.request {
                Request::Join(_) => first.clone(),
                Request::Leave(_) => Value::Int(1),
            };
            sent.answers(Ok((value, mark)));
        }
        left
    }
}

/// The answer of `many.lua` to so many requests: the first token of those that hold now, and which were not done.
pub(crate) fn read(value: &Value, count: usize) -> Option<(Value, Vec<usize>)> {
    match value {
        Value::Int(0) => Some((Value::Nil, (0..count).collect())),
        Value::BulkString(_) => Some((value.clone(), Vec::new())),
        Value::Array(items) => {
            let (first, numbers) = items.split_first()?;
            let at = |number| usize::try_from(state::number(number)?).ok()?.checked_sub(1);
            Some((first.clone(), numbers.iter().map(at).collect::<Option<_>>()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{EntryId, Name};

    use super::*;
    use crate::wire::Slot;

    fn sizes(count: usize) -> Vec<usize> {
        let sent = |n: usize| Sent {
            key: Key { text: n.to_string(), slot: Slot(0) },
            request: Request::Leave(Leave::new(Name::new("n").unwrap(), EntryId(n as u128))),
            answer: oneshot::channel().0,
        };
        let batches = Batch::all((0..count).map(sent).collect());
        let keys = batches.iter().flat_map(|batch| &batch.sent).map(|sent| sent.key.text.clone());
        assert_eq!(keys.collect::<Vec<_>>(), (0..count).map(|n| n.to_string()).collect::<Vec<_>>());
        batches.iter().map(|batch| batch.sent.len()).collect()
    }

    #[test]
    fn many_go_in_two_calls_so_that_the_server_works_while_we_do() {
        assert_eq!(sizes(2), [2]);
        assert_eq!(sizes(8), [8]);
        assert_eq!(sizes(11), [8, 3]);
        assert_eq!(sizes(40), [20, 20]);
        assert_eq!(sizes(64), [32, 32]);
        assert_eq!(sizes(70), [32, 32, 6]);
    }
}
