//! What goes over the wire: how many statements, and whether they are encrypted.

mod common;

use std::time::Duration;

use common::open;
use leasehold_client::{Budget, Client};
use leasehold_testkit::servers::{PgBouncer, Postgres, PostgresOptions};
use leasehold_testkit::sql::{fresh_prefix, fresh_url};
use leasehold_testkit::wait::{eventually, soon};

async fn client(url: &str) -> Client {
    let builder = Client::builder().local_queue(Budget::off()).default_lease(Duration::from_secs(60));
    soon("a client", builder.open(open(url).expect("a store"))).await.expect("a client")
}

/// The statements about locks in the server's log: those that were prepared under a name of ours, and those by the protocol's.
fn statements(server: &Postgres) -> (usize, usize) {
    let log = std::fs::read_to_string(server.folder().join("log")).expect("a log");
    let count =
        |what: &str| log.lines().filter(|line| line.contains(what) && line.contains("_locks")).count();
    (count("PREPARE leasehold_"), count(" execute s"))
}

/// All of them.
fn all(server: &Postgres) -> usize {
    let (named, bound) = statements(server);
    named + bound
}

async fn use_a_lock(url: &str) {
    let client = client(url).await;
    for _ in 0..5 {
        client.mutex("x").lock().await.expect("a lock").release().await.expect("a release");
    }
    client.close().await.expect("a goodbye");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_protocols_statements_are_used_where_there_is_no_pooler() {
    let server = Postgres::start(PostgresOptions::new().line("log_statement = all").tls());
    let url = fresh_url(&server);
    for url in [url.clone(), format!("{url}&sslmode=require&ca={}", server.certificates().ca().display())] {
        let (_, before) = statements(&server);
        use_a_lock(&url).await;
        assert_eq!(statements(&server).1 - before, 10, "{url}");
    }
    let pooler = PgBouncer::start(server.address(), 2);
    let (_, before) = statements(&server);
    use_a_lock(&format!("{}?prefix={}", pooler.url(), fresh_prefix())).await;
    assert_eq!(statements(&server).1, before, "behind a pooler they may be somebody else's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_costs_one_statement_and_its_release_another() {
    let server = Postgres::start(PostgresOptions::new().line("log_statement = all"));
    let client = client(&fresh_url(&server)).await;
    client.mutex("x").lock().await.expect("a lock").release().await.expect("a release");
    let before = all(&server);
    for _ in 0..10 {
        client.mutex("x").lock().await.expect("a lock").release().await.expect("a release");
    }
    assert_eq!(all(&server) - before, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_waits_and_is_told_asks_nothing() {
    let server = Postgres::start(PostgresOptions::new().line("log_statement = all"));
    let url = fresh_url(&server);
    let (a, b) = (client(&url).await, client(&url).await);
    // Listening has begun.
    eventually("both listen", || async {
        let log = std::fs::read_to_string(server.folder().join("log")).expect("a log");
        let listening = log.lines().filter(|line| line.contains("UNLISTEN leasehold_trial")).count();
        if listening >= 2 { Ok(()) } else { Err(listening) }
    })
    .await;
    let guard = a.mutex("x").lock().await.expect("a lock");
    let waiter = tokio::spawn(async move { b.mutex("x").lock().await });
    eventually("it waits", || async {
        let waiters = a.inspect("x").await.expect("a look").waiters.len();
        if waiters == 1 { Ok(()) } else { Err(waiters) }
    })
    .await;
    let before = statements(&server);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(statements(&server), before, "statements while nothing happens");
    guard.release().await.expect("a release");
    // By itself it would ask only after a third of its place, which is 20 s.
    let told = tokio::time::timeout(Duration::from_secs(8), waiter).await.expect("it is told at once");
    told.expect("a task").expect("a lock").release().await.expect("a release");
}

leasehold_testkit::sql_encryption!(common::Direct);
