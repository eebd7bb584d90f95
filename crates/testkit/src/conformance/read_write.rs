//! Readers share, writers are alone, and the queue is kept (scenario 14).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use leasehold_client::{Budget, Client, Guard, Owner, Part, RwLock, WriteGuard};
use leasehold_core::{Error, Kind, Want};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use super::{Waiter, granted};
use crate::history::History;
use crate::stage::Stage;
use crate::wait::{not_yet, soon};

fn reader(lock: &RwLock) -> Waiter {
    let lock = lock.clone();
    tokio::spawn(async move { lock.read().await })
}

fn writer(lock: &RwLock) -> Waiter<WriteGuard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.write().await })
}

async fn read(lock: &RwLock) -> Guard {
    soon("a read lock", lock.read()).await.expect("a read lock")
}

async fn write(lock: &RwLock) -> WriteGuard {
    soon("a write lock", lock.write()).await.expect("a write lock")
}

/// Scenario 14, over many clients.
pub async fn readers_share_and_writers_are_alone(stage: Arc<Stage>) {
    let history = History::default();
    let mut all = JoinSet::new();
    for n in 0..6 {
        let client = if n % 2 == 0 { stage.direct("direct").await } else { stage.client("local").await };
        for task in 0..4 {
            let (lock, history) = (client.rwlock("x"), history.clone());
            all.spawn(async move {
                for round in 0..15 {
                    let writes = (round + task + n) % 4 == 0;
                    let guard = if writes { lock.write().await?.into_guard() } else { lock.read().await? };
                    let visit = history.enter(format!("{n}/{task}"), &guard);
                    yield_now().await;
                    drop(visit);
                    guard.release().await?;
                }
                Ok::<_, Error>(())
            });
        }
    }
    while let Some(done) = soon("readers and writers", all.join_next()).await {
        done.expect("a task").expect("a lock");
    }
    history.check();
}

/// Tries at once by readers of one client, beside a reader of it, when the store has to be asked whether others wait.
pub async fn tries_at_once_by_readers_of_one_client_all_get_in(stage: Arc<Stage>) {
    let tight = Budget { handovers: 1, time: Duration::from_secs(3600) };
    for budget in [Budget::default(), tight, Budget::off()] {
        let client = stage.open(Client::builder().label("readers").local_queue(budget)).await;
        let lock = client.rwlock("x");
        let reader = read(&lock).await;
        if budget == Budget::default() {
            sleep(budget.time * 2).await;
        }
        for round in 0..5 {
            let tries = [lock.try_read(), lock.try_read(), lock.try_read()];
            for got in soon("tries", join_all(tries)).await {
                let guard = got.expect("a try");
                let guard = guard.unwrap_or_else(|| panic!("busy in round {round} with {budget:?}"));
                guard.release().await.expect("a release");
            }
        }
        reader.release().await.expect("a release");
        stage.free("x").await;
    }
}

/// What a writer can't have, a reader beside it may: tries of one client ask for each other's answer only if they want the same.
pub async fn a_try_to_read_beside_a_try_to_write_gets_in(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (held, lock) = (read(&a.rwlock("x")).await, b.rwlock("x"));
    for round in 0..10 {
        let (wrote, got) = soon("tries", async { tokio::join!(lock.try_write(), lock.try_read()) }).await;
        assert!(wrote.expect("a try").is_none(), "a writer beside a reader in round {round}");
        let got =
            got.expect("a try").unwrap_or_else(|| panic!("a reader among readers is busy in round {round}"));
        got.release().await.expect("a release");
    }
    held.release().await.expect("a release");
}

/// The entry of a writer that gave up leaves, though others of its client wait behind it: they want to read.
pub async fn readers_get_in_when_the_writer_before_them_gave_up(stage: Arc<Stage>) {
    let (a, b, c) = (stage.client("a").await, stage.client("b").await, stage.client("c").await);
    let (held, lock) = (read(&a.rwlock("x")).await, b.rwlock("x"));
    let writing = writer(&lock);
    stage.waiters("x", 1).await;
    let mut reading = reader(&lock);
    not_yet("a reader passed the writer before it", &mut reading).await;
    writing.abort();
    assert!(writing.await.is_err_and(|end| end.is_cancelled()));
    let guard = soon("the reader behind the writer", reading).await.expect("a task").expect("a read lock");
    assert!(held.is_held() && guard.is_held());
    let third = soon("a try", c.rwlock("x").try_read()).await.expect("a try").expect("no writer waits");
    for guard in [held, guard, third] {
        guard.release().await.expect("a release");
    }
}

/// Readers of one client and of several hold together.
pub async fn readers_hold_together(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.rwlock("x"), stage.client("b").await.rwlock("x"));
    let readers = [read(&a).await, read(&a).await, read(&b).await];
    assert!(readers.iter().all(|guard| guard.is_held()));
    assert!(soon("a try", b.try_write()).await.expect("a try").is_none());
    let another = soon("a try", b.try_read()).await.expect("a try").expect("nobody waits to write");
    another.release().await.expect("a release");
    for guard in readers {
        guard.release().await.expect("a release");
    }
}

