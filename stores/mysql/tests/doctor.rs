//! What the store finds out about its database.

mod common;

use common::Single;
use leasehold_core::doctor::Grade;
use leasehold_testkit::servers::{MariaDb, MariaDbOptions};
use leasehold_testkit::sql::doctor::{bad, examine, finding};
use leasehold_testkit::sql::{SqlServer, client, fresh_url, prefix_of};

leasehold_testkit::sql_doctor!(Single);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_server_are_seen() {
    let server = MariaDb::start(MariaDbOptions::new().durable().line("log-bin=bin"));
    let url = fresh_url(&server);
    client(Single, &url).await.close().await.expect("a goodbye");
    assert!(examine(Single, &url).await.iter().all(|finding| finding.grade == Grade::Good));
    server.sql("SET GLOBAL read_only = 1, innodb_flush_log_at_trx_commit = 2, binlog_format = 'STATEMENT'");
    // What others do is not our level, which each connection sets for itself.
    server.sql("SET GLOBAL tx_isolation = 'SERIALIZABLE'");
    let found = examine(Single, &url).await;
    assert_eq!(bad(&found), [(Grade::Danger, "writable"), (Grade::Danger, "binary log")]);
    assert_eq!(finding(&found, "durability").grade, Grade::Warning);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_another_engine_is_a_danger() {
    let url = fresh_url(&*common::SERVER);
    client(Single, &url).await.close().await.expect("a goodbye");
    common::SERVER.sql(&format!("ALTER TABLE {}mail ENGINE=Aria", prefix_of::<MariaDb>(&url)));
    let found = examine(Single, &url).await;
    assert_eq!(bad(&found), [(Grade::Danger, "engine")]);
    assert!(finding(&found, "engine").what.contains("mail is Aria"), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_can_only_read_is_in_danger() {
    let (server, url) = (&*common::SERVER, fresh_url(&*common::SERVER));
    client(Single, &url).await.close().await.expect("a goodbye");
    server.add_reader("rita");
    let found = examine(Single, &server.for_user(&url, "rita")).await;
    assert_eq!(bad(&found), [(Grade::Danger, "rights")]);
    let rights = finding(&found, "rights");
    assert!(
        rights.what.contains("INSERT, UPDATE, DELETE on") && !rights.what.contains("SELECT"),
        "{rights:?}"
    );
}
