//! Several statements in one text: if one of them fails, none was done.

mod common;

use leasehold_client::{Budget, Client, Guard};
use leasehold_core::Result;
use leasehold_testkit::servers::{MariaDb, MariaDbOptions};
use leasehold_testkit::sql::fresh_url;
use leasehold_testkit::wait::{eventually, soon};

use tokio::task::JoinHandle;

use common::open;

/// One holds a lock, and another waits for it.
struct Scene {
    server: MariaDb,
    one: Client,
    guard: Guard,
    waiting: JoinHandle<Result<Guard>>,
}

impl Scene {
    async fn set() -> Scene {
        let server = MariaDb::start(MariaDbOptions::new());
        let url = fresh_url(&server);
        let (one, other) = (client(&url).await, client(&url).await);
        let guard = one.mutex("x").lock().await.expect("a lock");
        let waiting = tokio::spawn(async move { other.mutex("x").lock().await });
        somebody_waits(&one).await;
        Scene { server, one, guard, waiting }
    }
}

async fn client(url: &str) -> Client {
    let builder = Client::builder().local_queue(Budget::off());
    soon("a client", builder.open(open(url).expect("a store"))).await.expect("a client")
}

/// The third statement of a hand-over writes the letter. Without its table it fails, and the two before it must not have happened.
#[tokio::test]
async fn a_statement_that_fails_in_the_middle_of_a_text_undoes_it() {
    let Scene { server, one, guard, waiting } = Scene::set().await;
    let mail = server.sql("SELECT table_name FROM information_schema.tables WHERE table_name LIKE 't%mail'");
    server.sql(&format!("DROP TABLE locks.{}", mail.trim()));
    soon("a release", guard.release()).await.expect("a release");
    drop(soon("the next", waiting).await.expect("a task").expect("the lock"));
    assert!(soon("a look", one.inspect("y")).await.expect("an answer that is its own").holders.is_empty());
}

/// Ringing comes after everything else. That nobody is there to hear it is no error.
#[tokio::test]
async fn nobody_at_the_doorbell_is_no_error() {
    let Scene { server, one, guard, waiting } = Scene::set().await;
    server.sql(&format!("UPDATE locks.{} SET wake = 'bell:4000000000'", entries(&server)));
    soon("a release", guard.release()).await.expect("a release");
    assert!(soon("a look", one.inspect("y")).await.expect("an answer that is its own").holders.is_empty());
    drop(waiting);
}

async fn somebody_waits(client: &Client) {
    let look = async || {
        let seen = client.inspect("x").await.map_err(|e| e.to_string())?;
        if seen.waiters.len() == 1 { Ok(()) } else { Err(format!("{seen:?}")) }
    };
    eventually("somebody waits", look).await;
}

/// After a restart, the number in a row may be that of anybody's connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bell_whose_number_is_somebody_elses_now_disturbs_nobody() {
    let Scene { server, one: _one, guard, waiting } = Scene::set().await;
    std::thread::scope(|scope| {
        let stranger = scope.spawn(|| server.sql("SELECT SLEEP(4) AS whole"));
        let number = loop {
            let found = server
                .sql("SELECT id FROM information_schema.processlist WHERE info LIKE '%AS whole' AND id <> CONNECTION_ID()");
            if let Ok(number) = found.trim().parse::<u64>() {
                break number;
            }
        };
        server.sql(&format!("UPDATE locks.{} SET wake = 'bell:{number}'", entries(&server)));
        let runtime = tokio::runtime::Handle::current();
        scope.spawn(move || runtime.block_on(guard.release()).expect("a release")).join().expect("a release");
        // SLEEP tells with 1 that it was ended early.
        assert_eq!(stranger.join().expect("a stranger").trim(), "0");
    });
    drop(waiting);
}

fn entries(server: &MariaDb) -> String {
    let found =
        server.sql("SELECT table_name FROM information_schema.tables WHERE table_name LIKE 't%entries'");
    found.trim().to_owned()
}