/// Scenario 14.
pub async fn a_writer_waits_for_the_longest_reader(stage: Arc<Stage>) {
    let (a, b, c) = (stage.client("a").await, stage.client("b").await, stage.client("c").await);
    let (short, long) = (read(&a.rwlock("x")).await, read(&b.rwlock("x")).await);
    let mut writing = writer(&c.rwlock("x"));
    stage.waiters("x", 1).await;
    short.release().await.expect("a release");
    not_yet("the writer got in beside a reader", &mut writing).await;
    long.release().await.expect("a release");
    granted(writing).await.into_guard().release().await.expect("a release");
}

/// The same with everybody in one client.
pub async fn a_writer_waits_for_the_longest_reader_of_its_own_client(stage: Arc<Stage>) {
    let lock = stage.client("one").await.rwlock("x");
    let (short, long) = (read(&lock).await, read(&lock).await);
    let mut writing = writer(&lock);
    not_yet("the writer got in beside readers", &mut writing).await;
    short.release().await.expect("a release");
    not_yet("the writer got in beside a reader", &mut writing).await;
    long.release().await.expect("a release");
    granted(writing).await.into_guard().release().await.expect("a release");
}

/// Scenario 14: no stream of readers starves a writer.
pub async fn a_queued_writer_holds_back_later_readers(stage: Arc<Stage>) {
    let (a, b, c) = (stage.client("a").await, stage.client("b").await, stage.client("c").await);
    let first = read(&a.rwlock("x")).await;
    let writing = writer(&b.rwlock("x"));
    stage.waiters("x", 1).await;
    let mut late = reader(&c.rwlock("x"));
    stage.waiters("x", 2).await;
    assert!(soon("a try", c.rwlock("x").try_read()).await.expect("a try").is_none());
    not_yet("a later reader passed the writer", &mut late).await;
    first.release().await.expect("a release");
    let guard = granted(writing).await;
    not_yet("a reader got in beside the writer", &mut late).await;
    guard.into_guard().release().await.expect("a release");
    granted(late).await.release().await.expect("a release");
}

/// The same where the first reader's own client brings the later readers.
pub async fn a_writer_of_another_client_gets_in_though_readers_keep_coming(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let mut readers = JoinSet::new();
    for _ in 0..4 {
        let lock = a.rwlock("x");
        readers.spawn(async move {
            loop {
                let guard = lock.read().await.expect("a read lock");
                yield_now().await;
                guard.release().await.expect("a release");
            }
        });
    }
    stage.holders("x", 1).await;
    for _ in 0..3 {
        write(&b.rwlock("x")).await.into_guard().release().await.expect("a release");
    }
    readers.shutdown().await;
}

/// Scenario 14: a writer that becomes a reader keeps its place and its token, and readers behind it get in.
pub async fn a_downgrade_keeps_its_place_and_lets_readers_in(stage: Arc<Stage>) {
    let (a, b, c) = (stage.client("a").await, stage.client("b").await, stage.client("c").await);
    let guard = write(&a.rwlock("x")).await;
    let token = guard.token();
    let reading = reader(&b.rwlock("x"));
    stage.waiters("x", 1).await;
    let mut writing = writer(&c.rwlock("x"));
    stage.waiters("x", 2).await;
    let guard = soon("a downgrade", guard.downgrade()).await.expect("a downgrade");
    assert_eq!(guard.token(), token);
    assert!(guard.is_held());
    let beside = granted(reading).await;
    not_yet("a queued writer got in during a downgrade", &mut writing).await;
    beside.release().await.expect("a release");
    not_yet("a queued writer got in beside the downgraded one", &mut writing).await;
    guard.release().await.expect("a release");
    granted(writing).await.into_guard().release().await.expect("a release");
}

/// A writer queued behind a downgraded one still holds back readers that come later.
pub async fn a_downgrade_does_not_let_later_readers_pass_a_queued_writer(stage: Arc<Stage>) {
    let (a, b, c) = (stage.client("a").await, stage.client("b").await, stage.client("c").await);
    let guard = write(&a.rwlock("x")).await;
    let writing = writer(&b.rwlock("x"));
    stage.waiters("x", 1).await;
    let mut late = reader(&c.rwlock("x"));
    stage.waiters("x", 2).await;
    let guard = soon("a downgrade", guard.downgrade()).await.expect("a downgrade");
    not_yet("a later reader passed the writer", &mut late).await;
    guard.release().await.expect("a release");
    granted(writing).await.into_guard().release().await.expect("a release");
    granted(late).await.release().await.expect("a release");
}

