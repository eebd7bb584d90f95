//! What a quorum promises: tokens that rise, split votes that end, late answers that leave nothing behind, nothing that comes back
//! from the dead.

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use common::{LONG, SHORT, client, fresh_prefix, fresh_url, open, take};
use leasehold_client::Client;
use leasehold_core::store::{
    Ask, Inbox, Joined, Leave, Left, Note, Otherwise, Presence, Renewal, Renewed, Session,
};
use leasehold_core::view::Lost;
use leasehold_core::{EntryId, Fence, Kind, Label, Lease, Name, SessionId, Want};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::{Independent, Redis};
use leasehold_testkit::wait::{eventually, soon};
use tokio::task::JoinSet;

static THREE: LazyLock<Independent> = LazyLock::new(|| Independent::start(3));

struct Deaf;

impl Inbox for Deaf {
    fn note(&self, _: Note) {}
    fn session_gone(&self) {}
}

/// A bare session, without a client that renews.
async fn session(url: &str) -> Arc<dyn Session> {
    let me = Presence { id: SessionId::random().expect("an id"), label: Label::new("bare") };
    open(url).expect("a store").open(me, Arc::new(Deaf)).await.expect("a session")
}

fn ask(name: &str, lease: Duration, otherwise: Otherwise) -> Ask {
    let id = EntryId::random().expect("an id");
    let name = Name::new(name).expect("a name");
    Ask { name, id, want: Want::Exclusive, lease: Lease::Kept(lease), place: lease, otherwise }
}

fn renewal(ask: &Ask, more_tokens: bool) -> Renewal {
    Renewal { name: ask.name.clone(), id: ask.id, token: None, more_tokens }
}

/// What a node has under a prefix: for looking, not for judging.
fn owners(server: &Redis, prefix: &str, name: &str) -> String {
    server.cli(&["HGET", &format!("{prefix}l:{name}"), "id"])
}

/// Ten thousand grants, while nodes are emptied and restarted at random, never more than one at a time of three.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_over_ten_thousand_grants_with_nodes_that_lose_their_data() {
    let servers = Arc::new(Independent::start(3));
    let url = fresh_url(&servers);
    let lease = Duration::from_millis(500);
    let (highest, grants, stop) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut workers = JoinSet::new();
    for n in 0..4 {
        let client = client(&url, lease).await;
        let (highest, grants, stop) = (highest.clone(), grants.clone(), stop.clone());
        workers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let Ok(guard) = client.mutex("x").lock().await else { continue };
                let token = guard.token().get();
                let before = highest.fetch_max(token, Ordering::SeqCst);
                // Who was paused past the end of its lease may come late; nobody else.
                assert!(before < token || !guard.is_held(), "client {n} holds with {token} after {before}");
                grants.fetch_add(1, Ordering::Relaxed);
                let _ = guard.release().await;
            }
        });
    }
    let chaos = tokio::task::spawn_blocking({
        let (servers, stop, grants, url) = (servers.clone(), stop.clone(), grants.clone(), url.clone());
        move || {
            let mut falls = 0;
            while grants.load(Ordering::Relaxed) < 10_000 {
                let victim = falls % 3;
                if falls % 2 == 0 {
                    servers[victim].restart_empty()
                } else {
                    drop(servers[victim].cli(&["FLUSHALL"]))
                }
                falls += 1;
                wait_until_counted(&servers, &url);
            }
            stop.store(true, Ordering::Relaxed);
            falls
        }
    });
    let falls = soon_enough(chaos).await;
    while let Some(done) = workers.join_next().await {
        done.expect("a worker");
    }
    assert!(falls >= 3, "only {falls} nodes fell");
}

/// Until every node counts again: the protocol bears one at a time.
fn wait_until_counted(servers: &Independent, url: &str) {
    let prefix = url.split("prefix=").nth(1).and_then(|rest| rest.split('&').next()).expect("a prefix");
    leasehold_testkit::servers::until("all nodes count", || {
        let all = servers.servers().iter().map(|s| s.cli(&["HGET", &format!("{prefix}node"), "standing"]));
        let all: Vec<String> = all.collect();
        if all.iter().all(|standing| standing == "2") { Ok(()) } else { Err(all.join(", ")) }
    });
}

