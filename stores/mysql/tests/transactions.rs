//! The user's own transactions: locks that end with them, and the examples, with real tables.

mod common;
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/mysql_fencing.rs"]
mod fencing;
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/mysql_transaction.rs"]
mod transaction;

use common::SERVER;
use leasehold_testkit::sql::fresh_url;
use leasehold_testkit::wait::soon;

leasehold_testkit::sql_transactions!(common::Single);

#[tokio::test]
async fn a_late_writers_transaction_changes_nothing() {
    soon("the example", fencing::play(&fresh_url(&*SERVER))).await.expect("its story");
}

#[tokio::test]
async fn the_last_seats_are_sold_once() {
    soon("the example", transaction::play(&fresh_url(&*SERVER))).await.expect("its story");
}
