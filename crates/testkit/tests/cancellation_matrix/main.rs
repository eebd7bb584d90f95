//! The cancellation matrix over the memory store behind one that fails: every operation in every situation, each cell on a store
//! of its own.

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Budget, Client, ClientBuilder};
use leasehold_core::store::Store;
use leasehold_memory::Memory;
use leasehold_testkit::Faulty;
use leasehold_testkit::cancellation_matrix::operations::{self, Operation, Shape};
use leasehold_testkit::cancellation_matrix::sweep::{
    Extent, FAULTS, PATIENCE, Situations, situations, sweep,
};
use leasehold_testkit::cancellation_matrix::{self, Boxed, Cell, Injury, Ran, Situation, Tally};
use leasehold_testkit::registry::Registry;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many cells are driven at a time: most of the time they wait.
const AT_ONCE: usize = 2000;

/// How long anything may take that should happen soon: longer than the time between two renewals, which make good a call that
/// hangs for ever, and shorter than a lease, which would end what was left behind.
const LIMIT: Duration = Duration::from_secs(20);

/// How long the holder of a lock that was taken away may believe otherwise.
const TOLD_WITHIN: Duration = Duration::from_secs(3);

/// A client that hands the lock on only once before it asks the store whether others wait.
const TIGHT: Budget = Budget { handovers: 1, time: Duration::from_secs(3600) };

/// How the actor queues locally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Local {
    Usual,
    Tight,
    Off,
    /// As usual, on a store with connections of the caller's runtime.
    Here,
}

impl Local {
    fn builder(self) -> ClientBuilder {
        match self {
            Local::Usual | Local::Here => Client::builder(),
            Local::Tight => Client::builder().local_queue(TIGHT),
            Local::Off => Client::builder().local_queue(Budget::off()),
        }
    }
}

async fn cell(
    local: Local,
    operation: Arc<Operation>,
    situation: Situation,
    injury: Injury,
) -> (Ran, Vec<String>) {
    loop {
        if let Some(done) = try_cell(local, &operation, &situation, injury).await {
            return done;
        }
    }
}

async fn try_cell(
    local: Local,
    operation: &Operation,
    situation: &Situation,
    injury: Injury,
) -> Option<(Ran, Vec<String>)> {
    let memory = Memory::new();
    let faulty = Faulty::new(memory.clone());
    let open =
        async |builder: ClientBuilder, store: Arc<dyn Store>| builder.open(store).await.expect("a client");
    if local == Local::Here {
        faulty.here();
    }
    let closes = operation.shape == Shape::Close;
    // A client that says goodbye may overtake its own claims.
    faulty.stepwise(if closes { 8 } else { 1 });
    // What a client that could not say goodbye held ends with its lease; everything else must be gone long before.
    let lease = Duration::from_secs(if closes && injury.fault.is_some() { 1 } else { 30 });
    let mut actor = local.builder().label("actor").default_lease(lease);
    if injury.fault.is_some() {
        actor = actor.retry_for(PATIENCE);
    }
    let (name, base) = Cell::named("x".to_owned());
    let cell = Cell {
        actor: open(actor, faulty.clone()).await,
        other: open(Client::builder().label("other"), memory.clone()).await,
        observer: open(Client::builder().label("observer"), memory).await,
        store: faulty.clone(),
        name,
        base,
        registry: Registry::new(TOLD_WITHIN),
        limit: LIMIT,
        faulty: injury.fault.is_some(),
        closes,
        revokes: operation.shape == Shape::Revoke,
    };
    let ran = cancellation_matrix::run(&cell, Some(&faulty), operation, situation, injury).await?;
    Some((ran, cell.registry.violations()))
}

/// A part of the matrix: on which client, how much of it, and which operations.
type Part = (Local, Extent, fn(&Operation) -> bool);

/// Drives some parts of the matrix. Unless only some operations are asked for, there must be many, in so many cells.
fn report(what: &str, parts: impl IntoIterator<Item = Part>, cells: usize) {
    let only = std::env::var("LEASEHOLD_MATRIX").unwrap_or_default();
    let (operations, cells) = if only.is_empty() { (110, cells) } else { (1, 1) };
    drive(parts, &only).report(what, operations, cells);
}

