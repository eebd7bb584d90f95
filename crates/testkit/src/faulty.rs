//! A store between a client and the real one, that fails by script or by seed.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::store::{
    Ask, Inbox, Joined, Leave, Left, Note, Pending, Presence, Renewal, Renewed, Session, Store, ready,
};
use leasehold_core::view::{Events, Snapshot};
use leasehold_core::{EntryId, Error, Kind, Name, Result, Token, Traits};
use tokio::sync::watch;
use tokio::time::sleep;

/// A call that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // They are the methods of `Store` and `Session`.
pub enum Op {
    Open,
    Join,
    Renew,
    Leave,
    Downgrade,
    SetLimit,
    Revoke,
    RequestRelease,
    Inspect,
    List,
    Watch,
    Close,
}

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and nothing happened.
    ErrorBefore,
    /// It is refused, so certainly nothing happened.
    Refused,
    /// It happened, and the answer is lost.
    ErrorAfter,
    /// It happens late.
    Delay(Duration),
    /// It happens in time, and the answer comes late.
    LateAnswer(Duration),
    /// It happens late, and the answer is lost.
    LateAndLost(Duration),
    /// It never happens, and no answer ever comes.
    Hang,
    /// It happens, and no answer ever comes.
    HangAfter,
}

impl Fault {
    /// How late the call happens, or its answer comes.
    pub fn late(self) -> Duration {
        match self {
            Fault::Delay(by) | Fault::LateAnswer(by) | Fault::LateAndLost(by) => by,
            _ => Duration::ZERO,
        }
    }
}

/// How a connection is cut. While it is, no note comes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Every call fails at once.
    Refused,
    /// No call is answered until the cut is healed; then those that waited fail.
    Silent,
}

/// How often a seeded [`Faulty`] fails, each in thousandths.
#[derive(Debug, Clone, Copy)]
pub struct Odds {
    /// [`Fault::ErrorBefore`].
    pub error_before: u32,
    /// [`Fault::ErrorAfter`].
    pub error_after: u32,
    /// A delay of up to `longest`, of the call or of its answer.
    pub delay: u32,
    /// A note that never arrives.
    pub lost_note: u32,
    /// The longest delay.
    pub longest: Duration,
}

/// A store that fails. Everything that goes right goes to the real one, at once and unchanged.
///
/// ```
/// # use std::sync::Arc;
/// use leasehold_testkit::faulty::{Fault, Faulty, Op};
/// # fn with(store: Arc<dyn leasehold_core::store::Store>) {
/// let store = Faulty::new(store);
/// store.next(Op::Join, Fault::ErrorAfter); // the next join: effect, then lost answer
/// # }
/// ```
pub struct Faulty {
    inner: Arc<dyn Store>,
    faults: Arc<Faults>,
}

struct Faults {
    plan: Mutex<Plan>,
    cut: watch::Sender<Option<Cut>>,
}

#[derive(Default)]
struct Plan {
    next: HashMap<Op, VecDeque<Fault>>,
    /// How many calls of any sort come before the one that fails.
    nth: Option<(usize, Fault)>,
    stepwise: Option<usize>,
    here: bool,
    lost_notes: usize,
    odds: Option<(Odds, u64)>,
    calls: HashMap<Op, usize>,
    notes_lost: usize,
}

impl Faulty {
    /// A store that works until it is told otherwise.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        let (cut, _) = watch::channel(None);
        Arc::new(Faulty { inner, faults: Arc::new(Faults { plan: Mutex::default(), cut }) })
    }

    /// A store that fails at random, the same way for the same seed and the same calls.
    pub fn seeded(inner: Arc<dyn Store>, seed: u64, odds: Odds) -> Arc<Self> {
        let store = Self::new(inner);
        store.faults.plan().odds = Some((odds, seed));
        store
    }

    /// From now on nothing fails at random.
    pub fn calm(&self) {
        self.faults.plan().odds = None;
    }

    /// The next call of this sort (after those already planned) fails this way.
    pub fn next(&self, op: Op, fault: Fault) {
        self.faults.plan().next.entry(op).or_default().push_back(fault);
    }

    /// What was planned and has not happened yet does not happen.
    pub fn forget(&self) {
        let mut plan = self.faults.plan();
        plan.next.clear();
        plan.lost_notes = 0;
    }

    /// The `n`-th call from now on (the next one is number 1), of whatever sort, fails this way.
    pub fn nth(&self, n: usize, fault: Fault) {
        self.faults.plan().nth = Some((n.saturating_sub(1), fault));
    }

    /// Takes back what was planned with [`nth`](Faulty::nth). Tells whether it has happened.
    pub fn end_nth(&self) -> bool {
        self.faults.plan().nth.take().is_none()
    }

    /// From now on every call is pending once before its effect and once before its answer, so that a future that makes it
    /// can be dropped at either moment. A join is pending for so many polls before its effect: with more than a few, others
    /// overtake it.
    pub fn stepwise(&self, join: usize) {
        self.faults.plan().stepwise = Some(join);
    }

    /// From now on the store has connections of the caller's runtime as well ([`Session::join_here`], [`Session::leave_here`]). Their
    /// calls count and fail like all others.
    pub fn here(&self) {
        self.faults.plan().here = true;
    }

    /// The next `count` notes never arrive.
    pub fn lose_notes(&self, count: usize) {
        self.faults.plan().lost_notes += count;
    }

    /// Cuts the connection.
    pub fn cut(&self, how: Cut) {
        self.faults.cut.send_replace(Some(how));
    }

    /// Heals a cut.
    pub fn heal(&self) {
        self.faults.cut.send_replace(None);
    }

    /// How many calls of this sort were made, those that failed included.
    pub fn calls(&self, op: Op) -> usize {
        self.faults.plan().calls.get(&op).copied().unwrap_or(0)
    }

    /// How many planned faults have not happened yet.
    pub fn planned(&self) -> usize {
        let plan = self.faults.plan();
        plan.next.values().map(VecDeque::len).sum::<usize>() + plan.lost_notes
    }

    /// How many notes were lost so far.
    pub fn notes_lost(&self) -> usize {
        self.faults.plan().notes_lost
    }
}

