//! Nobody holds beside whom he can't hold.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::poll;
use leasehold_client::{Client, Part};
use leasehold_core::{Error, Order, Result};
use tokio::task::{JoinSet, yield_now};

use super::take;
use crate::history::History;
use crate::stage::Stage;
use crate::wait::soon;

/// A number that is wrong at the end if two ever changed it at once.
#[derive(Default)]
struct Number(AtomicU32);

impl Number {
    async fn add_one(&self) {
        let before = self.0.load(Ordering::SeqCst);
        yield_now().await;
        self.0.store(before + 1, Ordering::SeqCst);
    }
}

async fn count(clients: Vec<Client>, tasks: u32, times: u32) {
    let (number, history) = (Arc::new(Number::default()), History::default());
    let mut all = JoinSet::new();
    for task in 0..tasks {
        let client = &clients[task as usize % clients.len()];
        let (mutex, number, history) = (client.mutex("counter"), number.clone(), history.clone());
        all.spawn(async move {
            for _ in 0..times {
                let guard = mutex.lock().await?;
                let visit = history.enter(task, &guard);
                number.add_one().await;
                drop(visit);
                guard.release().await?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(done) = soon("the counting", all.join_next()).await {
        done.expect("a task").expect("a lock");
    }
    history.check();
    assert_eq!(number.0.load(Ordering::SeqCst), tasks * times);
}

/// Scenario 7.
pub async fn a_counter_stays_exact_over_many_clients(stage: Arc<Stage>) {
    let mut clients = Vec::new();
    for n in 0..4 {
        clients.push(stage.client(&format!("local {n}")).await);
        clients.push(stage.direct(&format!("direct {n}")).await);
    }
    count(clients, 8, 25).await;
}

/// Scenario 7.
pub async fn a_counter_stays_exact_over_the_tasks_of_one_client(stage: Arc<Stage>) {
    count(vec![stage.client("one").await], 32, 40).await;
}

/// Claims of every order and kind on one name exclude each other like any others.
pub async fn claims_of_all_orders_and_kinds_exclude_each_other(stage: Arc<Stage>) {
    let history = History::default();
    let mut all = JoinSet::new();
    for n in 0..3 {
        let client =
            if n == 0 { stage.direct("direct").await } else { stage.client(&format!("client {n}")).await };
        for kind in 0..6 {
            let (client, history) = (client.clone(), history.clone());
            all.spawn(async move {
                for _ in 0..12 {
                    visit(&client, kind, &format!("{n}/{kind}"), &history).await?;
                }
                Ok::<_, Error>(())
            });
        }
    }
    while let Some(done) = soon("all claims", all.join_next()).await {
        done.expect("a task").expect("a lock");
    }
    history.check();
    assert_eq!(history.visits(), 3 * 6 * 12);
}

async fn visit(client: &Client, kind: u32, who: &str, history: &History) -> Result<()> {
    let (mutex, rw) = (client.mutex("mixed"), client.rwlock("mixed"));
    let guard = match kind {
        0 => mutex.lock().await?,
        1 => mutex.order(Order::Barge).lock().await?,
        2 => mutex.order(Order::spin()).lock().await?,
        3 => mutex.lease(Duration::from_secs(20)).lock().await?,
        4 => rw.read().await?,
        _ => rw.write().await?.into_guard(),
    };
    let visit = history.enter(who, &guard);
    yield_now().await;
    drop(visit);
    guard.release().await
}

/// Scenario 3, without waiting.
pub async fn a_busy_lock_is_none_and_leaves_nothing_behind(stage: Arc<Stage>) {
    let (a, b, direct) = (stage.client("a").await, stage.client("b").await, stage.direct("c").await);
    let guard = take(&a, "x").await;
    for client in [&a, &b, &direct] {
        for order in [Order::Queue, Order::Barge, Order::spin()] {
            let tried = soon("a try", client.mutex("x").order(order).try_lock()).await.expect("a try");
            assert!(tried.is_none(), "{order:?} got in");
        }
    }
    assert_eq!(stage.look("x").await.waiters, []);
    guard.release().await.expect("a release");
    take(&b, "x").await.release().await.expect("a release");
}

/// Scenario 3.
pub async fn a_timed_try_takes_about_its_time_and_leaves_nothing_behind(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = take(&a, "x").await;
    for client in [&a, &b] {
        for order in [Order::Queue, Order::Barge, Order::spin()] {
            let (wait, start) = (Duration::from_millis(60), Instant::now());
            let tried = client.mutex("x").order(order).lock_within(wait).await.expect("a timed try");
            let took = start.elapsed();
            assert!(tried.is_none(), "{order:?} got in");
            assert!(took >= wait, "{order:?} gave up after {took:?}");
            assert!(took < wait + Duration::from_secs(3), "{order:?} took {took:?}");
        }
    }
    stage.waiters("x", 0).await;
    assert!(guard.is_held());
    guard.release().await.expect("a release");
}

/// Scenario 3, the other side of it.
pub async fn a_timed_try_gets_a_lock_that_is_freed_in_time(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = take(&a, "x").await;
    let mutex = b.mutex("x");
    let timed = tokio::spawn(async move { mutex.lock_within(Duration::from_secs(15)).await });
    stage.waiters("x", 1).await;
    guard.release().await.expect("a release");
    let guard =
        soon("the timed try", timed).await.expect("a task").expect("a lock").expect("it was freed in time");
    assert!(guard.is_held());
    guard.release().await.expect("a release");
}

/// `lock_within(0)` is one honest try, in every order and of every kind: a free lock is got, a busy one is none.
pub async fn a_wait_of_zero_is_one_honest_try(stage: Arc<Stage>) {
    const ZERO: Duration = Duration::ZERO;
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    for order in [Order::Queue, Order::Barge, Order::spin()] {
        let mutex = |client: &Client| client.mutex("x").order(order);
        let guard = soon("a try", mutex(&a).lock_within(ZERO)).await.expect("a try");
        let guard = guard.unwrap_or_else(|| panic!("a free lock is got in one try, in the order {order:?}"));
        assert!(soon("a try", mutex(&b).lock_within(ZERO)).await.expect("a try").is_none(), "{order:?}");
        guard.release().await.expect("a release");
        let several = |client: &Client| client.multi([Part::mutex("x"), Part::mutex("y")]).order(order);
        let guard = soon("a try", several(&a).lock_within(ZERO)).await.expect("a try");
        let guard = guard.unwrap_or_else(|| panic!("free locks are got in one try, in the order {order:?}"));
        assert!(soon("a try", several(&b).lock_within(ZERO)).await.expect("a try").is_none(), "{order:?}");
        guard.release().await.expect("a release");
    }
    let elected = soon("a try", a.leader("x").campaign_within(ZERO)).await.expect("a try");
    assert!(soon("a try", b.leader("x").campaign_within(ZERO)).await.expect("a try").is_none());
    drop(elected.expect("an office that is free"));
    stage.free("x").await;
    if stage.traits().shared {
        let read = soon("a try", a.rwlock("x").read_within(ZERO)).await.expect("a try").expect("a free lock");
        assert!(soon("a try", b.rwlock("x").write_within(ZERO)).await.expect("a try").is_none());
        read.release().await.expect("a release");
        let permits = a.semaphore("x", 2);
        let two = soon("a try", permits.acquire_within(2, ZERO)).await.expect("a try").expect("two of two");
        assert!(soon("a try", b.semaphore("x", 2).acquire_within(1, ZERO)).await.expect("a try").is_none());
        two.release().await.expect("a release");
    }
}

/// A name stands for itself only.
pub async fn different_names_do_not_exclude_each_other(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guards = [take(&a, "x").await, take(&b, "y").await, take(&a, "z").await];
    assert!(guards.iter().all(|guard| guard.is_held()));
    for guard in guards {
        guard.release().await.expect("a release");
    }
}

/// A guard that goes out of scope gives its lock back, though nobody awaits it.
pub async fn a_dropped_guard_releases(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    drop(take(&a, "x").await);
    let guard = soon("the dropped lock", b.mutex("x").lock()).await.expect("a lock");
    drop(guard);
    stage.free("x").await;
}

/// What this client gave up keeps none of its own tries out, though the store hears of it a moment later.
pub async fn a_try_right_after_a_drop_gets_in(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let mutex = client.mutex("x");
    for round in 0..20 {
        let guard = soon("a try", mutex.try_lock()).await.expect("a try");
        drop(guard.unwrap_or_else(|| panic!("busy after a dropped guard in round {round}")));
    }
    for round in 0..20 {
        {
            let mut claim = pin!(mutex.lock());
            let _ = poll!(claim.as_mut());
        }
        let guard = soon("a try", mutex.try_lock()).await.expect("a try");
        drop(guard.unwrap_or_else(|| panic!("busy after a dropped claim in round {round}")));
    }
    if !stage.traits().shared {
        return;
    }
    let (lock, permits) = (client.rwlock("y"), client.semaphore("z", 1));
    for round in 0..20 {
        drop(soon("a write lock", lock.write()).await.expect("a lock"));
        let guard = soon("a try", lock.try_read()).await.expect("a try");
        drop(guard.unwrap_or_else(|| panic!("busy after a dropped writer in round {round}")));
        drop(soon("a permit", permits.acquire(1)).await.expect("a permit"));
        let guard = soon("a try", permits.try_acquire(1)).await.expect("a try");
        drop(guard.unwrap_or_else(|| panic!("busy after a dropped permit in round {round}")));
    }
}
