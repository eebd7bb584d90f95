//! A claim that is dropped at any moment leaves nothing behind and takes nothing along.

use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use leasehold_client::{Client, Guard};
use leasehold_core::{Order, Result};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, yield_now};

use super::{Boxed, granted, take, waiter};
use crate::cancellation_matrix::operations::{self, Operation, Shape};
use crate::cancellation_matrix::sweep::{Extent, Situations, situations, sweep};
use crate::cancellation_matrix::{self, Cell, Ran, Tally};
use crate::faulty::random;
use crate::registry::Registry;
use crate::stage::Stage;
use crate::wait::{PATIENCE, soon};

fn claim(client: &Client, kind: u32) -> Boxed<'static, Result<Guard>> {
    let (mutex, rw, semaphore) = (client.mutex("x"), client.rwlock("x"), client.semaphore("x", 2));
    Box::pin(async move {
        match kind {
            0 => mutex.lock().await,
            1 => mutex.order(Order::Barge).lock().await,
            2 => mutex.order(Order::spin()).lock().await,
            3 => mutex.lease(Duration::from_secs(20)).lock().await,
            4 => rw.read().await,
            5 => rw.write().await.map(|guard| guard.into_guard()),
            _ => semaphore.acquire(1).await,
        }
    })
}

/// The kinds that the store has.
fn kinds(stage: &Stage) -> impl Iterator<Item = u32> + use<> {
    let shared = stage.traits().shared;
    (0..7).filter(move |kind| shared || !matches!(kind, 4 | 6))
}

/// Every kind of claim, dropped after every number of polls, on a lock that is busy.
pub async fn a_claim_dropped_after_any_poll_leaves_nothing_behind(stage: Arc<Stage>) {
    let (holder, local, direct) = (stage.client("h").await, stage.client("a").await, stage.direct("b").await);
    let guard = take(&holder, "x").await;
    for client in [&holder, &local, &direct] {
        for kind in kinds(&stage) {
            for polls in 0..4 {
                let mut claim = claim(client, kind);
                for _ in 0..polls {
                    assert!(poll!(&mut claim).is_pending(), "a busy lock was got");
                    yield_now().await;
                }
            }
        }
    }
    stage.waiters("x", 0).await;
    assert!(guard.is_held());
    guard.release().await.expect("a release");
    stage.free("x").await;
}

/// The same on a lock that is free: the drop comes before, with or after the grant.
pub async fn a_claim_dropped_around_its_grant_gives_the_lock_on(stage: Arc<Stage>) {
    let (local, direct) = (stage.client("a").await, stage.direct("b").await);
    for client in [&local, &direct] {
        for kind in kinds(&stage) {
            for polls in 0..3 {
                let mut claim = claim(client, kind);
                for _ in 0..polls {
                    if poll!(&mut claim).is_ready() {
                        break;
                    }
                }
            }
        }
        let guard = soon("what was cancelled", client.mutex("x").lock()).await.expect("a lock");
        guard.release().await.expect("a release");
    }
    stage.free("x").await;
}

/// A waiter that is cancelled at the very moment of its grant doesn't swallow it.
pub async fn a_cancelled_waiter_does_not_swallow_the_grant(stage: Arc<Stage>) {
    let (a, b, c) = (stage.client("a").await, stage.client("b").await, stage.direct("c").await);
    for round in 0..60u32 {
        let guard = soon("the next round", a.mutex("x").lock()).await.expect("a lock");
        let second = if round % 2 == 0 { &b } else { &c };
        let cancelled = waiter(&second.mutex("x"));
        stage.waiters("x", 1).await;
        let patient = waiter(&c.mutex("x"));
        stage.waiters("x", 2).await;
        let release = tokio::spawn(guard.release());
        for _ in 0..round % 5 {
            yield_now().await;
        }
        // If it has its guard already, the guard goes with it.
        cancelled.abort();
        drop(cancelled);
        release.await.expect("a task").expect("a release");
        granted(patient).await.release().await.expect("a release");
    }
}

/// The same inside one client, where the lock passes from task to task.
pub async fn a_cancelled_local_waiter_does_not_swallow_the_hand_over(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    for round in 0..200u32 {
        let guard = soon("the next round", client.mutex("x").lock()).await.expect("a lock");
        let (cancelled, patient) = (waiter(&client.mutex("x")), waiter(&client.mutex("x")));
        for _ in 0..round % 3 {
            yield_now().await;
        }
        let release = tokio::spawn(guard.release());
        for _ in 0..round % 5 {
            yield_now().await;
        }
        // If it has its guard already, the guard goes with it.
        cancelled.abort();
        drop(cancelled);
        release.await.expect("a task").expect("a release");
        granted(patient).await.release().await.expect("a release");
    }
}

