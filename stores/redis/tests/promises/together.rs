//! Many requests at the same moment share calls, and each is answered as if it had been alone.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use leasehold_client::{Client, Guard, Happened};
use leasehold_core::store::{Ask, Inbox, Joined, Leave, Left, Note, Otherwise, Presence, Session};
use leasehold_core::{EntryId, Kind, Label, Lease, Name, Result, SessionId, Want};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::wait::{eventually, soon};

use crate::common::open;
use crate::common::play::{connect, fresh_url, granted, hears, lock, on, release, through, waiter};

/// So long that nothing is renewed while commands are counted.
const LONG: Duration = Duration::from_secs(600);

const MANY: usize = 64;

fn name(n: usize) -> String {
    format!("lock {n}")
}

/// Asks for all of them at the same moment.
async fn claims(client: &Client) -> Vec<Result<Guard>> {
    let locks: Vec<_> = (0..MANY).map(|n| client.mutex(name(n))).collect();
    soon("all answers", join_all(locks.iter().map(|lock| lock.lock()))).await
}

async fn lock_all(client: &Client) -> Vec<Guard> {
    claims(client).await.into_iter().map(|guard| guard.expect("a lock")).collect()
}

async fn release_all(guards: Vec<Guard>) {
    for released in soon("all releases", join_all(guards.into_iter().map(|guard| guard.release()))).await {
        released.expect("a release");
    }
}

/// The key of a lock.
fn key(url: &str, name: &str) -> String {
    let prefix = url.split("prefix=").nth(1).and_then(|rest| rest.split('&').next()).expect("a prefix");
    format!("{prefix}n:{{{name}}}")
}

fn patient() -> leasehold_client::ClientBuilder {
    Client::builder().default_lease(LONG)
}

#[test]
fn many_at_the_same_moment_are_few_commands() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, server| async move {
        let client = stage.open(patient()).await;
        hears(&stage, &client).await;
        release_all(lock_all(&client).await).await;
        let before = server.calls("evalsha");
        let guards = lock_all(&client).await;
        let tokens: Vec<u64> = guards.iter().map(|guard| guard.token().0).collect();
        release_all(guards).await;
        let calls = server.calls("evalsha") - before;
        // Four would do. On two threads some go out before others are ready.
        assert!(calls <= MANY as u64, "{MANY} locks and releases took {calls} calls");
        let again = lock_all(&client).await;
        assert!(again.iter().zip(&tokens).all(|(guard, before)| guard.token().0 > *before), "tokens rise");
        assert!((0..MANY).all(|n| again[n].is_held()));
        for n in [0, MANY / 2, MANY - 1] {
            let seen = stage.holders(&name(n), 1).await;
            assert_eq!(seen.holders[0].token, Some(again[n].token()));
        }
        release_all(again).await;
    });
}

#[test]
fn a_foreign_key_fails_alone() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url.clone(), |stage, server| async move {
        let client = stage.open(patient()).await;
        release_all(lock_all(&client).await).await;
        let (typed, text) = (key(&url, &name(20)), key(&url, &name(40)));
        server.cli(&["DEL", &typed]);
        server.cli(&["LPUSH", &typed, "theirs"]);
        server.cli(&["SET", &text, "theirs"]);
        let mut guards = Vec::new();
        for (n, claim) in claims(&client).await.into_iter().enumerate() {
            match (n, claim) {
                (20 | 40, claim) => {
                    let error = claim.expect_err("it is not a lock");
                    assert_eq!(error.kind(), Kind::Mismatch, "{error}");
                }
                (_, claim) => guards.push(claim.expect("a lock")),
            }
        }
        assert_eq!(server.cli(&["LRANGE", &typed, "0", "-1"]), "theirs", "nothing was changed");
        assert_eq!(server.cli(&["GET", &text]), "theirs", "nothing was changed");
        release_all(guards).await;
        server.cli(&["DEL", &typed, &text]);
    });
}

#[test]
fn locks_that_others_want_are_handed_over() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, _server| async move {
        let (a, b) = (stage.open(patient()).await, stage.open(patient()).await);
        let guards = lock_all(&a).await;
        let mut waiting = Vec::new();
        for n in (0..MANY).step_by(7) {
            waiting.push(waiter(&b.mutex(name(n))));
            stage.waiters(&name(n), 1).await;
        }
        let tokens: Vec<u64> = guards.iter().map(|guard| guard.token().0).collect();
        release_all(guards).await;
        for (n, waiter) in (0..MANY).step_by(7).zip(waiting) {
            let guard = granted(waiter).await;
            assert!(guard.token().0 > tokens[n]);
            let busy = a.mutex(name(n)).try_lock().await.expect("a try");
            assert!(busy.is_none(), "it is held");
            release(guard).await;
        }
    });
}

#[test]
fn all_of_them_are_told_to_watchers() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, _server| async move {
        let client = stage.open(patient()).await;
        release_all(lock_all(&client).await).await;
        let mut watch = stage.observer().watch("").await.expect("a watch");
        release_all(lock_all(&client).await).await;
        let (mut acquired, mut released) = (0, 0);
        while acquired < MANY || released < MANY {
            match soon("an event", watch.next()).await.expect("an event").expect("no gap").what {
                Happened::Acquired => acquired += 1,
                Happened::Released => released += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((acquired, released), (MANY, MANY));
    });
}