async fn soon_enough<T>(task: tokio::task::JoinHandle<T>) -> T {
    match tokio::time::timeout(Duration::from_secs(120), task).await {
        Ok(done) => done.expect("a task"),
        Err(_) => panic!("ten thousand grants take too long"),
    }
}

/// Clients that all begin at the same moment, again and again, on a lock that nobody has.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_race_always_resolve() {
    let url = fresh_url(&THREE);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(client(&url, LONG).await);
    }
    for round in 0..100 {
        let (name, barrier) = (format!("race {round}"), Arc::new(tokio::sync::Barrier::new(3)));
        let mut racing = JoinSet::new();
        for client in &clients {
            let (mutex, barrier) = (client.mutex(name.as_str()), barrier.clone());
            racing.spawn(async move {
                barrier.wait().await;
                let guard = mutex.lock().await.expect("a lock");
                let token = guard.token();
                guard.release().await.expect("a release");
                token
            });
        }
        let mut tokens = BTreeSet::new();
        while let Some(token) = soon("a race", racing.join_next()).await {
            assert!(tokens.insert(token.expect("a task")), "a token was given twice");
        }
        assert_eq!(tokens.len(), 3);
    }
}

/// A try that finds nobody gets the lock, also when others try at the same moment: one of them does.
#[tokio::test(flavor = "multi_thread")]
async fn of_those_that_only_try_one_gets_in() {
    let url = fresh_url(&THREE);
    let (a, b) = (client(&url, LONG).await, client(&url, LONG).await);
    let mut in_vain = 0;
    for round in 0..60 {
        let name = format!("try {round}");
        let (first, second) = (a.mutex(name.as_str()), b.mutex(name.as_str()));
        let (one, two) = tokio::join!(first.try_lock(), second.try_lock());
        let (one, two) = (one.expect("a try"), two.expect("a try"));
        assert!(one.is_none() || two.is_none(), "two hold at once");
        in_vain += u32::from(one.is_none() && two.is_none());
    }
    assert!(in_vain < 30, "{in_vain} of 60 pairs of tries got nothing");
}

/// A node that answers long after the decision gives back what it granted.
#[tokio::test(flavor = "multi_thread")]
async fn late_answers_are_released() {
    let servers = Independent::start(3);
    let proxy = Proxy::start(servers[2].address());
    let prefix = fresh_prefix();
    let through = |port: u16| {
        format!(
            "redlock://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{port}?prefix={prefix}&timeout=2s",
            servers[0].port(),
            servers[1].port()
        )
    };
    let slow = client(&through(proxy.port()), LONG).await;
    take(&slow, "x").await.release().await.expect("a release");
    proxy.hang();
    // Held and given back by two nodes, while the third has heard of neither.
    take(&slow, "x").await.release().await.expect("a release");
    // A try that fails: the others are taken, and the third would grant.
    let direct = client(&through(servers[2].port()), LONG).await;
    let held = take(&direct, "y").await;
    servers[2].cli(&["DEL", &format!("{prefix}l:y")]);
    assert!(soon("a try", slow.mutex("y").try_lock()).await.expect("a try").is_none());
    proxy.pass();
    eventually("nothing is left of either", || async {
        let seen = [owners(&servers[2], &prefix, "x"), owners(&servers[2], &prefix, "y")];
        let slow_has = |id: &String| !id.is_empty() && id != "(nil)";
        if seen.iter().any(slow_has) { Err(seen) } else { Ok(()) }
    })
    .await;
    held.release().await.expect("a release");
}

/// A renewal that comes after the end is refused, though every node is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_never_brings_back_what_has_ended() {
    let url = fresh_url(&THREE);
    let late = session(&url).await;
    let ask = ask("x", SHORT, Otherwise::GoAway);
    let Joined::Held(grant) = late.clone().join(ask.clone()).await.expect("an answer") else {
        panic!("a grant")
    };
    tokio::time::sleep(SHORT + Duration::from_millis(50)).await;
    let answer = late
        .clone()
        .renew(vec![renewal(&ask, false)])
        .await
        .expect("an answer")
        .remove(0)
        .expect("an answer");
    assert_eq!(answer, Renewed::Gone(Lost::Expired));
    // Nor does it stand in anybody's way.
    let next = take(&client(&url, LONG).await, "x").await;
    assert!(next.token() > grant.tokens.last() || next.token() > grant.tokens.first);
    assert_eq!(
        late.clone().leave(Leave::new(ask.name.clone(), ask.id)).await.expect("an answer"),
        Left::NotThere
    );
    assert!(next.is_held());
    next.release().await.expect("a release");
    late.close().await.expect("a close");
}

