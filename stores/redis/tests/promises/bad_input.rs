//! Foreign data under our names, and a server that is full: clear errors, and what is held can still be given back.

use std::time::Duration;

use leasehold_client::Client;
use leasehold_core::Kind;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::wait::{eventually, soon};

use crate::common::play::{connect, fresh_url, granted, lock, on, release, waiter};

/// The key of a lock.
fn key(url: &str, name: &str) -> String {
    let prefix = url.split("prefix=").nth(1).and_then(|rest| rest.split('&').next()).expect("a prefix");
    format!("{prefix}n:{{{name}}}")
}

#[test]
fn a_key_of_another_type_under_our_name_is_a_mismatch() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url.clone(), |stage, server| async move {
        let (client, key) = (stage.client("a").await, key(&url, "x"));
        server.cli(&["LPUSH", &key, "theirs"]);
        let error = soon("the error", client.mutex("x").lock()).await.expect_err("it is not a lock");
        assert_eq!(error.kind(), Kind::Mismatch, "{error}");
        assert!(error.to_string().contains("a key of another type under our name"), "{error}");
        assert!(error.to_string().contains("prefix"), "it says what can be done: {error}");
        assert!(client.mutex("x").try_lock().await.is_err());
        assert!(client.inspect("x").await.is_err());
        assert_eq!(server.cli(&["LRANGE", &key, "0", "-1"]), "theirs", "nothing was changed");
        server.cli(&["DEL", &key]);
        release(lock(&client.mutex("x")).await).await;
    });
}

#[test]
fn a_foreign_text_under_our_name_is_told_and_left_alone() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url.clone(), |stage, server| async move {
        let (client, key) = (stage.client("a").await, key(&url, "x"));
        // Some begin as ours do.
        for text in [
            "theirs",
            "h theirs",
            "q theirs",
            "f theirs",
            "",
            "f ",
            "h 0000000000000001 ",
            "q 0000000000000001 x",
        ] {
            server.cli(&["SET", &key, text]);
            for tries in [false, true] {
                let mutex = client.mutex("x");
                let claim =
                    async { if tries { mutex.try_lock().await } else { mutex.lock().await.map(Some) } };
                let error = soon("the error", claim).await.expect_err("it is not a lock");
                assert!(matches!(error.kind(), Kind::Mismatch | Kind::Store), "{text:?}: {error}");
                assert!(error.to_string().contains("not a lock"), "{text:?}: {error}");
                assert!(error.to_string().contains(&key), "it says where: {text:?}: {error}");
            }
            assert_eq!(server.cli(&["GET", &key]), text, "nothing was changed");
            assert_eq!(server.cli(&["DBSIZE"]), "1", "{text:?}: nothing was added");
        }
        server.cli(&["DEL", &key]);
        release(lock(&client.mutex("x")).await).await;
    });
}

#[test]
fn foreign_data_does_not_break_the_list_of_others() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url.clone(), |stage, server| async move {
        let guard = lock(&stage.client("a").await.mutex("x")).await;
        server.cli(&["SET", &key(&url, "theirs"), "theirs"]);
        server.cli(&["LPUSH", &key(&url, "also theirs"), "theirs"]);
        let mut list = stage.observer().list("");
        let found = list.next().await.expect("a lock is held").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found.name.as_str(), "x");
        assert!(list.next().await.is_none());
        server.cli(&["DEL", &key(&url, "theirs"), &key(&url, "also theirs")]);
        release(guard).await;
    });
}

#[test]
fn foreign_data_where_a_lock_is_held_is_told_to_its_holder() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url.clone(), |stage, server| async move {
        let lease = Duration::from_millis(900);
        let client = stage.open(Client::builder().default_lease(lease)).await;
        let guard = lock(&client.mutex("x")).await;
        server.cli(&["SET", &key(&url, "x"), "theirs"]);
        // It can't be renewed, so it ends by the clock at the latest.
        soon("the loss", guard.lost()).await;
        let error = soon("a release", guard.release()).await.expect_err("it was lost");
        assert!(matches!(error.kind(), Kind::Lost | Kind::Mismatch), "{error}");
        server.cli(&["DEL", &key(&url, "x")]);
    });
}

#[test]
fn a_server_out_of_memory_refuses_claims_and_takes_releases() {
    let server = Redis::start(RedisOptions::new().line("maxmemory-policy noeviction"));
    let url = fresh_url(&server.url(), "");
    on(server, &url.clone(), |stage, server| async move {
        let lease = Duration::from_secs(3);
        let builder = || Client::builder().default_lease(lease);
        let (a, b) = (connect(&url, builder()).await, connect(&url, builder()).await);
        let impatient = connect(&url, builder().retry_for(Duration::from_secs(1))).await;
        let alone = lock(&a.mutex("alone")).await;
        let guard = lock(&a.mutex("x")).await;
        let waiting = waiter(&b.mutex("x"));
        stage.waiters("x", 1).await;
        let permits = a.semaphore("s", 2).acquire(1).await.expect("a permit");
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let error = soon("the error", impatient.mutex("other").lock()).await.expect_err("there is no memory");
        assert!(error.to_string().contains("out of memory"), "{error}");
        assert!(error.to_string().contains("maxmemory"), "it says what can be done: {error}");
        // What is held is renewed, handed over, looked at and given back.
        let mut lost = Box::pin(guard.lost());
        assert!(tokio::time::timeout(lease * 2, &mut lost).await.is_err(), "a lock was lost");
        drop(lost);
        assert_eq!(stage.look("x").await.waiters.len(), 1);
        release(guard).await;
        release(granted(waiting).await).await;
        release(permits).await;
        release(alone).await;
        stage.free("x").await;
        // Force release too.
        server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        let guard = lock(&a.mutex("x")).await;
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(b.force_release("x", None).await.expect("a force release").len(), 1);
        drop(guard);
        server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        release(lock(&b.mutex("other")).await).await;
    });
}

#[test]
fn a_claim_waits_for_memory_as_long_as_its_client_is_patient() {
    let server = Redis::start(RedisOptions::new().line("maxmemory-policy noeviction"));
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, server| async move {
        let mutex = stage.client("a").await.mutex("x");
        release(lock(&mutex).await).await;
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let claim = waiter(&mutex);
        eventually("it was refused", || async {
            let errors = server.cli(&["INFO", "errorstats"]);
            if errors.contains("errorstat_OOM") { Ok(()) } else { Err(errors) }
        })
        .await;
        server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        release(granted(claim).await).await;
    });
}
