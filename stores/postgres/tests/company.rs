//! Many claims and releases at once, which share transactions.

mod common;

use common::Direct;
use leasehold_testkit::servers::{PgBouncer, Postgres, PostgresOptions};
use leasehold_testkit::sql::company::share_transactions;
use leasehold_testkit::sql::fresh_prefix;

leasehold_testkit::sql_company!(Direct);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_they_share_transactions_too() {
    let server = Postgres::start(PostgresOptions::new());
    let pooler = PgBouncer::start(server.address(), 3);
    let url = format!("{}?prefix={}&pool=2", pooler.url(), fresh_prefix());
    share_transactions(Direct, &server, &url).await;
}
