//! Every public async operation, dropped at every poll and with every store call failing, beside others that hold and wait.
//!
//! What a process believes and what the store holds must agree after every operation that is cancelled at any poll or answered
//! by any error. A cell of the matrix is one operation, one situation (who holds, who waits), one moment at which the future is
//! dropped, or one store call that fails, or both. After it:
//!
//! - all grants went together by the rule, and each had an entry in the store's holders ([`Registry`]);
//! - a try answers;
//! - all that wait get in;
//! - nothing is left at the store while the clients live;
//! - the same client can take the lock again.
//!
//! # Layout
//!
//! - [`operations`]: the rows: every public async operation.
//! - [`company`]: who holds and who waits meanwhile.
//! - [`drive`]: polling by hand.
//! - [`sweep`]: the situations, and the loops over cuts and faults.
//! - this file: one cell.

pub mod company;
pub mod drive;
pub mod operations;
pub mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Client, Part};
use leasehold_core::store::Store;
use leasehold_core::{Kind, Result, Want};
use tokio::time::{Instant, sleep, timeout};

use crate::faulty::{Fault, Faulty};
use crate::registry::{Hold, Registry, Stay, Who};
use company::{Company, Member};
use drive::Stepped;
use operations::{Operation, Shape};

/// A future on the heap.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Who is there when an operation begins.
#[derive(Debug, Clone)]
pub struct Situation {
    /// Who holds the lock. Gives it back after the first poll.
    pub holder: Option<Member>,
    /// Whether the holder was asked to.
    pub asked: bool,
    /// Who waits.
    pub company: Vec<Member>,
    /// Whether they were there before the operation began; else they come after its first poll.
    pub before: bool,
}

/// What everything in a cell shares.
#[derive(Clone)]
pub struct Cell {
    /// The client that runs the operation.
    pub actor: Client,
    /// Another one.
    pub other: Client,
    /// One that only looks.
    pub observer: Client,
    /// The store, as the actor sees it.
    pub store: Arc<dyn Store>,
    /// The lock, which is also the only stripe of `base`.
    pub name: String,
    /// What the names of the cell begin with.
    pub base: String,
    /// What is believed.
    pub registry: Registry,
    /// How long anything may take that should happen soon.
    pub limit: Duration,
    /// Whether a store call fails.
    pub faulty: bool,
    /// Whether the operation ends the actor.
    pub closes: bool,
    /// Whether the operation takes the lock away.
    pub revokes: bool,
}

impl Cell {
    /// Names for a cell: the only stripe of a striped lock.
    pub fn named(base: String) -> (String, String) {
        (format!("{base}[0/1]"), base)
    }

    /// Another lock, for operations that want two.
    fn second(&self) -> String {
        format!("{}+", self.name)
    }
}

/// What happens to an operation in a cell.
#[derive(Debug, Clone, Copy, Default)]
pub struct Injury {
    /// It is dropped before this step; never if `None`.
    pub cut: Option<usize>,
    /// The n-th store call from its first poll on fails this way.
    pub fault: Option<(usize, Fault)>,
}

/// How a cell went.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    /// Whether the future was dropped before its end.
    pub cut: bool,
    /// Whether the planned fault happened.
    pub failed: bool,
    /// How often the future was polled.
    pub polls: usize,
}

/// How many cells were run, and what was wrong.
#[derive(Debug, Default)]
pub struct Tally {
    /// Operations that were driven.
    pub operations: BTreeSet<String>,
    /// Situations of operations.
    pub situations: usize,
    /// Cells.
    pub cells: usize,
    /// Cells in which the future was dropped.
    pub cuts: usize,
    /// Cells in which a store call failed.
    pub faults: usize,
    /// Polls by hand.
    pub polls: usize,
    /// What was wrong: how often, and the first of it, for each operation.
    pub wrong: BTreeMap<String, (usize, String)>,
}