impl Faults {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call, or what is left of it.
    fn call<T: Send + 'static>(
        self: &Arc<Self>,
        op: Op,
        effect: impl FnOnce() -> Pending<T> + Send + 'static,
    ) -> Pending<T> {
        let (fault, stepwise) = self.plan().choose(op);
        let cut = *self.cut.borrow();
        if fault.is_none() && cut.is_none() && stepwise.is_none() {
            return effect();
        }
        let effect = move || -> Pending<T> {
            let Some(join) = stepwise else { return effect() };
            Box::pin(async move {
                for _ in 0..if op == Op::Join { join } else { 1 } {
                    pending_once().await;
                }
                let answer = effect().await;
                pending_once().await;
                answer
            })
        };
        let faults = self.clone();
        Box::pin(async move {
            match cut {
                Some(Cut::Refused) => return Err(failed(op, "the connection is cut")),
                Some(Cut::Silent) => {
                    let _ = faults.cut.subscribe().wait_for(Option::is_none).await;
                    return Err(failed(op, "no answer came"));
                }
                None => {}
            }
            match fault {
                None => effect().await,
                Some(Fault::ErrorBefore) => Err(failed(op, "it was not sent")),
                Some(Fault::Refused) => {
                    Err(Error::new(Kind::Refused, format!("an injected refusal of {op:?}")))
                }
                Some(Fault::ErrorAfter) => {
                    effect().await?;
                    Err(failed(op, "the answer was lost"))
                }
                Some(Fault::Delay(by)) => {
                    sleep(by).await;
                    effect().await
                }
                Some(Fault::LateAnswer(by)) => {
                    let answer = effect().await;
                    sleep(by).await;
                    answer
                }
                Some(Fault::LateAndLost(by)) => {
                    sleep(by).await;
                    effect().await?;
                    Err(failed(op, "the answer was lost"))
                }
                Some(Fault::Hang) => std::future::pending().await,
                Some(Fault::HangAfter) => {
                    let _answer = effect().await;
                    std::future::pending().await
                }
            }
        })
    }

    fn lets_a_note_through(&self) -> bool {
        let mut plan = self.plan();
        let lost = self.cut.borrow().is_some() || plan.loses_a_note();
        plan.notes_lost += usize::from(lost);
        !lost
    }
}

impl Plan {
    /// What goes wrong with this call, and whether it goes step by step.
    fn choose(&mut self, op: Op) -> (Option<Fault>, Option<usize>) {
        *self.calls.entry(op).or_default() += 1;
        (self.fault(op), self.stepwise)
    }

    fn fault(&mut self, op: Op) -> Option<Fault> {
        if let Some((before, fault)) = &mut self.nth {
            let fault = *fault;
            match before.checked_sub(1) {
                Some(fewer) => *before = fewer,
                None => {
                    self.nth = None;
                    return Some(fault);
                }
            }
        }
        if let Some(fault) = self.next.get_mut(&op).and_then(VecDeque::pop_front) {
            return Some(fault);
        }
        // A session that can't be opened or closed is no interesting run.
        if matches!(op, Op::Open | Op::Close) {
            return None;
        }
        let (odds, seed) = self.odds.as_mut()?;
        let mut dice = (random(seed) % 1000) as u32;
        let mut hits = |odds: u32| {
            let hit = dice < odds;
            dice = dice.wrapping_sub(odds);
            hit
        };
        if hits(odds.error_before) {
            return Some(Fault::ErrorBefore);
        }
        if hits(odds.error_after) {
            return Some(Fault::ErrorAfter);
        }
        if !hits(odds.delay) {
            return None;
        }
        let by = odds.longest.mul_f64((random(seed) % 1000) as f64 / 1000.0);
        Some(if random(seed).is_multiple_of(2) { Fault::Delay(by) } else { Fault::LateAnswer(by) })
    }

