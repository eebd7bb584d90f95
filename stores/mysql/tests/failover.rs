//! The primary dies, and its replica takes over.

mod common;

use std::sync::Arc;

use common::Single;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::MariaDb;
use leasehold_testkit::sql::faults::{Counting, nothing_is_left};
use leasehold_testkit::sql::{SqlServer, fresh_url};
use tokio::task::spawn_blocking;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_stays_exact_while_a_replica_takes_over() {
    // No grant is answered that the replica has not heard of: else it could be lost with the primary, and the lock be given twice.
    let (primary, replica) = spawn_blocking(MariaDb::start_with_replica).await.expect("two servers");
    let replica = Arc::new(replica);
    let proxy = Proxy::start(SqlServer::address(&primary));
    let url = primary.through(&fresh_url(&primary), proxy.address());
    let counting = Counting::begin(Single, &url, 4, 30).await;
    counting.reaches(1, 3).await;
    let heir = replica.clone();
    let proxy = spawn_blocking(move || {
        primary.kill();
        heir.promote();
        proxy.lead_to(SqlServer::address(&*heir));
        proxy
    })
    .await
    .expect("a new primary");
    counting.end().await;
    nothing_is_left(&*replica, &url).await;
    drop(proxy);
}