/// The nodes say that it is still owned, but it was not answered in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_answered_late_is_none() {
    let servers = Independent::start(3);
    let proxies: Vec<Proxy> = servers.servers().iter().map(|s| Proxy::start(s.address())).collect();
    let hosts: Vec<String> = proxies.iter().map(|p| format!("127.0.0.1:{}", p.port())).collect();
    let url = format!("redlock://{}?timeout=5s", hosts.join(","));
    let late = session(&url).await;
    let lease = Duration::from_secs(3);
    let ask = ask("x", lease, Otherwise::GoAway);
    assert!(matches!(late.clone().join(ask.clone()).await, Ok(Joined::Held(_))));
    let began = Instant::now();
    // The renewal gets to the nodes, which extend the lease; their answers hang until it would have ended without.
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    proxies.iter().for_each(|p| p.delay(Duration::from_millis(430)));
    let answer = late.clone().renew(vec![renewal(&ask, false)]).await.expect("an answer").remove(0);
    if began.elapsed() > lease {
        assert_eq!(answer.expect("an answer"), Renewed::Gone(Lost::Expired));
    }
    proxies.iter().for_each(Proxy::pass);
    late.close().await.expect("a close");
}

/// A client that was paused past the end of its lease is refused by what it wants to write to.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_clients_token_is_refused() {
    let url = fresh_url(&THREE);
    let (a, b, fence) = (client(&url, LONG).await, client(&url, LONG).await, Fence::new());
    let paused = soon("a lock", a.mutex("x").lease(SHORT).lock()).await.expect("a lock");
    fence.check(paused.token()).expect("the first holder passes");
    let next = take(&b, "x").await;
    assert!(!paused.is_held(), "two hold at once");
    fence.check(next.token()).expect("the next holder passes");
    assert!(fence.check(paused.token()).is_err());
    next.release().await.expect("a release");
}

/// A session gets more tokens for what it holds, all of them above the last.
#[tokio::test(flavor = "multi_thread")]
async fn more_tokens_go_on_where_the_last_ended() {
    let url = fresh_url(&THREE);
    let session = session(&url).await;
    let ask = ask("x", LONG, Otherwise::GoAway);
    let Joined::Held(first) = session.clone().join(ask.clone()).await.expect("an answer") else {
        panic!("a grant")
    };
    let mut last = first.tokens.last();
    for _ in 0..3 {
        let answer = session.clone().renew(vec![renewal(&ask, true)]).await.expect("an answer").remove(0);
        let Ok(Renewed::Held(grant)) = answer else { panic!("{answer:?}") };
        assert!(grant.tokens.first > last);
        last = grant.tokens.last();
    }
    // What was used is never given again; what was not, may be.
    let leave = Leave { name: ask.name.clone(), id: ask.id, used: Some(last) };
    assert_eq!(session.clone().leave(leave).await.expect("an answer"), Left::Done);
    assert!(take(&client(&url, LONG).await, "x").await.token() > last);
    session.close().await.expect("a close");
}

/// The same request again, after an answer that was lost, changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn asking_again_with_the_same_id_is_the_same_lease() {
    let url = fresh_url(&THREE);
    let session = session(&url).await;
    let ask = ask("x", LONG, Otherwise::GoAway);
    let Joined::Held(first) = session.clone().join(ask.clone()).await.expect("an answer") else {
        panic!("a grant")
    };
    let Joined::Held(again) = session.clone().join(ask.clone()).await.expect("an answer") else {
        panic!("a grant")
    };
    assert_eq!(first.tokens, again.tokens);
    let leave = Leave::new(ask.name.clone(), ask.id);
    assert_eq!(session.clone().leave(leave.clone()).await.expect("an answer"), Left::Done);
    assert_eq!(session.clone().leave(leave).await.expect("an answer"), Left::NotThere);
    session.close().await.expect("a close");
}

