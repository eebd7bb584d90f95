//! The rights that `docs/redis-acl.md` lists are enough, each of them is needed, and the lack of one is told in clear words.

use std::time::Duration;

use leasehold_client::{Client, Happened, Lost};
use leasehold_core::{Error, Kind, Order, Result};
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::servers::resp::{Connection, Reply};
use leasehold_testkit::servers::{Cluster, Sentinels};
use leasehold_testkit::wait::{not_yet, soon};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::common::open;

/// So long that whoever waits gets in by a message, and not by asking now and then.
const LONG: Duration = Duration::from_secs(600);

/// The words after `ACL` of the n-th rule in the document.
fn rule(n: usize) -> Vec<String> {
    let page = include_str!("../../../../docs/redis-acl.md");
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let words: Vec<String> =
        blocks[n].split_whitespace().map(|word| word.replace("PASSWORD", "secret")).collect();
    assert_eq!(words[..3], ["ACL", "SETUSER", "locks"], "it is a rule: {words:?}");
    words
}

const ONE_SERVER: usize = 0;
const WITH_REPLICAS: usize = 1;
const ON_SENTINELS: usize = 2;
const IN_A_CLUSTER: usize = 3;

fn obey(server: &Redis, rule: &[String]) {
    server.cli(&rule.iter().map(String::as_str).collect::<Vec<_>>());
}

/// A client that logs in as the user of the rule.
async fn login(url: &str) -> Result<Client> {
    Client::builder().default_lease(LONG).retry_for(Duration::from_secs(5)).open(open(url)?).await
}

fn with_login(url: &str, user: &str) -> String {
    url.replacen("://", &format!("://{user}:secret@"), 1)
}

/// A bit of everything that locks can do. Those that wait get in only if they are told.
async fn a_bit_of_everything(url: &str) -> Result<()> {
    let (a, b) = (login(url).await?, login(url).await?);
    a_hand_over(&a, &b).await?;
    a_long_queue(&a, &b).await?;
    // While somebody watches, scripts go another way.
    let mut watch = a.watch("").await?;
    a_hand_over(&a, &b).await?;

    let (reader, also) = (a.rwlock("r").read().await?, b.rwlock("r").read().await?);
    let rwlock = a.rwlock("r").order(Order::Barge);
    let writer = waiting(&a, "r", 1, async move { rwlock.write().await }).await?;
    reader.release().await?;
    also.release().await?;
    told(writer).await?.downgrade().await?.release().await?;

    let mut semaphore = a.semaphore("s", 2);
    let two = semaphore.acquire(2).await?;
    let other = b.semaphore("s", 2);
    let third = waiting(&a, "s", 1, async move { other.acquire(1).await }).await?;
    semaphore.set_limit(3).await?;
    let third = told(third).await?;

    let mut list = a.list("");
    let seen = list.next().await.expect("a lock is held")?;
    assert_eq!((seen.name.as_str(), seen.holders.len()), ("s", 2));
    assert_eq!(b.force_release("s", None).await?.len(), 2);
    for guard in [two, third] {
        assert_eq!(soon("the loss", guard.lost()).await, Lost::Revoked);
        drop(guard);
    }
    let first = told(tokio::spawn(async move { watch.next().await.expect("an event") })).await?;
    assert_eq!((first.name.as_str(), first.what), ("m", Happened::Acquired));
    a.close().await?;
    b.close().await
}

async fn a_hand_over(a: &Client, b: &Client) -> Result<()> {
    let held = a.mutex("m").lock().await?;
    let mutex = b.mutex("m");
    let next = waiting(a, "m", 1, async move { mutex.lock().await }).await?;
    held.release().await?;
    told(next).await?.release().await
}

/// More wait than fit into one key.
async fn a_long_queue(a: &Client, b: &Client) -> Result<()> {
    let held = a.mutex("long").lock().await?;
    let mut claims = Vec::new();
    for n in 1..=9 {
        // With a lease of its own, each is an entry of its own.
        let mutex = b.mutex("long").lease(LONG);
        claims.push(waiting(a, "long", n, async move { mutex.lock().await }).await?);
    }
    held.release().await?;
    for claim in claims {
        told(claim).await?.release().await?;
    }
    Ok(())
}