/// A client that has to ask the store whether others wait is not told so of others that read, and lets its next reader in beside the first.
pub async fn a_reader_joins_those_of_its_client_while_another_client_reads(stage: Arc<Stage>) {
    // Every claim asks.
    let budget = Budget { handovers: 1_000_000, time: Duration::from_nanos(1) };
    let a = stage.open(Client::builder().label("a").local_queue(budget)).await.rwlock("x");
    let b = stage.client("b").await.rwlock("x");
    let first = read(&a).await;
    let other = read(&b).await;
    let second = soon("a reader beside readers", a.read()).await.expect("a read lock");
    for guard in [first, other, second] {
        guard.release().await.expect("a release");
    }
}

/// What is left of a downgraded hold does not make the next writer a reader.
pub async fn a_writer_after_a_downgraded_one_is_alone_again(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    for _ in 0..2 {
        let guard = write(&a.rwlock("x")).await;
        let guard = soon("a downgrade", guard.downgrade()).await.expect("a downgrade");
        guard.release().await.expect("a release");
        let guard = write(&a.rwlock("x")).await;
        let tried = soon("a try", b.rwlock("x").try_read()).await.expect("a try");
        assert!(tried.is_none(), "a reader beside a writer");
        guard.into_guard().release().await.expect("a release");
    }
}

/// A downgrade that is dropped at any moment gives the lock back: the next writer of its client is alone, at the store too.
pub async fn a_downgrade_dropped_after_any_poll_leaves_the_next_writer_alone(stage: Arc<Stage>) {
    let (local, direct, other) = (stage.client("a").await, stage.direct("b").await, stage.client("c").await);
    for client in [&local, &direct] {
        for polls in 0..6 {
            let guard = write(&client.rwlock("x")).await;
            let next = writer(&client.rwlock("x"));
            yield_now().await;
            let mut downgrade = Box::pin(guard.downgrade());
            for _ in 0..polls {
                if poll!(&mut downgrade).is_ready() {
                    break;
                }
                yield_now().await;
            }
            drop(downgrade);
            let next = granted(next).await;
            assert_eq!(next.want(), Want::Exclusive);
            let seen = stage.look("x").await;
            let wants: Vec<_> = seen.holders.iter().map(|holder| holder.want).collect();
            assert_eq!(wants, [Want::Exclusive], "after {polls} polls: {seen:#?}");
            let tried = soon("a try", other.rwlock("x").try_read()).await.expect("a try");
            assert!(tried.is_none(), "a reader beside a writer, after {polls} polls");
            next.into_guard().release().await.expect("a release");
            stage.free("x").await;
        }
    }
}

/// A try to read answers though the client that tries is itself in the way: its readers were asked for the lock, or a writer of
/// another client waits.
pub async fn a_try_to_read_beside_a_reader_of_its_client_always_answers(stage: Arc<Stage>) {
    // Every claim asks the store whether others wait.
    let budget = Budget { handovers: 1_000_000, time: Duration::from_nanos(1) };
    let (a, b) =
        (stage.open(Client::builder().label("a").local_queue(budget)).await, stage.client("b").await);
    let lock = a.rwlock("x");
    for asked in [false, true] {
        let first = read(&lock).await;
        let mut writing = None;
        if asked {
            stage.observer().request_release("x", None).await.expect("a request");
            soon("the request", first.release_requested()).await;
        } else {
            writing = Some(writer(&b.rwlock("x")));
            stage.waiters("x", 1).await;
        }
        for _ in 0..2 {
            assert!(soon("a try", lock.try_read()).await.expect("a try").is_none());
            let within = soon("a try", lock.read_within(Duration::ZERO)).await.expect("a try");
            assert!(within.is_none());
            let multi = a.multi([Part::read("x"), Part::mutex("y")]);
            assert!(soon("a try", multi.try_lock()).await.expect("a try").is_none());
        }
        first.release().await.expect("a release");
        if let Some(writing) = writing {
            granted(writing).await.into_guard().release().await.expect("a release");
        }
        stage.free("x").await;
    }
}

/// Scenario 14: it would wait for itself for ever.
pub async fn asking_for_write_while_reading_is_an_error_not_a_deadlock(stage: Arc<Stage>) {
    let owner = Owner::new();
    let lock = stage.client("a").await.rwlock("x").owner(owner);
    for lock in [lock.clone(), lock.reentrant()] {
        let guard = read(&lock).await;
        let refused = soon("the refusal", lock.write()).await.expect_err("an upgrade is refused");
        assert_eq!(refused.kind(), Kind::Refused, "{refused}");
        assert!(guard.is_held());
        guard.release().await.expect("a release");
        write(&lock).await.into_guard().release().await.expect("a release");
    }
}

/// A mutex and a write lock of one name are one lock.
pub async fn a_mutex_and_a_write_lock_of_one_name_exclude_each_other(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = write(&a.rwlock("x")).await;
    assert!(soon("a try", b.mutex("x").try_lock()).await.expect("a try").is_none());
    guard.into_guard().release().await.expect("a release");
    let guard = read(&a.rwlock("x")).await;
    assert!(soon("a try", b.mutex("x").try_lock()).await.expect("a try").is_none());
    guard.release().await.expect("a release");
}
