//! Who comes first is served first.

use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use futures_util::poll;
use leasehold_client::{Budget, Client};
use leasehold_core::{Kind, Order, Result};
use tokio::task::{JoinSet, yield_now};

use super::{Boxed, granted, take, waiter};
use crate::stage::Stage;
use crate::wait::{PATIENCE, eventually, not_yet, soon};

const MANY: usize = 500;

type Entered = Arc<StdMutex<Vec<usize>>>;

/// Waits for the lock, notes the place in which it got in, and gives it back.
async fn pass_through(client: Client, place: usize, entered: Entered) -> Result<()> {
    let guard = client.mutex("x").lock().await?;
    entered.lock().expect("no panic").push(place);
    guard.release().await
}

async fn all_in_order(mut passing: JoinSet<Result<()>>, entered: &Entered, expected: Vec<usize>) {
    while let Some(done) = soon("the queue to move", passing.join_next()).await {
        if let Ok(done) = done {
            done.expect("a lock");
        }
    }
    assert_eq!(*entered.lock().expect("no panic"), expected);
}

/// Scenario 10: every waiter is an entry of its own at the store.
pub async fn five_hundred_waiters_of_many_clients_enter_in_the_order_they_came(stage: Arc<Stage>) {
    let mut clients = Vec::new();
    for n in 0..10 {
        clients.push(stage.direct(&format!("client {n}")).await);
    }
    let guard = take(&clients[0], "x").await;
    let entered = Entered::default();
    let mut passing = JoinSet::new();
    for place in 0..MANY {
        passing.spawn(pass_through(clients[place % clients.len()].clone(), place, entered.clone()));
        stage.waiters("x", place + 1).await;
    }
    guard.release().await.expect("a release");
    all_in_order(passing, &entered, (0..MANY).collect()).await;
}

/// Scenario 10: all wait behind one entry.
pub async fn five_hundred_waiters_of_one_client_enter_in_the_order_they_came(stage: Arc<Stage>) {
    let client = stage.client("one").await;
    let guard = take(&client, "x").await;
    let entered = Entered::default();
    let mut passing = JoinSet::new();
    for place in 0..MANY {
        // A claim stands in its client's queue from its first poll on.
        let mut claim: Boxed<'_, Result<()>> = Box::pin(pass_through(client.clone(), place, entered.clone()));
        assert!(poll!(&mut claim).is_pending());
        passing.spawn(claim);
    }
    guard.release().await.expect("a release");
    all_in_order(passing, &entered, (0..MANY).collect()).await;
}

/// Scenario 10: who gave up in the middle is skipped, in the queue at the store.
pub async fn waiters_that_gave_up_are_skipped_at_the_store(stage: Arc<Stage>) {
    let client = stage.direct("many").await;
    let guard = take(&client, "x").await;
    let entered = Entered::default();
    let (mut passing, mut cancelled) = (JoinSet::new(), Vec::new());
    let began = Instant::now();
    let mut patience = Duration::ZERO;
    for place in 0..30 {
        let claim = pass_through(client.clone(), place, entered.clone());
        match place % 3 {
            0 => drop(passing.spawn(claim)),
            1 => cancelled.push(passing.spawn(claim)),
            _ => drop(passing.spawn(give_up(client.clone(), patience))),
        }
        stage.waiters("x", place + 1).await;
        if place == 1 {
            // Nobody gives up before all are in, on however slow a machine: six times as long as that should take.
            patience = Duration::from_secs(4).max(began.elapsed() * 90).min(PATIENCE / 2);
        }
    }
    cancelled.iter().for_each(|task| task.abort());
    stage.waiters("x", 10).await;
    guard.release().await.expect("a release");
    all_in_order(passing, &entered, (0..30).filter(|place| place % 3 == 0).collect()).await;
}

async fn give_up(client: Client, after: Duration) -> Result<()> {
    assert!(client.mutex("x").lock_within(after).await?.is_none(), "it should have waited in vain");
    Ok(())
}

/// Scenario 10: who gave up in the middle is skipped, in the local queue of a client.
pub async fn waiters_that_gave_up_are_skipped_in_the_local_queue(stage: Arc<Stage>) {
    let client = stage.client("one").await;
    let guard = take(&client, "x").await;
    let entered = Entered::default();
    let (mut passing, mut cancelled, mut in_vain) = (JoinSet::new(), Vec::new(), Vec::new());
    for place in 0..60 {
        let wait = Duration::from_millis(300);
        let mut claim: Boxed<'_, Result<()>> = match place % 3 {
            2 => Box::pin(give_up(client.clone(), wait)),
            _ => Box::pin(pass_through(client.clone(), place, entered.clone())),
        };
        assert!(poll!(&mut claim).is_pending());
        match place % 3 {
            0 => drop(passing.spawn(claim)),
            1 => cancelled.push(claim),
            _ => in_vain.push(claim),
        }
    }
    drop(cancelled);
    for claim in in_vain {
        soon("a timed try", claim).await.expect("a timed try");
    }
    guard.release().await.expect("a release");
    all_in_order(passing, &entered, (0..60).filter(|place| place % 3 == 0).collect()).await;
}

