//! Nodes that are dead, hang, come back empty or lose their majority: what still works, and what is said.

mod common;

use std::time::{Duration, Instant};

use common::{LONG, SHORT, client, fresh_url, open, take};
use leasehold_client::Client;
use leasehold_core::view::Lost;
use leasehold_core::{Fence, Kind};
use leasehold_redlock::protocol::standing::Standing;
use leasehold_redlock::{Config, Redlock, facts};
use leasehold_testkit::servers::{Independent, RedisOptions};
use leasehold_testkit::wait::{eventually, soon};

/// Locks and unlocks a few times from two clients, and checks that tokens rise.
async fn works(a: &Client, b: &Client, highest: &Fence) {
    for client in [a, b, a, b] {
        let guard = take(client, "x").await;
        highest.check(guard.token()).expect("a token that is higher than all before");
        guard.release().await.expect("a release");
    }
}

async fn standings(url: &str) -> Vec<Option<Standing>> {
    let store = Redlock::new(Config::parse(url).expect("a URL"));
    let facts = facts(&store).await.expect("facts");
    facts.nodes.iter().map(|node| node.answer.as_ref().ok().map(|answer| answer.standing)).collect()
}

async fn all_open(url: &str) {
    eventually("all nodes are open", || async {
        let seen = standings(url).await;
        if seen.iter().all(|s| *s == Some(Standing::Open)) { Ok(()) } else { Err(seen) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_work_when_two_are_dead() {
    let servers = Independent::start(5);
    let url = fresh_url(&servers);
    let (a, b, fence) = (client(&url, LONG).await, client(&url, LONG).await, Fence::new());
    works(&a, &b, &fence).await;
    let held = take(&a, "held").await;
    servers[1].kill();
    servers[3].kill();
    works(&a, &b, &fence).await;
    // Who comes now finds the same set, without having seen all of it.
    let c = client(&url, LONG).await;
    works(&c, &b, &fence).await;
    assert!(held.is_held());
    assert!(soon("a try", b.mutex("held").try_lock()).await.expect("a try").is_none());
    held.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_work_when_two_hang() {
    let servers = Independent::start(5);
    let url = fresh_url(&servers);
    let (a, b, fence) = (client(&url, LONG).await, client(&url, LONG).await, Fence::new());
    works(&a, &b, &fence).await;
    servers[0].pause();
    servers[4].pause();
    works(&a, &b, &fence).await;
    servers[0].resume();
    servers[4].resume();
    works(&a, &b, &fence).await;
}

/// A node may take a minute to answer here, and nobody waits so long for it.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_nodes_that_are_not_needed() {
    let servers = Independent::start(5);
    let url = format!("{}?timeout=60s", servers.url());
    let client = client(&url, Duration::from_secs(600)).await;
    take(&client, "x").await.release().await.expect("a release");
    servers[1].pause();
    servers[2].pause();
    for _ in 0..3 {
        take(&client, "x").await.release().await.expect("a release");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_work_when_two_come_back_empty_and_these_are_counted_again_later() {
    let servers = Independent::start(5);
    let url = fresh_url(&servers);
    let (a, b, fence) = (client(&url, SHORT).await, client(&url, SHORT).await, Fence::new());
    works(&a, &b, &fence).await;
    let held = take(&a, "held").await;
    servers[1].restart_empty();
    servers[2].restart_empty();
    works(&a, &b, &fence).await;
    assert!(held.is_held());
    all_open(&url).await;
    works(&a, &b, &fence).await;
    // It was planted again on those that had lost it: so it survives the loss of two others.
    assert!(held.is_held());
    servers[0].kill();
    servers[3].kill();
    works(&a, &b, &fence).await;
    assert!(soon("a try", b.mutex("held").try_lock()).await.expect("a try").is_none());
    held.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_back_with_old_data_is_not_counted_either() {
    let servers = Independent::start_with(3, RedisOptions::new().append_only());
    let url = fresh_url(&servers);
    let (a, b, fence) = (client(&url, SHORT).await, client(&url, SHORT).await, Fence::new());
    works(&a, &b, &fence).await;
    servers[0].restart();
    eventually("it is in quarantine", || async {
        let seen = standings(&url).await;
        if seen[0] == Some(Standing::Quarantined) { Ok(()) } else { Err(seen) }
    })
    .await;
    works(&a, &b, &fence).await;
    all_open(&url).await;
    works(&a, &b, &fence).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_emptied_while_it_ran_is_not_counted_for_a_while() {
    let servers = Independent::start(3);
    let url = fresh_url(&servers);
    let (a, b, fence) = (client(&url, SHORT).await, client(&url, SHORT).await, Fence::new());
    works(&a, &b, &fence).await;
    servers[2].cli(&["FLUSHALL"]);
    works(&a, &b, &fence).await;
    assert_ne!(standings(&url).await[2], Some(Standing::Open));
    all_open(&url).await;
    works(&a, &b, &fence).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_dead_nodes_of_five_are_told_as_no_quorum_in_time() {
    let servers = Independent::start(5);
    let url = format!("{}?timeout=200ms", servers.url());
    let builder = Client::builder().retry_for(Duration::from_secs(1));
    let client = builder.open(open(&url).expect("a store")).await.expect("a client");
    take(&client, "x").await.release().await.expect("a release");
    (0..3).for_each(|n| servers[n].kill());
    let began = Instant::now();
    let error = client.mutex("x").lock().await.expect_err("no quorum");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("no quorum: 2 of 5"), "{error}");
    for n in 0..3 {
        assert!(error.to_string().contains(&servers[n].address().to_string()), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let error = Client::builder().open(open(&url).expect("a store")).await.expect_err("no quorum");
    assert!(error.to_string().contains("no quorum: 2 of 5"), "{error}");
    // They come back empty: more than the protocol can bear, so the longest lease has to pass.
    (0..3).for_each(|n| servers[n].restart_empty());
    let error = client.mutex("x").lock().await.expect_err("no quorum yet");
    assert!(error.to_string().contains("lost its data"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_lost_its_majority_opens_when_the_longest_lease_has_passed() {
    let servers = Independent::start(3);
    let url = fresh_url(&servers);
    let (a, b, fence) = (client(&url, SHORT).await, client(&url, SHORT).await, Fence::new());
    works(&a, &b, &fence).await;
    let guard = take(&a, "held").await;
    fence.check(guard.token()).expect("a token");
    servers[0].restart_empty();
    servers[1].restart_empty();
    let why = soon("the loss", guard.lost()).await;
    assert!(matches!(why, Lost::Wiped | Lost::Expired), "{why}");
    let next = take(&b, "held").await;
    assert!(next.token() > guard.token());
    next.release().await.expect("a release");
    works(&a, &b, &fence).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_knows_the_set_does_not_take_it_for_new_when_all_nodes_are_emptied() {
    let servers = Independent::start(3);
    let url = fresh_url(&servers);
    let (a, fence) = (client(&url, SHORT).await, Fence::new());
    works(&a, &a, &fence).await;
    servers.servers().iter().for_each(|server| drop(server.cli(&["FLUSHALL"])));
    let asked = tokio::spawn({
        let a = a.clone();
        async move { a.mutex("x").lock().await }
    });
    eventually("all are in quarantine", || async {
        let seen = standings(&url).await;
        if seen.iter().all(|s| *s == Some(Standing::Quarantined)) { Ok(()) } else { Err(seen) }
    })
    .await;
    let guard = soon("a lock", asked).await.expect("a task").expect("a lock");
    fence.check(guard.token()).expect("a higher token");
    guard.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_meet_a_new_set_at_the_same_time_can_use_it_at_once() {
    let servers = Independent::start(5);
    let url = fresh_url(&servers);
    let all = (0..12).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { client(&url, LONG).await })
    });
    for opened in futures_util::future::join_all(all).await {
        take(&opened.expect("a client"), "x").await.release().await.expect("a release");
    }
    assert_eq!(standings(&url).await, [Some(Standing::Open); 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_set_can_be_made_to_wait() {
    let servers = Independent::start(3);
    let url = format!("{}&first-use=wait&longest-lease=1s", fresh_url(&servers));
    let client = client(&url, SHORT).await;
    assert_eq!(standings(&url).await, [Some(Standing::Quarantined); 3]);
    take(&client, "x").await.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_server_twice_is_refused() {
    let servers = Independent::start(2);
    let (one, two) = (servers[0].port(), servers[1].port());
    let url = format!("redlock://127.0.0.1:{one},127.0.0.1:{two},localhost:{one}");
    let error = Client::builder().open(open(&url).expect("a store")).await.expect_err("not independent");
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("the same server"), "{error}");
    let facts = facts(&Redlock::new(Config::parse(&url).expect("a URL"))).await.expect("facts");
    assert_eq!(facts.dependent(), [(0, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_tell_replicas_dead_nodes_and_clocks() {
    let servers = Independent::start(3);
    let url = fresh_url(&servers);
    take(&client(&url, LONG).await, "x").await.release().await.expect("a release");
    servers[2].kill();
    servers[1].cli(&["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()]);
    let facts = facts(&Redlock::new(Config::parse(&url).expect("a URL"))).await.expect("facts");
    assert!(facts.nodes[2].answer.is_err());
    assert!(facts.clock_spread() < Duration::from_secs(5), "{facts:#?}");
    assert_eq!(facts.counted(), 1, "{facts:#?}");
    let first = facts.nodes[0].answer.as_ref().expect("an answer");
    assert_eq!(
        (first.role.as_str(), first.eviction.as_str(), first.append_only),
        ("master", "noeviction", false)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_password_is_ever_said() {
    let servers = Independent::start_with(3, RedisOptions::new().password("s3cr3t"));
    let url = fresh_url(&servers);
    let store = open(&url).expect("a store");
    assert!(!store.url().contains("s3cr3t"), "{}", store.url());
    let client = Client::builder().retry_for(Duration::from_secs(2)).open(store).await.expect("a client");
    take(&client, "x").await.release().await.expect("a release");
    servers[0].kill();
    servers[1].kill();
    let error = client.mutex("x").lock().await.expect_err("no quorum");
    assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
}