/// Drives some parts of the matrix, all at the same time.
fn drive(parts: impl IntoIterator<Item = Part>, only: &str) -> Tally {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let at_once = Arc::new(Semaphore::new(AT_ONCE));
        let (mut running, mut tally) = (JoinSet::new(), Tally::default());
        for (local, extent, pick) in parts {
            for operation in operations::all() {
                if !pick(&operation) || !operation.to_string().contains(only) {
                    continue;
                }
                let operation = Arc::new(operation);
                for situation in situations(&operation, true, extent.situations) {
                    running.spawn(sweep_on(local, extent, operation.clone(), situation, at_once.clone()));
                }
            }
        }
        while let Some(done) = running.join_next().await {
            tally.add(done.expect("a task"));
        }
        tally
    })
}

async fn sweep_on(
    local: Local,
    extent: Extent,
    operation: Arc<Operation>,
    situation: Situation,
    at_once: Arc<Semaphore>,
) -> Tally {
    let run = |injury| -> Boxed<(Ran, Vec<String>)> {
        let (cell, at_once) = (cell(local, operation.clone(), situation.clone(), injury), at_once.clone());
        // In a task of its own: the cells of one situation run on all threads.
        let limited = tokio::spawn(async move {
            let _permit = at_once.acquire_owned().await.expect("a permit");
            cell.await
        });
        Box::pin(async move { limited.await.expect("a cell that does not panic") })
    };
    sweep(&operation, &situation, extent, &run).await
}

/// Every way to be dropped, and none to fail.
const CUTS: Extent = Extent { situations: Situations::Some, faults: &[], both: false };

const USUAL: fn(&Operation) -> bool = |operation| !operation.brief;
const ANY: fn(&Operation) -> bool = |_| true;
/// Claims, releases and what else holds a lock: a caller's connection carries their requests, where a store has one.
const SENT_BY_THE_CALLER: fn(&Operation) -> bool = |operation| {
    let claims = matches!(operation.shape, Shape::Claim | Shape::Try | Shape::Close);
    !operation.brief && (claims || matches!(operation.shape, Shape::Holder | Shape::HolderForEver))
};
const DOWNGRADES: fn(&Operation) -> bool = |operation| operation.api == "WriteGuard::downgrade";
const BRIEF: fn(&Operation) -> bool = |operation| operation.brief;

#[test]
fn what_is_believed_and_what_the_store_holds_agree_after_every_cut() {
    let all = Extent { situations: Situations::All, ..CUTS };
    // What goes the way of another operation does so on every client.
    let parts = [
        (Local::Usual, all, USUAL),
        (Local::Usual, CUTS, BRIEF),
        (Local::Tight, CUTS, USUAL),
        (Local::Off, CUTS, USUAL),
        (Local::Here, CUTS, SENT_BY_THE_CALLER),
    ];
    report("cuts", parts, 15_000);
}

#[test]
fn what_is_believed_and_what_the_store_holds_agree_after_every_fault() {
    let faults = Extent { faults: &FAULTS[..4], ..CUTS };
    let one = Extent { situations: Situations::One, ..faults };
    let parts = [
        (Local::Usual, Extent { both: true, ..faults }, USUAL),
        (Local::Usual, one, BRIEF),
        (Local::Here, Extent { both: true, ..one }, SENT_BY_THE_CALLER),
        // Made shared, and never answered: the client must not take the writer for one.
        (Local::Usual, Extent { faults: &FAULTS[4..5], both: true, ..CUTS }, DOWNGRADES),
    ];
    report("faults", parts, 20_000);
}

/// Everything with everything.
#[test]
#[ignore = "takes long: cargo xtask fuzz matrix"]
fn the_whole_matrix() {
    let whole = Extent { situations: Situations::All, faults: &FAULTS, both: true };
    let parts = [Local::Usual, Local::Tight, Local::Off, Local::Here].map(|local| (local, whole, ANY));
    report("the whole matrix", parts, 50_000);
}
