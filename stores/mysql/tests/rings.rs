//! Somebody rings at the doorbell at any moment, and often for nothing.

mod common;

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Budget, Client};
use leasehold_testkit::servers::{MariaDb, MariaDbOptions};
use leasehold_testkit::sql::fresh_url;
use leasehold_testkit::wait::{eventually, soon};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use common::open;

/// Less than a nap, after which a letter would be found without its ring.
const AT_ONCE: Duration = Duration::from_secs(6);

/// Rings at all who nap, many times, at moments that nobody chose.
const RING: &str = "DELIMITER //
BEGIN NOT ATOMIC
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
  FOR n IN 1..4000 DO
    FOR bell IN (SELECT id FROM information_schema.processlist WHERE state = 'User lock') DO
      KILL QUERY bell.id;
      KILL QUERY bell.id;
    END FOR;
    DO SLEEP(0.0002 + RAND() * 0.0008);
  END FOR;
END //
";

async fn client(url: &str) -> Client {
    let builder = Client::builder().local_queue(Budget::off());
    soon("a client", builder.open(open(url).expect("a store"))).await.expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_letter_is_late_because_of_rings_for_nothing() {
    let server = Arc::new(MariaDb::start(MariaDbOptions::new()));
    let url = fresh_url(&*server);
    let (one, other) = (client(&url).await, client(&url).await);
    let ringing = {
        let server = server.clone();
        spawn_blocking(move || server.sql(RING))
    };
    while !ringing.is_finished() {
        let guard = one.mutex("x").lock().await.expect("a lock");
        let mutex = other.mutex("x");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        eventually("it waits", || async {
            let waiters = one.inspect("x").await.expect("a look").waiters.len();
            if waiters == 1 { Ok(()) } else { Err(waiters) }
        })
        .await;
        guard.release().await.expect("a release");
        let next = timeout(AT_ONCE, waiting).await.expect("it is told at once");
        next.expect("a task").expect("a lock").release().await.expect("a release");
    }
    ringing.await.expect("rings");
}
