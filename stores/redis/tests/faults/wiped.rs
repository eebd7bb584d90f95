//! The data is gone while locks are held: holders are told why, waiters recover, and tokens rise all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_client::{Client, Guard, Lost};
use leasehold_core::Kind;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::wait::soon;
use leasehold_testkit::{History, Stage};
use tokio::task::JoinSet;

use crate::common::play::{fresh_url, granted, hears, lock, on, release, waiter};

/// Long enough that an answer to a renewal, not the clock, tells of the loss.
const LEASE: Duration = Duration::from_secs(3);

/// How the data goes away.
#[derive(Debug, Clone, Copy)]
enum Wipe {
    Flush,
    Restart,
}

impl Wipe {
    fn happens_to(self, server: &Redis) {
        match self {
            Wipe::Flush => drop(server.cli(&["FLUSHALL"])),
            // It persists nothing.
            Wipe::Restart => server.restart(),
        }
    }
}

async fn client(stage: &Stage) -> Client {
    stage.open(Client::builder().default_lease(LEASE)).await
}

fn on_a_server<Fut: Future<Output = ()> + Send + 'static>(body: impl FnOnce(Arc<Stage>, Arc<Redis>) -> Fut) {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, body);
}

async fn is_told(guard: Guard, why: &[Lost]) {
    let told = soon("the loss", guard.lost()).await;
    assert!(why.contains(&told), "{guard:?} was lost because: {told}");
    assert!(!guard.is_held());
    let late = guard.release().await.expect_err("it was lost");
    assert_eq!(late.kind(), Kind::Lost, "{late}");
    assert!(late.to_string().contains(told.as_str()), "{late}");
}

async fn every_holder_is_told(stage: Arc<Stage>, server: Arc<Redis>, wipe: Wipe) {
    let client = client(&stage).await;
    let (rwlock, semaphore) = (client.rwlock("r"), client.semaphore("s", 3));
    let guards = vec![
        lock(&client.mutex("m")).await,
        rwlock.read().await.expect("a read lock"),
        client.rwlock("w").write().await.expect("a write lock").into_guard(),
        semaphore.acquire(2).await.expect("permits"),
        semaphore.acquire(1).await.expect("permits"),
    ];
    let highest = guards.iter().map(Guard::token).max().expect("a token");
    wipe.happens_to(&server);
    for guard in guards {
        is_told(guard, &[Lost::Wiped]).await;
    }
    let permit = soon("a permit", semaphore.acquire(1)).await.expect("a permit");
    assert!(permit.token() > highest, "{} is not above {highest}", permit.token());
    release(permit).await;
    for name in ["m", "r", "w", "s"] {
        let guard = lock(&client.mutex(name)).await;
        assert!(guard.token() > highest, "{name}: {} is not above {highest}", guard.token());
        release(guard).await;
    }
}

#[test]
fn every_holder_is_told_of_a_flush_and_the_next_tokens_are_higher() {
    on_a_server(|stage, server| every_holder_is_told(stage, server, Wipe::Flush));
}

#[test]
fn every_holder_is_told_of_a_restart_without_data_and_the_next_tokens_are_higher() {
    on_a_server(|stage, server| every_holder_is_told(stage, server, Wipe::Restart));
}

#[test]
fn the_first_renewal_after_a_flush_tells_of_it() {
    on_a_server(|stage, server| async move {
        let client = client(&stage).await;
        hears(&stage, &client).await;
        let guard = lock(&client.mutex("x")).await;
        server.cli(&["FLUSHALL"]);
        let before = server.calls("evalsha");
        assert_eq!(soon("the loss", guard.lost()).await, Lost::Wiped);
        assert_eq!(server.calls("evalsha") - before, 1, "one look was enough");
    });
}

async fn a_waiter_recovers(stage: Arc<Stage>, server: Arc<Redis>, wipe: Wipe) {
    let (a, b) = (client(&stage).await.mutex("x"), client(&stage).await.mutex("x"));
    let guard = lock(&a).await;
    let token = guard.token();
    let waiting = waiter(&b);
    stage.waiters("x", 1).await;
    wipe.happens_to(&server);
    let next = granted(waiting).await;
    assert!(next.token() > token);
    // If the waiter came back before the holder's renewal, the store knows the lock again, and the holder not.
    is_told(guard, &[Lost::Wiped, Lost::Revoked]).await;
    assert!(next.is_held());
    release(next).await;
}

#[test]
fn a_waiter_gets_in_after_a_flush() {
    on_a_server(|stage, server| a_waiter_recovers(stage, server, Wipe::Flush));
}

#[test]
fn a_waiter_gets_in_after_a_restart_without_data() {
    on_a_server(|stage, server| a_waiter_recovers(stage, server, Wipe::Restart));
}

#[test]
fn scripts_that_a_server_forgets_under_load_do_no_harm() {
    on_a_server(|stage, server| async move {
        let (history, count) = (History::default(), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for n in 0..4 {
            let (client, history, count) =
                (stage.direct(&format!("{n}")).await, history.clone(), count.clone());
            tasks.spawn(async move {
                for _ in 0..100 {
                    let guard = client.mutex("x").lock().await.expect("a lock");
                    let visit = history.enter(n, &guard);
                    // Not atomic: only the lock keeps it exact.
                    let seen = count.load(Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    count.store(seen + 1, Ordering::Relaxed);
                    drop(visit);
                    guard.release().await.expect("a release");
                }
            });
        }
        let done = Arc::new(AtomicBool::new(false));
        let vandal = tokio::task::spawn_blocking({
            let done = done.clone();
            move || {
                while !done.load(Ordering::Relaxed) {
                    server.cli(&["SCRIPT", "FLUSH"]);
                    std::thread::sleep(Duration::from_millis(2));
                }
                server.calls("eval")
            }
        });
        while let Some(finished) = soon("the counting", tasks.join_next()).await {
            finished.expect("a task");
        }
        done.store(true, Ordering::Relaxed);
        assert!(vandal.await.expect("a task") > 20, "scripts were loaded again and again");
        assert_eq!(count.load(Ordering::Relaxed), 400);
        history.check();
    });
}
