//! Somebody deletes keys of a lock, one or another: whoever waits gets in, and the lock works again.

use std::time::Duration;

use leasehold_client::Client;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};

use crate::common::play::{fresh_url, granted, lock, on, release, waiter};

fn deleting(part: &'static str) {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, server| async move {
        let lease = Duration::from_millis(900);
        let short = |label: &str| stage.open(Client::builder().default_lease(lease).label(label));
        let (a, b, c) = (short("a").await, short("b").await, short("c").await);
        let guard = lock(&a.mutex("x")).await;
        let queued = waiter(&b.mutex("x"));
        stage.waiters("x", 1).await;
        let barging = waiter(&c.mutex("x").order(leasehold_client::Order::Barge));
        stage.waiters("x", 2).await;
        let found = server.cli(&["KEYS", &format!("*{{x}}{part}")]);
        assert_eq!(found.lines().count(), 1, "{found}");
        assert_eq!(server.cli(&["DEL", &found]), "1");
        drop(guard);
        // They get in, in whatever order. What is damaged is begun anew when it is noticed, so even they can lose it again.
        let passing = [queued, barging].map(|claim| tokio::spawn(async { drop(granted(claim).await) }));
        for passed in passing {
            passed.await.expect("it got in");
        }
        stage.free("x").await;
        release(lock(&a.mutex("x")).await).await;
    });
}

#[test]
fn deleting_the_lock_itself_does_not_hang_anybody() {
    deleting("");
}

#[test]
fn deleting_the_records_does_not_hang_anybody() {
    deleting(":e");
}

#[test]
fn deleting_the_queue_does_not_hang_anybody() {
    deleting(":o");
}

#[test]
fn deleting_those_that_barge_does_not_hang_anybody() {
    deleting(":b");
}

#[test]
fn deleting_the_ends_does_not_hang_anybody() {
    deleting(":x");
}