/// Scenario 10: waiting briefly, again and again, leaves nothing behind and takes nobody's turn.
pub async fn short_wait_churn_leaves_nothing_behind(stage: Arc<Stage>) {
    let (holder, local, direct) = (stage.client("a").await, stage.client("b").await, stage.direct("c").await);
    let guard = take(&holder, "x").await;
    let mut churn = JoinSet::new();
    for n in 0..120u64 {
        let client = if n % 2 == 0 { local.clone() } else { direct.clone() };
        churn.spawn(async move { client.mutex("x").lock_within(Duration::from_millis(n % 7)).await });
    }
    while let Some(tried) = soon("short waits", churn.join_next()).await {
        // The limits are shorter than a busy machine may need for an answer: then the store is said to be unavailable.
        match tried.expect("a task") {
            Ok(guard) => assert!(guard.is_none()),
            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
        }
    }
    stage.waiters("x", 0).await;
    let next = waiter(&direct.mutex("x"));
    stage.waiters("x", 1).await;
    guard.release().await.expect("a release");
    granted(next).await.release().await.expect("a release");
}

/// A claim that barges takes what is free, and what is not free goes to those that queue.
pub async fn one_that_queues_goes_before_one_that_barges(stage: Arc<Stage>) {
    let (a, b, c) = (stage.client("a").await, stage.client("b").await, stage.client("c").await);
    let guard = take(&a, "x").await;
    let mut barging = waiter(&b.mutex("x").order(Order::Barge));
    let seen = stage.waiters("x", 1).await;
    assert!(seen.waiters[0].barges && seen.waiters[0].place.is_none(), "{seen:#?}");
    let queued = waiter(&c.mutex("x"));
    let seen = stage.waiters("x", 2).await;
    assert_eq!(seen.waiters.iter().map(|w| w.barges).collect::<Vec<_>>(), [false, true]);
    guard.release().await.expect("a release");
    let guard = granted(queued).await;
    not_yet("the barging claim got in", &mut barging).await;
    guard.release().await.expect("a release");
    granted(barging).await.release().await.expect("a release");
}

/// A claim that spins never stands in anybody's way while it waits.
pub async fn a_spinning_claim_gets_in_and_waits_nowhere(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = take(&a, "x").await;
    let mut spinning = waiter(&b.mutex("x").order(Order::spin()));
    not_yet("the spinning claim got in", &mut spinning).await;
    assert_eq!(stage.look("x").await.waiters, []);
    guard.release().await.expect("a release");
    granted(spinning).await.release().await.expect("a release");
}

/// Many that barge all get in, though each is told only now and then.
pub async fn those_that_barge_all_get_in(stage: Arc<Stage>) {
    let entered = Entered::default();
    let mut all = JoinSet::new();
    for n in 0..6 {
        let client = stage.direct(&format!("client {n}")).await;
        for task in 0..4 {
            let (mutex, entered) = (client.mutex("x").order(Order::Barge), entered.clone());
            all.spawn(async move {
                let guard = mutex.lock().await?;
                entered.lock().expect("no panic").push(n * 4 + task);
                yield_now().await;
                guard.release().await
            });
        }
    }
    while let Some(done) = soon("those that barge", all.join_next()).await {
        done.expect("a task").expect("a lock");
    }
    assert_eq!(entered.lock().expect("no panic").len(), 24);
}

/// A client that always has more to do gives the lock up when its budget is used.
pub async fn another_client_gets_in_though_a_local_queue_never_empties(stage: Arc<Stage>) {
    let budget = Budget { handovers: 8, time: Duration::from_millis(50) };
    let busy = stage.open(Client::builder().label("busy").local_queue(budget)).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let mutex = busy.mutex("x");
        tasks.spawn(async move {
            loop {
                let guard = mutex.lock().await.expect("a lock");
                yield_now().await;
                guard.release().await.expect("a release");
            }
        });
    }
    stage.holders("x", 1).await;
    let other = stage.client("other").await;
    for _ in 0..5 {
        let guard = soon("another client's turn", other.mutex("x").lock()).await.expect("a lock");
        guard.release().await.expect("a release");
    }
    tasks.shutdown().await;
    eventually("the busy client is done", || async {
        let seen = stage.look("x").await;
        if seen.holders.is_empty() { Ok(()) } else { Err(seen) }
    })
    .await;
}
