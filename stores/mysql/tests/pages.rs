//! What locks that come and go do to the pages that they are kept in.

mod common;

use leasehold_client::Client;
use leasehold_testkit::servers::{MariaDb, MariaDbOptions};
use leasehold_testkit::sql::fresh_url;
use leasehold_testkit::wait::soon;

use common::open;

/// As many as fill some pages.
const NAMES: usize = 200;

/// How often this happened to a page.
fn counted(server: &MariaDb, what: &str) -> u64 {
    let count =
        format!("SELECT count FROM information_schema.innodb_metrics WHERE name = 'index_page_{what}'");
    server.sql(&count).trim().parse().expect("a number")
}

async fn take_and_release_all(client: &Client) {
    for n in 0..NAMES {
        let guard = soon("a lock", client.mutex(format!("orders/{n}")).lock()).await.expect("a lock");
        soon("a release", guard.release()).await.expect("a release");
    }
}

/// A row that shrinks when its lock is released makes InnoDB try to merge its page with the next, and split it again when the lock is
/// taken: that was seen for every second lock.
#[tokio::test]
async fn locks_that_come_and_go_do_not_make_pages_merge() {
    let server = MariaDb::start(MariaDbOptions::new().line("innodb-monitor-enable=index_page%"));
    let client = Client::builder().open(open(&fresh_url(&server)).expect("a store"));
    let client = soon("a client", client).await.expect("a client");
    for _ in 0..3 {
        take_and_release_all(&client).await;
    }
    assert!(counted(&server, "splits") > 0, "nothing is counted, or all rows are in one page");
    // The server's own tables have their part in it: two were seen, and 287 where rows shrink.
    let tried = counted(&server, "merge_attempts");
    assert!(tried < NAMES as u64 / 10, "{tried} times");
}
