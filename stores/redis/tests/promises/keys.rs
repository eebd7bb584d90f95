//! Keys end by themselves: what nobody uses any more leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_client::{Client, Order};
use leasehold_testkit::child::Role;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::wait::{eventually, soon};
use tokio::task::JoinSet;

use crate::common::play::{connect, fresh_url, granted, lock, on, release, through, waiter};

/// All keys, with the time they have left in milliseconds; -1 if it has no end.
fn keys(server: &Redis) -> BTreeMap<String, i64> {
    // In one script, or a key could end between the two questions.
    let look = "local out = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
                out[#out + 1] = key .. ' ' .. redis.call('PTTL', key) end return out";
    let lines = server.cli(&["EVAL", look, "0"]);
    let pair = |line: &str| {
        let (key, left) = line.rsplit_once(' ').expect("a key and its time");
        (key.to_owned(), left.parse().expect("a number"))
    };
    lines.lines().map(pair).collect()
}

async fn no_keys(server: &Redis) {
    eventually("no key is left", || async {
        match keys(server) {
            left if left.is_empty() => Ok(()),
            left => Err(left),
        }
    })
    .await;
}

#[test]
fn a_hundred_thousand_names_leave_no_key_behind() {
    const NAMES: usize = 100_000;
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "retention=500ms");
    on(server, &url, |stage, server| async move {
        // A key also lasts as long as the lease would have.
        let client = stage.open(Client::builder().default_lease(Duration::from_secs(3))).await;
        let next = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..64 {
            let (client, next) = (client.clone(), next.clone());
            tasks.spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= NAMES {
                        return;
                    }
                    drop(client.mutex(format!("order {n}")).lock().await.expect("a lock"));
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("a task");
        }
        eventually("no key is left", || async {
            match server.cli(&["DBSIZE"]).as_str() {
                "0" => Ok(()),
                left => Err(left.to_owned()),
            }
        })
        .await;
        assert!(server.calls("set") >= 2 * NAMES as u64, "each was taken and given back");
    });
}

#[test]
fn the_keys_of_a_holder_and_of_waiters_that_died_end_by_themselves() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "retention=500ms");
    on(server, &url, |stage, server| async move {
        // They live in other processes, and are killed.
        let mut holder = stage.child(&Role::Lock("x".into())).expect("a process");
        holder.held().await;
        let mut permits = stage.child(&Role::Permits("s".into(), 2, 3)).expect("a process");
        permits.held().await;
        let mut alone = stage.child(&Role::Lock("y".into())).expect("a process");
        alone.held().await;
        let waiting = stage.child(&Role::Lock("x".into())).expect("a process");
        stage.waiters("x", 1).await;
        for child in [holder, permits, alone, waiting] {
            child.kill().await;
        }
        assert!(keys(&server).len() >= 3);
        // Nobody looks at the locks meanwhile: nothing but the server ends the keys.
        no_keys(&server).await;
    });
}

#[test]
fn the_keys_of_a_client_that_is_cut_off_for_good_end_by_themselves() {
    let server = Redis::start(RedisOptions::new());
    let proxy = Proxy::start(server.address());
    let url = fresh_url(&server.url(), "retention=500ms");
    on((server, proxy), &url.clone(), |stage, servers| async move {
        let (server, proxy) = &*servers;
        let lease = Duration::from_millis(900);
        // Keys last as long as the longest lease that was asked for on them, so all ask for short ones.
        let short = || Client::builder().default_lease(lease);
        let client = connect(&through(&url, server, proxy), short()).await;
        let (guard, held) =
            (lock(&client.mutex("x")).await, lock(&stage.open(short()).await.mutex("y")).await);
        let waiting = waiter(&client.mutex("y"));
        stage.waiters("y", 1).await;
        proxy.refuse();
        soon("the loss", guard.lost()).await;
        release(held).await;
        no_keys(server).await;
        waiting.abort();
    });
}