    fn loses_a_note(&mut self) -> bool {
        if self.lost_notes > 0 {
            self.lost_notes -= 1;
            return true;
        }
        self.odds.as_mut().is_some_and(|(odds, seed)| random(seed) % 1000 < u64::from(odds.lost_note))
    }
}

/// Pending at its first poll.
async fn pending_once() {
    let mut polled = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// SplitMix64: small, good enough, and the same everywhere.
pub fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn failed(op: Op, why: &str) -> Error {
    Error::new(Kind::Unavailable, format!("an injected fault at {op:?}: {why}"))
}

impl Store for Faulty {
    fn traits(&self) -> &'static Traits {
        self.inner.traits()
    }

    fn url(&self) -> String {
        self.inner.url()
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn open(self: Arc<Self>, me: Presence, inbox: Arc<dyn Inbox>) -> Pending<Arc<dyn Session>> {
        let faults = self.faults.clone();
        self.faults.clone().call(Op::Open, move || {
            let inbox = Arc::new(FaultyInbox { inbox, faults: faults.clone() });
            Box::pin(async move {
                let inner = self.inner.clone().open(me, inbox).await?;
                let closed = AtomicBool::new(false);
                Ok(Arc::new(FaultySession { inner, faults, closed }) as Arc<dyn Session>)
            })
        })
    }
}

struct FaultyInbox {
    inbox: Arc<dyn Inbox>,
    faults: Arc<Faults>,
}

impl Inbox for FaultyInbox {
    fn note(&self, note: Note) {
        if self.faults.lets_a_note_through() {
            self.inbox.note(note);
        }
    }

    fn session_gone(&self) {
        if self.faults.lets_a_note_through() {
            self.inbox.session_gone();
        }
    }
}

struct FaultySession {
    inner: Arc<dyn Session>,
    faults: Arc<Faults>,
    /// Once it is closed, nothing more is sent, as by every session that has a connection. What is on its way arrives.
    closed: AtomicBool,
}

impl FaultySession {
    fn call<T: Send + 'static>(
        &self,
        op: Op,
        effect: impl FnOnce(Arc<dyn Session>) -> Pending<T> + Send + 'static,
    ) -> Pending<T> {
        let inner = self.inner.clone();
        if op == Op::Close {
            self.closed.store(true, Ordering::SeqCst);
        } else if self.closed.load(Ordering::SeqCst) {
            return ready(Err(Error::new(Kind::Refused, "the session is closed")));
        }
        self.faults.call(op, move || effect(inner))
    }
}

impl Session for FaultySession {
    fn join(self: Arc<Self>, ask: Ask) -> Pending<Joined> {
        self.call(Op::Join, |s| s.join(ask))
    }

    fn join_here(&self, ask: &Ask) -> Option<Pending<Joined>> {
        let (here, ask) = (self.faults.plan().here, ask.clone());
        here.then(|| self.call(Op::Join, |s| s.join(ask)))
    }

    fn leave_here(&self, leave: &Leave) -> Option<Pending<Left>> {
        let (here, leave) = (self.faults.plan().here, leave.clone());
        here.then(|| self.call(Op::Leave, move |s| s.leave(leave)))
    }

    fn renew(self: Arc<Self>, batch: Vec<Renewal>) -> Pending<Vec<Result<Renewed>>> {
        self.call(Op::Renew, |s| s.renew(batch))
    }

    fn group(&self, name: &Name) -> u64 {
        self.inner.group(name)
    }

    fn leave(self: Arc<Self>, leave: Leave) -> Pending<Left> {
        self.call(Op::Leave, move |s| s.leave(leave))
    }

    fn downgrade(self: Arc<Self>, name: Name, id: EntryId) -> Pending<Left> {
        self.call(Op::Downgrade, move |s| s.downgrade(name, id))
    }

    fn set_limit(self: Arc<Self>, name: Name, limit: u32) -> Pending<()> {
        self.call(Op::SetLimit, move |s| s.set_limit(name, limit))
    }

    fn revoke(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        self.call(Op::Revoke, move |s| s.revoke(name, expected))
    }

    fn request_release(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        self.call(Op::RequestRelease, move |s| s.request_release(name, expected))
    }

    fn inspect(self: Arc<Self>, name: Name) -> Pending<Snapshot> {
        self.call(Op::Inspect, |s| s.inspect(name))
    }

    fn list(self: Arc<Self>, prefix: String, after: Option<Name>, most: usize) -> Pending<Vec<Snapshot>> {
        self.call(Op::List, move |s| s.list(prefix, after, most))
    }

    fn watch(self: Arc<Self>, prefix: String) -> Pending<Events> {
        self.call(Op::Watch, |s| s.watch(prefix))
    }

    fn close(self: Arc<Self>) -> Pending<()> {
        self.call(Op::Close, |s| s.close())
    }
}