/// A claim in a task of its own that waits as the last of so many, or its error if it can't.
async fn waiting<T: Send + 'static>(
    client: &Client,
    name: &str,
    waiters: usize,
    claim: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<JoinHandle<Result<T>>> {
    let claim = tokio::spawn(claim);
    while client.inspect(name).await?.waiters.len() < waiters {
        if claim.is_finished() {
            claim.await.expect("a task")?;
            return Err(Error::new(Kind::Store, "it should have waited"));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(claim)
}

/// What a waiter got, if it was told in time.
async fn told<T>(waiter: JoinHandle<Result<T>>) -> Result<T> {
    let silence = || Error::new(Kind::Unavailable, "no message came");
    timeout(Duration::from_secs(5), waiter).await.map_err(|_| silence())?.expect("a task")
}

#[tokio::test]
async fn one_server_works_with_the_rights_of_the_document() {
    let server = Redis::start(RedisOptions::new());
    obey(&server, &rule(ONE_SERVER));
    a_bit_of_everything(&with_login(&server.url(), "locks")).await.unwrap_or_else(|e| panic!("{e}"));
}

#[tokio::test]
async fn sentinels_work_with_the_rights_of_the_document() {
    let set = tokio::task::spawn_blocking(Sentinels::start).await.expect("servers");
    set.nodes().iter().for_each(|node| obey(node, &rule(WITH_REPLICAS)));
    for sentinel in set.sentinels() {
        let mut connection = Connection::tcp(sentinel.address()).expect("a sentinel");
        let reply = connection.ask(&rule(ON_SENTINELS)).expect("an answer");
        assert_eq!(reply, Reply::Status("OK".into()));
    }
    let url = format!("{}?sentinel-user=locks&sentinel-password=secret", set.url());
    a_bit_of_everything(&with_login(&url, "locks")).await.unwrap_or_else(|e| panic!("{e}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_works_with_the_rights_of_the_document() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(3, 1)).await.expect("servers");
    cluster.nodes().iter().for_each(|node| obey(node, &rule(IN_A_CLUSTER)));
    let url = with_login(&cluster.url(), "locks");
    a_bit_of_everything(&url).await.unwrap_or_else(|e| panic!("{e}"));
    // Also while a slot moves: whoever asks then is sent on.
    let client = login(&url).await.expect("a client");
    let slot = cluster.slot_of("leasehold:n:{x}");
    let from = cluster.owner_of_slot(slot).port();
    let to = cluster.nodes().iter().find(|node| node.info("role") == "master" && node.port() != from);
    let migration = cluster.begin_migration(slot, to.expect("another master").port());
    let mutex = client.mutex("x");
    let mut claim = tokio::spawn(async move { mutex.lock().await });
    not_yet("a lock was got on the way", &mut claim).await;
    tokio::task::block_in_place(|| migration.finish());
    told(claim).await.unwrap_or_else(|e| panic!("{e}")).release().await.expect("a release");
}

/// Commands that a user lacks, and what it is told. Without some of them everything goes on, but slowly.
async fn without_each(server: &Redis, rule: &[String]) -> Vec<(String, Result<()>)> {
    let rights: Vec<String> =
        rule.iter().filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect();
    assert!(rights.len() > 20, "{rights:?}");
    let mut trying = JoinSet::new();
    for right in rights {
        let user = format!("without-{right}");
        let mut words: Vec<String> =
            rule.iter().filter(|word| **word != format!("+{right}")).cloned().collect();
        words[2].clone_from(&user);
        obey(server, &words);
        let url = format!("{}?prefix=leasehold:{right}:", with_login(&server.url(), &user));
        trying.spawn(async move { (right, a_bit_of_everything(&url).await) });
    }
    trying.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_right_of_the_document_is_needed_and_its_lack_is_told() {
    let server = Redis::start(RedisOptions::new());
    for (right, outcome) in without_each(&server, &rule(ONE_SERVER)).await {
        match (right.as_str(), outcome) {
            // What keeps others from being told is no error of the command that should tell them.
            ("publish" | "subscribe", Err(e)) if e.to_string().contains("no message came") => {}
            // An end of a subscription that is refused is the end of the connection.
            ("unsubscribe", _) => {}
            (right, Err(e)) => {
                assert_eq!(e.kind(), Kind::Refused, "without {right}: {e}");
                assert!(e.to_string().contains("user"), "without {right}: {e}");
            }
            (right, Ok(())) => panic!("{right} is not needed"),
        }
    }
}

#[tokio::test]
async fn a_key_that_the_user_may_not_touch_is_told() {
    let server = Redis::start(RedisOptions::new());
    obey(&server, &rule(ONE_SERVER));
    let url = format!("{}?prefix=other:", with_login(&server.url(), "locks"));
    let client = login(&url).await.expect("a client");
    let refused = soon("the error", client.mutex("x").lock()).await.expect_err("it is not ours");
    assert_eq!(refused.kind(), Kind::Refused, "{refused}");
    assert!(refused.to_string().contains("key"), "{refused}");
}