impl Tally {
    /// Counts one cell.
    fn count(
        &mut self,
        operation: &Operation,
        situation: &Situation,
        injury: Injury,
        (ran, wrong): (Ran, Vec<String>),
    ) -> Ran {
        self.cells += 1;
        self.cuts += usize::from(ran.cut);
        self.faults += usize::from(ran.failed);
        self.polls += ran.polls;
        if let Some(first) = wrong.first() {
            let text = format!("{situation:?} with {injury:?}:\n{first}");
            self.wrong.entry(operation.to_string()).or_insert((0, text)).0 += 1;
        }
        ran
    }

    /// Adds up.
    pub fn add(&mut self, more: Tally) {
        self.operations.extend(more.operations);
        self.situations += more.situations;
        self.cells += more.cells;
        self.cuts += more.cuts;
        self.faults += more.faults;
        self.polls += more.polls;
        for (operation, (count, first)) in more.wrong {
            self.wrong.entry(operation).or_insert((0, first)).0 += count;
        }
    }

    /// Says how much was driven, and panics if anything was wrong, or if there were fewer operations or cells than this: a
    /// matrix that is empty by mistake shows nothing.
    #[allow(clippy::print_stdout)] // Seen with --nocapture.
    pub fn report(&self, what: &str, operations: usize, cells: usize) {
        println!("{what}: {self}");
        let enough = self.operations.len() >= operations && self.cells >= cells;
        assert!(enough || !self.wrong.is_empty(), "{what}: too little was driven: {self}");
        if self.wrong.is_empty() {
            return;
        }
        let mut text = String::new();
        for (operation, (count, first)) in &self.wrong {
            let _ = writeln!(text, "\n== {operation}: wrong in {count} situations, for example {first}");
        }
        panic!("{self}{text}");
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (operations, Tally { situations, cells, cuts, faults, polls, .. }) =
            (self.operations.len(), self);
        write!(
            f,
            "{operations} operations in {situations} situations: {cells} cells, {cuts} with a future dropped, {faults} with a \
             failed call, {polls} polls"
        )
    }
}

/// Runs one cell. `None` if it could not begin because the machine stood still for longer than the actor's patience: it has to be
/// run again.
pub async fn run(
    cell: &Cell,
    faulty: Option<&Faulty>,
    operation: &Operation,
    situation: &Situation,
    injury: Injury,
) -> Option<Ran> {
    let whole =
        Attempt { cell, faulty, operation, situation, injury, company: Company::default(), holder: None };
    // Everything inside has a limit of its own; this one catches what has not.
    let limit = cell.limit * 6;
    match timeout(limit, whole.run()).await {
        Ok(ran) => ran,
        Err(_) => {
            cell.registry.wrong(&cell.name, format!("the cell does not end within {limit:?}"));
            Some(Ran { cut: false, failed: false, polls: 0 })
        }
    }
}

struct Attempt<'a> {
    cell: &'a Cell,
    faulty: Option<&'a Faulty>,
    operation: &'a Operation,
    situation: &'a Situation,
    injury: Injury,
    company: Company,
    holder: Option<Stay>,
}