/// Tokens that were not used go back with the lock: so one that is taken all the time does not run ahead of the clock.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_were_not_used_go_back() {
    let prefix = fresh_prefix();
    let client = client(&format!("{}?prefix={prefix}&timeout=2s", THREE.url()), LONG).await;
    let guard = take(&client, "x").await;
    let token = guard.token().to_string();
    guard.release().await.expect("a release");
    eventually("all nodes go on from the token that was used", || async {
        let counter = |server: &Redis| server.cli(&["HGET", &format!("{prefix}l:x"), "c"]);
        let counters: Vec<String> = THREE.servers().iter().map(counter).collect();
        if counters.iter().all(|counter| *counter == token) { Ok(()) } else { Err((counters, &token)) }
    })
    .await;
}

/// A request that waited while its entry left does not bring it back.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_left_stays_away() {
    let url = fresh_url(&THREE);
    let (holder, session) = (client(&url, LONG).await, session(&url).await);
    let held = take(&holder, "x").await;
    for _ in 0..10 {
        let ask = ask("x", LONG, Otherwise::Queue);
        assert!(matches!(session.clone().join(ask.clone()).await, Ok(Joined::Waiting(_))));
        let leave = session.clone().leave(Leave::new(ask.name.clone(), ask.id));
        let (renew, join) =
            (session.clone().renew(vec![renewal(&ask, false)]), session.clone().join(ask.clone()));
        let (left, _, joined) = tokio::join!(leave, renew, join);
        assert_eq!(left.expect("an answer"), Left::Done);
        assert_eq!(joined.expect("an answer"), Joined::Busy);
    }
    eventually("nobody waits", || async {
        let seen = holder.inspect("x").await.expect("a look");
        if seen.waiters.is_empty() { Ok(()) } else { Err(seen) }
    })
    .await;
    held.release().await.expect("a release");
    session.close().await.expect("a close");
}

/// A holder is told at once when its lock was taken away, by a quorum and only once.
#[tokio::test(flavor = "multi_thread")]
async fn a_force_release_reaches_the_holder_when_a_node_is_down() {
    let servers = Independent::start(3);
    let url = fresh_url(&servers);
    let (a, b) = (client(&url, LONG).await, client(&url, LONG).await);
    let held = take(&a, "x").await;
    servers[1].kill();
    assert_eq!(b.force_release("x", Some(held.token())).await.expect("a force release").len(), 1);
    assert_eq!(soon("the loss", held.lost()).await, Lost::Revoked);
    take(&b, "x").await.release().await.expect("a release");
}

/// One node is enough to tell the holder, and a quorum to remember it.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_reaches_the_holder_when_a_node_is_down_and_is_seen_by_every_quorum() {
    let servers = Independent::start(3);
    let url = fresh_url(&servers);
    let (a, b) = (client(&url, LONG).await, client(&url, LONG).await);
    let (bare, name) = (session(&url).await, Name::new("x").expect("a name"));
    let guard = take(&a, "x").await;
    servers[2].kill();
    assert_eq!(soon("a request", b.request_release("x", None)).await.expect("a quorum").len(), 1);
    soon("the news", guard.release_requested()).await;
    assert!(b.inspect("x").await.expect("a look").holders[0].release_requested);
    guard.release().await.expect("a release");
    let next = take(&b, "x").await;
    assert!(!next.is_release_requested());
    assert!(!a.inspect("x").await.expect("a look").holders[0].release_requested);
    servers[1].kill();
    let asked = soon("no quorum", bare.request_release(name, None)).await;
    let error = asked.expect_err("one node is no quorum");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.to_string().contains("no quorum"), "{error}");
}

/// Who waits is called when the lock is given back, long before it would look by itself.
#[tokio::test(flavor = "multi_thread")]
async fn those_that_wait_are_called() {
    let url = fresh_url(&THREE);
    let (a, b): (Client, Client) = (client(&url, LONG).await, client(&url, LONG).await);
    for _ in 0..20 {
        let held = take(&a, "x").await;
        let waiting = tokio::spawn({
            let mutex = b.mutex("x");
            async move { mutex.lock().await }
        });
        eventually("it waits", || async {
            let seen = a.inspect("x").await.expect("a look");
            if seen.waiters.len() == 1 { Ok(()) } else { Err(seen) }
        })
        .await;
        held.release().await.expect("a release");
        // A lease is a minute, and a look by itself comes after a third of it.
        let guard = soon("the one that waits", waiting).await.expect("a task").expect("a lock");
        guard.release().await.expect("a release");
    }
}
