//! The primary dies, and its standby takes over.

mod common;

use std::sync::Arc;

use common::Direct;
use leasehold_testkit::servers::{Postgres, PostgresOptions};
use leasehold_testkit::sql::faults::{Counting, nothing_is_left};
use leasehold_testkit::sql::fresh_url;
use tokio::task::spawn_blocking;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_stays_exact_while_a_standby_takes_over() {
    let (primary, standby) = spawn_blocking(|| {
        let primary = Postgres::start(PostgresOptions::new());
        let standby = Postgres::standby_of(&primary, PostgresOptions::new());
        // Else the newest grants may be lost with the primary, and a lock be given twice.
        primary.wait_for_standby();
        (primary, Arc::new(standby))
    })
    .await
    .expect("two servers");
    let both = format!("{},{}", primary.address(), standby.address());
    let url = fresh_url(&primary).replace(&primary.address().to_string(), &both);
    let url = format!("{url}&target_session_attrs=read-write");
    let counting = Counting::begin(Direct, &url, 4, 30).await;
    counting.reaches(1, 3).await;
    let heir = standby.clone();
    spawn_blocking(move || {
        primary.kill();
        heir.promote();
    })
    .await
    .expect("a new primary");
    counting.end().await;
    nothing_is_left(&*standby, &url).await;
}
