//! What the store finds out about its database.

mod common;

use common::{Direct, POOLER, SERVER};
use leasehold_core::doctor::Grade;
use leasehold_testkit::servers::{Postgres, PostgresOptions};
use leasehold_testkit::sql::doctor::{bad, examine, finding};
use leasehold_testkit::sql::{SqlServer, client, fresh_prefix, fresh_url};

leasehold_testkit::sql_doctor!(Direct);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_transaction_mode_is_found() {
    let url = format!("{}?prefix={}", POOLER.url(), fresh_prefix());
    client(Direct, &url).await.close().await.expect("a goodbye");
    let found = examine(Direct, &url).await;
    assert_eq!(bad(&found), [(Grade::Warning, "wake-up")]);
    assert!(finding(&found, "wake-up").what.contains("pooler"), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_whose_transactions_can_only_read_is_in_danger() {
    let url = fresh_url(&*SERVER);
    client(Direct, &url).await.close().await.expect("a goodbye");
    SERVER.add_reader("rita");
    assert_eq!(bad(&examine(Direct, &SERVER.for_user(&url, "rita")).await), [(Grade::Danger, "writable")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stricter_isolation_and_a_lazy_commit_are_told() {
    let url = fresh_url(&*SERVER);
    client(Direct, &url).await.close().await.expect("a goodbye");
    SERVER.sql(
        "CREATE ROLE stan LOGIN SUPERUSER PASSWORD 'secret'; ALTER ROLE stan SET default_transaction_isolation = 'serializable'; \
         ALTER ROLE stan SET synchronous_commit = off",
    );
    let found = examine(Direct, &SERVER.for_user(&url, "stan")).await;
    assert_eq!(bad(&found), [(Grade::Warning, "synchronous commit"), (Grade::Note, "isolation")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_in_danger_and_a_durable_server_in_order() {
    let primary = Postgres::start(PostgresOptions::new().durable());
    let url = fresh_url(&primary);
    client(Direct, &url).await.close().await.expect("a goodbye");
    assert!(examine(Direct, &url).await.iter().all(|finding| finding.grade == Grade::Good));
    let standby = Postgres::standby_of(&primary, PostgresOptions::new());
    let found = examine(Direct, &primary.through(&url, standby.address())).await;
    assert_eq!(bad(&found), [(Grade::Danger, "writable")]);
    assert!(finding(&found, "writable").what.contains("standby"), "{found:#?}");
    assert_eq!(bad(&examine(Direct, &url).await), [(Grade::Note, "standbys")]);
    primary.wait_for_standby();
    assert_eq!(bad(&examine(Direct, &url).await), []);
}
