//! How many commands things cost, counted by the server and on the wire.

use std::time::Duration;

use leasehold_client::{Budget, Client, ClientBuilder};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::wait::{eventually, soon};
use tokio::task::JoinSet;

use crate::common::play::{connect, fresh_url, granted, lock, on, release, through, waiter};

/// So long that nothing is renewed while commands are counted.
const LONG: Duration = Duration::from_secs(600);

/// Counts what goes to a server: all of it on the wire, and what the server made of it.
struct Counter<'a> {
    server: &'a Redis,
    proxy: &'a Proxy,
    before: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    requests: u64,
    scripts: u64,
    heartbeats: u64,
}

impl<'a> Counter<'a> {
    fn start(server: &'a Redis, proxy: &'a Proxy) -> Self {
        Counter { server, proxy, before: Counts::read(server, proxy) }
    }

    /// Exactly so many scripts were called since the start, and nothing else was sent but heartbeats.
    async fn expect(&self, scripts: u64, what: &str) {
        eventually(what, || async {
            let (now, before) = (Counts::read(self.server, self.proxy), self.before);
            let sent = now.requests - before.requests;
            let beats = now.heartbeats - before.heartbeats;
            // Heartbeats of others count too.
            if now.scripts - before.scripts == scripts && (scripts..=scripts + beats).contains(&sent) {
                Ok(())
            } else {
                Err((before, now))
            }
        })
        .await;
    }
}

impl Counts {
    fn read(server: &Redis, proxy: &Proxy) -> Self {
        Counts {
            requests: proxy.requests(),
            scripts: server.calls("evalsha"),
            heartbeats: server.calls("ping"),
        }
    }
}

fn patient() -> ClientBuilder {
    Client::builder().default_lease(LONG)
}

#[test]
fn an_uncontended_lock_is_one_command_and_an_unlock_is_one() {
    let server = Redis::start(RedisOptions::new());
    let proxy = Proxy::start(server.address());
    let url = fresh_url(&server.url(), "");
    on((server, proxy), &url.clone(), |_, servers| async move {
        let (server, proxy) = &*servers;
        for builder in [patient(), patient().local_queue(Budget::off())] {
            let client = connect(&through(&url, server, proxy), builder).await;
            let (mutex, rwlock, semaphore) =
                (client.mutex("m"), client.rwlock("r"), client.semaphore("s", 3));
            // The first call of a script loads it.
            release(lock(&mutex).await).await;
            let counter = Counter::start(server, proxy);
            let guard = lock(&mutex).await;
            counter.expect(1, "a lock is one command").await;
            release(guard).await;
            counter.expect(2, "an unlock is one command").await;
            for _ in 0..50 {
                release(lock(&mutex).await).await;
            }
            counter.expect(102, "each is, every time").await;
            release(rwlock.read().await.expect("a read lock")).await;
            release(rwlock.write().await.expect("a write lock").into_guard()).await;
            release(semaphore.acquire(2).await.expect("permits")).await;
            drop(lock(&mutex).await);
            counter.expect(110, "so it is with every kind of lock, and with a dropped guard").await;
            assert!(mutex.try_lock().await.expect("a try").is_some());
            counter.expect(112, "so it is with a try").await;
            client.close().await.expect("a close");
        }
    });
}

#[test]
fn a_hand_off_between_clients_is_one_command_and_one_push() {
    let server = Redis::start(RedisOptions::new());
    let (of_a, of_b) = (Proxy::start(server.address()), Proxy::start(server.address()));
    let url = fresh_url(&server.url(), "");
    on((server, of_a, of_b), &url.clone(), |stage, servers| async move {
        let (server, of_a, of_b) = &*servers;
        let a = connect(&through(&url, server, of_a), patient()).await.mutex("x");
        let b = connect(&through(&url, server, of_b), patient()).await.mutex("x");
        // The first round loads the scripts, and shows that pushes arrive at both: before, a waiter looks twice.
        for (from, to) in [(&a, &b), (&b, &a)] {
            let guard = lock(from).await;
            let waiting = waiter(to);
            stage.waiters("x", 1).await;
            release(guard).await;
            release(granted(waiting).await).await;
        }
        let guard = lock(&a).await;
        let (pushes, beats) = (server.calls("publish"), server.calls("ping"));
        let sent_before = [of_a.requests(), of_b.requests()];
        // One command each, and perhaps a heartbeat.
        let sent = || {
            let beats = server.calls("ping") - beats;
            let since = |proxy: &Proxy, before: u64| (proxy.requests() - before).saturating_sub(beats);
            [since(of_a, sent_before[0]), since(of_b, sent_before[1])]
        };
        let waiting = waiter(&b);
        stage.waiters("x", 1).await;
        assert!(sent()[1] <= 1, "to wait is one command");
        release(guard).await;
        let guard = granted(waiting).await;
        assert!(sent().iter().all(|sent| *sent <= 1), "a release is one, and the woken waiter asks nothing");
        assert_eq!(server.calls("publish") - pushes, 1, "it was told by one push");
        release(guard).await;
    });
}

#[test]
fn a_thousand_held_locks_are_renewed_by_few_commands() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, server| async move {
        let client = stage.open(Client::builder().default_lease(Duration::from_secs(3))).await;
        let mut taking = JoinSet::new();
        for n in 0..1000 {
            let mutex = client.mutex(format!("lock {n}"));
            taking.spawn(async move { mutex.lock().await });
        }
        let mut guards = Vec::new();
        while let Some(taken) = soon("a thousand locks", taking.join_next()).await {
            guards.push(taken.expect("a task").expect("a lock"));
        }
        // Renewing a lock is one SET inside a script.
        let written = |before: u64| server.calls("set") - before;
        let (scripts, sets) = (server.calls("evalsha"), server.calls("set"));
        eventually("all are renewed three times", || async {
            if written(sets) >= 3000 { Ok(()) } else { Err(written(sets)) }
        })
        .await;
        let (scripts, sets) = (server.calls("evalsha") - scripts, written(sets));
        // Eight would do. Leases that began at different moments are renewed at different moments too.
        assert!(scripts * 10 <= sets, "{sets} renewals took {scripts} commands");
        assert!(guards.iter().all(|guard| guard.is_held()));
        let mut releasing: JoinSet<_> = guards.into_iter().map(|guard| guard.release()).collect();
        while let Some(done) = soon("all releases", releasing.join_next()).await {
            done.expect("a task").expect("a release");
        }
    });
}
