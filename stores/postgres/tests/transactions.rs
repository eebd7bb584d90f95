//! The user's own transactions: locks that end with them, and the examples, with real tables.

mod common;
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/postgres_fencing.rs"]
mod fencing;
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/postgres_transaction.rs"]
mod transaction;

use common::SERVER;
use leasehold_testkit::sql::fresh_url;
use leasehold_testkit::wait::soon;

leasehold_testkit::sql_transactions!(common::Direct);

/// The same behind a pooler in transaction mode.
mod pooled {
    leasehold_testkit::sql_transactions!(crate::common::Pooled);
}

#[tokio::test]
async fn a_late_writers_transaction_changes_nothing() {
    soon("the example", fencing::play(&fresh_url(&*SERVER))).await.expect("its story");
}

#[tokio::test]
async fn the_last_seats_are_sold_once() {
    soon("the example", transaction::play(&fresh_url(&*SERVER))).await.expect("its story");
}