#[test]
fn a_server_out_of_memory_refuses_each_claim_and_takes_each_release() {
    let server = Redis::start(RedisOptions::new().line("maxmemory-policy noeviction"));
    let url = fresh_url(&server.url(), "");
    on(server, &url.clone(), |stage, server| async move {
        let client = connect(&url, patient().retry_for(Duration::from_secs(2))).await;
        release_all(lock_all(&client).await).await;
        let guards = lock_all(&client).await;
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let others: Vec<_> = (0..MANY).map(|n| client.mutex(format!("other {n}"))).collect();
        let claims = join_all(others.iter().map(|lock| lock.lock()));
        let releases = join_all(guards.into_iter().map(|guard| guard.release()));
        let (claims, releases) = soon("all answers", async { tokio::join!(claims, releases) }).await;
        releases.into_iter().for_each(|released| released.expect("a release"));
        for claim in claims {
            let error = claim.expect_err("there is no memory");
            assert!(error.to_string().contains("out of memory"), "{error}");
        }
        assert!(stage.all().await.is_empty(), "nothing is held");
        server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    });
}

#[test]
fn without_replicas_none_of_them_counts() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url.clone(), |stage, _server| async move {
        let strict = format!("{url}&replicas=1&replicas-timeout=50ms");
        let client = connect(&strict, patient().retry_for(Duration::from_millis(300))).await;
        for claim in claims(&client).await {
            let error = claim.expect_err("no replica has it");
            assert!(error.to_string().contains("not enough replicas"), "{error}");
        }
        eventually("all were given back", || async {
            let left = stage.all().await;
            if left.is_empty() { Ok(()) } else { Err(left.len()) }
        })
        .await;
    });
}

#[test]
fn lost_answers_and_requests_are_resolved_for_each() {
    let server = Redis::start(RedisOptions::new());
    let proxy = Proxy::start(server.address());
    let url = fresh_url(&server.url(), "timeout=300ms");
    on((server, proxy), &url.clone(), |stage, servers| async move {
        let (server, proxy) = &*servers;
        let client = connect(&through(&url, server, proxy), patient()).await;
        release_all(lock_all(&client).await).await;
        for round in 0..6 {
            let lose = || match round % 2 {
                0 => proxy.lose_answer_to(b"EVALSHA"),
                _ => proxy.cut_before(b"EVALSHA"),
            };
            lose();
            let guards = lock_all(&client).await;
            assert_eq!(proxy.faults_left(), 0, "it happened");
            assert_eq!(stage.all().await.len(), MANY, "round {round}: each is held once");
            lose();
            release_all(guards).await;
            assert!(stage.all().await.is_empty(), "round {round}: each was given back");
        }
        release(lock(&client.mutex("x")).await).await;
    });
}

#[test]
fn a_client_that_closes_leaves_nothing_behind() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, _server| async move {
        for _ in 0..20 {
            let client = stage.open(patient()).await;
            let locks: Vec<_> = (0..MANY).map(|n| client.mutex(name(n))).collect();
            let claims = join_all(locks.iter().map(|lock| lock.lock()));
            // Some are on their way when it closes.
            let (closed, claims) = soon("the end", async { tokio::join!(client.close(), claims) }).await;
            closed.expect("a close");
            drop(claims);
            eventually("nothing is left", || async {
                let left = stage.all().await;
                if left.is_empty() { Ok(()) } else { Err(left.len()) }
            })
            .await;
        }
    });
}

/// What a client does again hides what a session did wrong; so these ask a session itself.
async fn session(url: &str) -> Arc<dyn Session> {
    struct Nobody;
    impl Inbox for Nobody {
        fn note(&self, _: Note) {}
        fn session_gone(&self) {}
    }
    let me = Presence { id: SessionId(7), label: Label::new("a test") };
    open(url).expect("a store").open(me, Arc::new(Nobody)).await.expect("a session")
}

fn ask(n: usize) -> Ask {
    Ask {
        name: Name::new(name(n)).expect("a name"),
        id: EntryId(1 + n as u128),
        want: Want::Exclusive,
        lease: Lease::Kept(LONG),
        place: LONG,
        otherwise: Otherwise::Queue,
    }
}

#[test]
fn a_call_that_is_refused_is_made_for_each_alone() {
    let server = Redis::start(RedisOptions::new().line("maxmemory-policy noeviction"));
    let url = fresh_url(&server.url(), "");
    on(server, &url.clone(), |_, server| async move {
        let session = session(&url).await;
        let joined = join_all((0..MANY).map(|n| session.clone().join(ask(n)))).await;
        assert!(joined.iter().all(|joined| matches!(joined, Ok(Joined::Held(_)))), "{joined:?}");
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let leaves = (0..MANY).map(|n| session.clone().leave(Leave::new(ask(n).name, ask(n).id)));
        let left = join_all(leaves).await;
        server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(left.iter().all(|left| matches!(left, Ok(Left::Done))), "{left:?}");
        session.close().await.expect("a close");
    });
}

#[test]
fn what_is_put_down_when_a_session_ends_is_not_held_by_nobody() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url.clone(), |stage, _server| async move {
        let session = session(&url).await;
        let mut joins: Vec<_> = (0..MANY).map(|n| session.clone().join(ask(n))).collect();
        for join in &mut joins {
            assert!(poll!(join).is_pending());
        }
        let (closed, _) = soon("the end", async { tokio::join!(session.close(), join_all(joins)) }).await;
        closed.expect("a close");
        assert!(stage.all().await.is_empty(), "nothing is held");
    });
}
