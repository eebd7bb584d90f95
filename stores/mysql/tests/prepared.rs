//! A server that prepares no more statements.

mod common;

use leasehold_client::Client;
use leasehold_testkit::servers::{MariaDb, MariaDbOptions};
use leasehold_testkit::sql::fresh_url;
use leasehold_testkit::wait::soon;

use common::open;

/// The limit is for all clients of a server together, so one of them can't keep below it.
#[tokio::test]
async fn locks_work_where_no_statement_can_be_prepared() {
    let server = MariaDb::start(MariaDbOptions::new().line("max-prepared-stmt-count=0"));
    let url = fresh_url(&server);
    let client = |label: &'static str| {
        let store = open(&url).expect("a store");
        async move { soon("a client", Client::builder().label(label).open(store)).await.expect("a client") }
    };
    let (a, b) = (client("it's a").await, client("b").await);
    for name in ["x", "a name? with 'marks'"] {
        let mut highest = None;
        for round in 0..4 {
            let (holder, other) = if round < 3 { (&a, &b) } else { (&b, &a) };
            let guard = soon("a lock", holder.mutex(name).lock()).await.expect("a lock");
            assert!(Some(guard.token()) > highest);
            highest = Some(guard.token());
            let seen = soon("a look", other.inspect(name)).await.expect("a look");
            assert_eq!(seen.holders[0].label.as_str(), if round < 3 { "it's a" } else { "b" });
            assert!(soon("a try", other.mutex(name).try_lock()).await.expect("a try").is_none());
            soon("a release", guard.release()).await.expect("a release");
        }
    }
    assert_eq!(server.sql("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'").split_whitespace().last(), Some("0"));
}