impl Attempt<'_> {
    async fn run(mut self) -> Option<Ran> {
        let cell = self.cell;
        let future = self.prepare().await?;
        if let (Some(faulty), Some((n, fault))) = (self.faulty, self.injury.fault) {
            faulty.nth(n, fault);
        }
        let mut future = Stepped::new(future);
        let output = self.drive(&mut future).await;
        let polls = future.polls();
        let cut = output.is_none();
        drop(future);
        cell.registry.say(&cell.name, if cut { "the operation is dropped" } else { "the operation is done" });
        let taken = self.taken(output).await;
        if !self.situation.before {
            // It may have been dropped before they came.
            self.others_arrive().await;
        }
        if self.operation.shape != Shape::Try {
            self.holder_releases();
        }
        sleep(Duration::from_millis(1)).await;
        let failed = self.faulty.is_none_or(Faulty::end_nth) && self.injury.fault.is_some();
        self.tries_answer(polls + self.injury.cut.unwrap_or(0)).await;
        self.holder_releases();
        for (at, stay) in taken.into_iter().enumerate() {
            if at % 2 == polls % 2 {
                drop(stay.leave().await);
            } else {
                company::leave(cell, "the operation", stay).await;
            }
        }
        if let Err(missing) = self.company.gone(cell.limit).await {
            let shown = cell.observer.inspect(&cell.name).await;
            cell.registry
                .wrong(&cell.name, format!("{missing} that wait are not let in; the store shows {shown:#?}"));
        }
        // What happens late must not leave anything behind either.
        sleep(self.injury.fault.map_or(Duration::ZERO, |(_, fault)| fault.late())).await;
        self.can_be_taken_again().await;
        self.nothing_is_left().await;
        Some(Ran { cut, failed, polls })
    }

    /// Who holds, who waits before, and what the operation itself needs.
    async fn prepare(&mut self) -> Option<Boxed<Result<Vec<Hold>>>> {
        let cell = self.cell;
        let prepared = async {
            if let Some(holder) = self.situation.holder {
                self.holder = Some(holder.hold(cell).await?);
                if self.situation.asked {
                    cell.observer.request_release(&cell.name, None).await?;
                }
            }
            self.operation.begin(cell).await
        };
        let prepared = match timeout(cell.limit, prepared).await {
            Ok(Ok(future)) => future,
            Ok(Err(error)) if cell.faulty && error.kind() == Kind::Unavailable => return None,
            Ok(Err(error)) => {
                cell.registry.wrong(&cell.name, format!("it can't be prepared: {error}"));
                return Some(Box::pin(std::future::ready(Ok(Vec::new()))));
            }
            Err(_) => {
                cell.registry.wrong(&cell.name, "it can't be prepared in time");
                return Some(Box::pin(std::future::ready(Ok(Vec::new()))));
            }
        };
        if self.situation.before {
            self.others_arrive().await;
        }
        Some(prepared)
    }

    async fn others_arrive(&mut self) {
        self.company.arrive(self.cell, &self.situation.company).await;
    }

    fn holder_releases(&mut self) {
        if let Some(stay) = self.holder.take() {
            self.company.release(self.cell, stay);
        }
    }

    /// Polls the future until it is done, or to be dropped. The others act between its first poll and its second.
    async fn drive(&mut self, future: &mut Stepped<Result<Vec<Hold>>>) -> Option<Result<Vec<Hold>>> {
        let cell = self.cell;
        for step in 0.. {
            if self.injury.cut == Some(step) {
                return None;
            }
            match step {
                1 if !self.situation.before => self.others_arrive().await,
                // A try answers whether or not the holder goes.
                2 if self.operation.shape != Shape::Try => {
                    self.holder_releases();
                    future_settles().await;
                }
                1 | 2 => {}
                0 => {
                    if let Some(output) = future.poll() {
                        return Some(output);
                    }
                }
                _ => {
                    let patience =
                        if self.operation.endless() { Duration::from_millis(20) } else { cell.limit };
                    if !future.woken(patience).await {
                        if !self.operation.endless() {
                            let shown = cell.observer.inspect(&cell.name).await;
                            let wrong = format!("the operation does not answer; the store shows {shown:#?}");
                            cell.registry.wrong(&cell.name, wrong);
                        }
                        return Some(Ok(Vec::new()));
                    }
                    if let Some(output) = future.poll() {
                        return Some(output);
                    }
                }
            }
        }
        None
    }

    /// What the operation got is believed to be held.
    async fn taken(&self, output: Option<Result<Vec<Hold>>>) -> Vec<Stay> {
        let cell = self.cell;
        let holds = match output {
            None => return Vec::new(),
            Some(Ok(holds)) => holds,
            Some(Err(error)) => {
                let closed = cell.closes && error.kind() == Kind::Refused;
                if !cell.faulty && !closed {
                    cell.registry.wrong(&cell.name, format!("the operation failed: {error}"));
                }
                return Vec::new();
            }
        };
        let who = Who { label: "the operation".to_owned(), session: cell.actor.session(), owner: None };
        let stays: Vec<Stay> = holds.into_iter().map(|hold| cell.registry.enter(&who, hold)).collect();
        for stay in &stays {
            company::compare(cell, stay).await;
        }
        stays
    }

    /// A try of each client, in the middle of it all.
    async fn tries_answer(&self, which: usize) {
        let cell = self.cell;
        for (client, label) in [(&cell.actor, "local try"), (&cell.other, "foreign try")] {
            let (rwlock, mutex) = (client.rwlock(&cell.name), client.mutex(&cell.name));
            let multi = client.multi([Part::mutex(&cell.name)]);
            let which = if cell.actor.traits().shared { which % 4 } else { 2 + which % 2 };
            let tried: Boxed<Result<Option<Hold>>> = Box::pin(async move {
                let read = |guard| Hold::Guard(guard, Want::Shared);
                Ok(match which {
                    0 => rwlock.try_read().await?.map(read),
                    1 => rwlock.read_within(Duration::ZERO).await?.map(read),
                    2 => multi.try_lock().await?.map(Hold::Multi),
                    _ => mutex.try_lock().await?.map(|guard| Hold::Guard(guard, Want::Exclusive)),
                })
            });
            match timeout(cell.limit, tried).await {
                Ok(Ok(Some(hold))) => {
                    let who = Who { label: label.to_owned(), session: client.session(), owner: None };
                    company::leave(cell, label, cell.registry.enter(&who, hold)).await;
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => {
                    let closed = cell.closes && error.kind() == Kind::Refused;
                    if !cell.faulty && !closed {
                        cell.registry.wrong(&cell.name, format!("a {label} failed: {error}"));
                    }
                }
                Err(_) => {
                    let shown = cell.observer.inspect(&cell.name).await;
                    let wrong = format!("a {label} does not answer; the store shows {shown:#?}");
                    cell.registry.wrong(&cell.name, wrong);
                }
            }
        }
    }

    async fn nothing_is_left(&self) {
        let (cell, deadline) = (self.cell, Instant::now() + self.cell.limit);
        for name in [cell.name.clone(), cell.second()] {
            let mut pauses = pauses();
            loop {
                match cell.observer.inspect(&name).await {
                    Ok(shown) if shown.holders.is_empty() && shown.waiters.is_empty() => break,
                    shown if Instant::now() > deadline => {
                        return cell.registry.wrong(&cell.name, format!("something is left: {shown:#?}"));
                    }
                    _ => sleep(pauses()).await,
                }
            }
        }
    }

    async fn can_be_taken_again(&self) {
        let cell = self.cell;
        for client in [&cell.actor, &cell.other] {
            let (began, mut pauses) = (Instant::now(), pauses());
            loop {
                match timeout(cell.limit, client.mutex(&cell.name).try_lock()).await {
                    Ok(Ok(Some(guard))) => {
                        let released = guard.release().await;
                        if let Err(error) = released
                            && !cell.faulty
                        {
                            cell.registry.wrong(&cell.name, format!("the last release failed: {error}"));
                        }
                    }
                    Ok(Err(error)) if cell.closes && error.kind() == Kind::Refused => {}
                    // A request of a claim that was dropped may arrive late, and is taken back then.
                    Ok(Ok(None)) if began.elapsed() < cell.limit => {
                        sleep(pauses()).await;
                        continue;
                    }
                    // The actor's patience is short in cells with faults, and the machine may have stood still for longer.
                    Ok(Err(_)) if cell.faulty && began.elapsed() < cell.limit => continue,
                    other => {
                        cell.registry.wrong(&cell.name, format!("a free lock can't be taken: {other:?}"))
                    }
                }
                break;
            }
        }
    }
}

/// How long to wait between two looks, longer each time: thousands of cells wait at the same time.
fn pauses() -> impl FnMut() -> Duration {
    let mut next = Duration::from_millis(1);
    move || {
        let pause = next;
        next = (next * 2).min(Duration::from_millis(100));
        pause
    }
}

/// Lets the tasks that were started just now run.
async fn future_settles() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}
