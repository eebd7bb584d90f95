//! What the store finds out about real servers. A clock that is wrong can't be made here: `src/doctor.rs` has a test for what it
//! would mean.

mod common;

use common::{LONG, SHORT, client, fresh_prefix, fresh_url, open, take};
use leasehold_core::Kind;
use leasehold_core::doctor::{Finding, Grade};
use leasehold_testkit::servers::{Independent, Redis, RedisOptions, until};
use leasehold_testkit::wait::eventually;

async fn look(url: &str) -> Vec<Finding> {
    open(url).expect("a URL").examine().await.expect("nodes that answer")
}

#[track_caller]
fn find<'a>(found: &'a [Finding], check: &str) -> &'a Finding {
    found.iter().find(|finding| finding.check == check).unwrap_or_else(|| panic!("no {check}: {found:#?}"))
}

#[track_caller]
fn expect<'a>(found: &'a [Finding], check: &str, grade: Grade) -> &'a Finding {
    let finding = find(found, check);
    assert_eq!(finding.grade, grade, "{check}: {found:#?}");
    assert!(finding.fix.is_some() || grade < Grade::Warning, "{finding:?}");
    finding
}

/// A URL of these servers, in their order. One may be in it twice, by another name.
fn url_of(servers: &[&Redis], last: &str) -> String {
    let places: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    format!("redlock://{},{last}?prefix={}&timeout=2s", places.join(","), fresh_prefix())
}

/// Uses the set once, so that it is one.
async fn found(url: &str) {
    let client = client(url, SHORT).await;
    take(&client, "x").await.release().await.expect("a release");
    client.close().await.expect("a goodbye");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_in_order_endangers_nothing() {
    let servers = Independent::start_with(3, RedisOptions::new().append_only());
    let url = fresh_url(&servers);
    expect(&look(&url).await, "restarts", Grade::Note);
    found(&url).await;
    let findings = look(&url).await;
    for check in ["quorum", "nodes", "independence", "restarts", "clocks"] {
        expect(&findings, check, Grade::Good);
    }
    assert!(findings.iter().all(|finding| finding.grade == Grade::Good), "{findings:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_changes_nothing() {
    let servers = Independent::start(3);
    look(&fresh_url(&servers)).await;
    assert!(servers.servers().iter().all(|server| server.cli(&["DBSIZE"]) == "0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_under_two_names_is_a_danger() {
    let servers = Independent::start(2);
    let twice = format!("localhost:{}", servers[0].port());
    let findings = look(&url_of(&[&servers[0], &servers[1]], &twice)).await;
    let finding = expect(&findings, "independence", Grade::Danger);
    let both = format!("{} and {twice} ", servers[0].address());
    assert!(finding.what.contains(&both), "{finding:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_of_another_node_is_a_danger() {
    let servers = Independent::start(3);
    servers[2].cli(&["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()]);
    until("it follows", || match servers[2].info("master_link_status").as_str() {
        "up" => Ok(()),
        other => Err(other.to_owned()),
    });
    let findings = look(&fresh_url(&servers)).await;
    let finding = expect(&findings, "independence", Grade::Danger);
    let both = format!("{} and {} ", servers[0].address(), servers[2].address());
    assert!(finding.what.contains(&both), "{finding:?}");
    let finding = expect(&findings, "nodes", Grade::Warning);
    assert!(finding.what.contains(&format!("{} (a replica)", servers[2].address())), "{finding:?}");
    // Of a server that is no node.
    let other = url_of(&[&servers[1], &servers[2]], "127.0.0.1:1");
    let findings = look(&other).await;
    let finding = expect(&findings, "independence", Grade::Danger);
    let follows = format!("{} follows {}", servers[2].address(), servers[0].address());
    assert!(finding.what.contains(&follows), "{finding:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_down_is_a_warning_and_a_majority_a_danger() {
    let servers = Independent::start(3);
    let url = fresh_url(&servers);
    found(&url).await;
    servers[1].kill();
    let findings = look(&url).await;
    let finding = expect(&findings, "nodes", Grade::Warning);
    assert!(finding.what.contains(&servers[1].address().to_string()), "{finding:?}");
    assert!(findings.iter().all(|finding| finding.grade < Grade::Danger), "{findings:#?}");
    servers[2].kill();
    expect(&look(&url).await, "nodes", Grade::Danger);
    servers[0].kill();
    let error = open(&url).expect("a URL").examine().await.expect_err("nobody answers");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_came_back_empty_is_named_until_it_counts_again() {
    let servers = Independent::start(3);
    let url = fresh_url(&servers);
    found(&url).await;
    // A client that is there sees to it that the node is put into quarantine, and lifts it when the longest lease is over.
    let client = client(&url, LONG).await;
    take(&client, "x").await.release().await.expect("a release");
    servers[0].restart_empty();
    let place = servers[0].address().to_string();
    let finding = eventually("it is not counted", || async {
        let findings = look(&url).await;
        let restarts = find(&findings, "restarts").clone();
        if restarts.what.contains(&format!("{place} for ")) { Ok(restarts) } else { Err(restarts) }
    })
    .await;
    assert!(finding.grade == Grade::Warning && finding.fix.is_some(), "{finding:?}");
    servers[1].restart_empty();
    eventually("no quorum remembers", || async {
        let findings = look(&url).await;
        let restarts = find(&findings, "restarts").clone();
        if restarts.grade == Grade::Danger { Ok(()) } else { Err(restarts) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_evicts_is_a_danger_and_is_named() {
    let servers = Independent::start(3);
    servers[1].cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let findings = look(&fresh_url(&servers)).await;
    let finding = expect(&findings, "eviction", Grade::Danger);
    assert_eq!(finding.node.as_deref(), Some(servers[1].address().to_string().as_str()));
    assert_eq!(findings.iter().filter(|finding| finding.check == "persistence").count(), 3, "{findings:#?}");
}