#[test]
fn a_key_lasts_as_long_as_the_longest_place_in_it() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "retention=500ms");
    on(server, &url, |stage, server| async move {
        let with = |lease| stage.open(Client::builder().default_lease(Duration::from_secs(lease)));
        let (short, long) = (with(1).await.mutex("x"), with(600).await.mutex("x"));
        let other = with(1).await.mutex("x");
        let lasts = |why: &str| {
            let left = keys(&server).into_iter().find(|(key, _)| key.ends_with("{x}")).expect("a lock").1;
            assert!(left > 500_000, "{why}: {left} ms are left");
        };
        let guard = lock(&short).await;
        let waiting = waiter(&long);
        stage.waiters("x", 1).await;
        lasts("somebody waits");
        let written = server.calls("set");
        eventually("the holder is renewed twice", || async {
            let renewed = server.calls("set") - written;
            if renewed >= 2 { Ok(()) } else { Err(renewed) }
        })
        .await;
        lasts("the holder, whose lease is short, is renewed");
        let behind = waiter(&other);
        stage.waiters("x", 2).await;
        lasts("one that may wait for a short time only comes too");
        release(guard).await;
        let guard = granted(waiting).await;
        lasts("it is handed over");
        release(guard).await;
        release(granted(behind).await).await;
    });
}

#[test]
fn no_key_is_without_an_end_while_locks_are_used() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "retention=2s");
    on(server, &url, |stage, server| async move {
        let watcher = stage.client("watcher").await;
        let _events = watcher.watch("").await.expect("a watch");
        let mut tasks = JoinSet::new();
        for n in 0..6 {
            let client = stage.direct(&format!("client {n}")).await;
            tasks.spawn(async move {
                loop {
                    let short = Duration::from_millis(3);
                    drop(client.mutex("m").lock().await.expect("a lock"));
                    drop(client.mutex("m").order(Order::Barge).lock().await.expect("a lock"));
                    drop(client.mutex("f").lease(Duration::from_millis(20)).lock().await.expect("a lock"));
                    drop(client.rwlock("r").read().await.expect("a read lock"));
                    drop(client.rwlock("r").write().await.expect("a write lock").downgrade().await);
                    drop(client.semaphore("s", 3).acquire(2).await.expect("permits"));
                    drop(client.mutex("m").lock_within(short).await.expect("a timed try"));
                }
            });
        }
        let mut seen = BTreeMap::new();
        for _ in 0..200 {
            let now = keys(&server);
            let endless: Vec<_> = now.iter().filter(|(_, left)| **left < 0).collect();
            assert!(endless.is_empty(), "without an end: {endless:?}");
            seen.extend(now);
            tokio::task::yield_now().await;
        }
        // All kinds of keys were there: the lock itself, entries, queue, those that barge, ends, and the flag of watchers.
        for end in ["{m}", "{m}:e", "{m}:o", "{m}:b", "{m}:x", "{s}", "{r}:e", ":w"] {
            assert!(seen.keys().any(|key| key.ends_with(end)), "no key {end:?} in {seen:?}");
        }
        tasks.shutdown().await;
    });
}

#[test]
fn waiting_for_a_short_time_again_and_again_leaves_no_key() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, server| async move {
        let (a, b) = (stage.client("a").await, stage.direct("b").await);
        let guard = lock(&a.mutex("x")).await;
        let before = keys(&server).len();
        let mut tasks = JoinSet::new();
        for n in 0..200u64 {
            let mutex = b.mutex("x");
            let time = Duration::from_millis(n % 7);
            tasks.spawn(async move { mutex.lock_within(time).await });
        }
        while let Some(done) = soon("the short waits", tasks.join_next()).await {
            assert!(done.expect("a task").expect("a timed try").is_none());
        }
        stage.waiters("x", 0).await;
        let during = keys(&server);
        // The holder, its record, its place and its end. None is left of those that waited.
        assert!(during.len() <= before + 3, "{during:?}");
        assert!(!during.keys().any(|key| key.ends_with(":b")), "{during:?}");
        release(guard).await;
        assert_eq!(keys(&server).len(), 1, "the last token is all that stays for a day");
        drop(granted(waiter(&b.mutex("x"))).await);
    });
}