/// Tasks that are aborted at random moments, while they wait and while they hold.
pub async fn aborted_tasks_leave_nothing_behind(stage: Arc<Stage>) {
    let mut seed = 0xa5a5;
    // Without writes through the other recipe and permits, which add nothing here.
    let kinds: Vec<u32> = kinds(&stage).filter(|kind| *kind < 5).collect();
    for round in 0..4 {
        let client = if round % 2 == 0 { stage.client("a").await } else { stage.direct("b").await };
        let mut tasks = JoinSet::new();
        for n in 0..30 {
            let (client, kind) = (client.clone(), kinds[n % kinds.len()]);
            tasks.spawn(async move {
                loop {
                    let guard = claim(&client, kind).await.expect("a lock");
                    yield_now().await;
                    drop(guard);
                }
            });
        }
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_micros(random(&mut seed) % 500)).await;
        }
        tasks.shutdown().await;
        stage.free("x").await;
    }
}

/// Dropping the last handle of a client while a claim of it waits is no leak either.
pub async fn a_client_dropped_while_it_waits_leaves_nothing_behind(stage: Arc<Stage>) {
    let guard = take(&stage.client("a").await, "x").await;
    let client = stage.client("b").await;
    let mut waiting = claim(&client, 0);
    assert!(poll!(&mut waiting).is_pending());
    stage.waiters("x", 1).await;
    drop(client);
    drop(waiting);
    stage.waiters("x", 0).await;
    // The guard alone keeps its client's session alive.
    assert!(guard.is_held());
    assert_eq!(stage.look("x").await.holders.len(), 1);
    guard.release().await.expect("a release");
}

/// How many situations of the matrix are driven at a time.
const AT_ONCE: usize = 12;

/// Every public async operation, beside others that hold and wait, dropped after every number of polls: what the client believes and
/// what the store holds agree. In one situation each on another topology of a store: there only the store's connections differ.
pub async fn every_operation_dropped_at_any_poll_agrees_with_the_store(stage: Arc<Stage>) {
    let (actor, other) = (stage.client("actor").await, stage.client("other").await);
    let shared = stage.traits().shared;
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
    let (mut running, mut count) = (JoinSet::new(), 0);
    for operation in operations::all() {
        if operation.shared && !shared {
            continue;
        }
        let operation = Arc::new(operation);
        // In more than one situation where the local queue has most to decide.
        let thorough = ["RwLock::read", "RwLock::try_read", "RwLock::write"].contains(&operation.api)
            && operation.case == "queue"
            || operation.shape == Shape::Holder && !operation.brief;
        let which = match thorough {
            _ if stage.is_another_topology() => Situations::One,
            true => Situations::Some,
            false => Situations::Few,
        };
        for situation in situations(&operation, shared, which) {
            count += 1;
            let base = format!("m{count}.");
            let (operation, stage) = (operation.clone(), stage.clone());
            let (actor, other, at_once) = (actor.clone(), other.clone(), at_once.clone());
            running.spawn(async move {
                let _permit = at_once.acquire().await;
                let run = |injury| -> Boxed<'static, (Ran, Vec<String>)> {
                    let (stage, actor, other) = (stage.clone(), actor.clone(), other.clone());
                    let (operation, situation) = (operation.clone(), situation.clone());
                    let base = base.clone();
                    Box::pin(async move {
                        let closes = operation.shape == Shape::Close;
                        let actor = if closes { stage.client("closing").await } else { actor };
                        let cell = matrix_cell(&stage, actor, other, base, &operation);
                        let ran = cancellation_matrix::run(&cell, None, &operation, &situation, injury).await;
                        (ran.expect("nothing fails here"), cell.registry.violations())
                    })
                };
                let extent = Extent { situations: which, faults: &[], both: false };
                sweep(&operation, &situation, extent, &run).await
            });
        }
    }
    let mut tally = Tally::default();
    while let Some(done) = running.join_next().await {
        tally.add(done.expect("a task"));
    }
    let operations = if shared { 110 } else { 75 };
    tally.report("cuts", operations, 5 * operations);
}

fn matrix_cell(stage: &Stage, actor: Client, other: Client, base: String, operation: &Operation) -> Cell {
    let (name, base) = Cell::named(base);
    Cell {
        actor,
        other,
        observer: stage.observer().clone(),
        store: stage.store(),
        name,
        base,
        registry: Registry::new(Duration::from_secs(6)),
        limit: PATIENCE,
        faulty: false,
        closes: operation.shape == Shape::Close,
        revokes: operation.shape == Shape::Revoke,
    }
}
