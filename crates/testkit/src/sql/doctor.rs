//! What the store finds out about its database.
#![allow(missing_docs)] // Scenarios say by their names what they show.

use leasehold_core::doctor::{Finding, Grade};

use super::{Database, SqlServer, client, fresh_url, prefix_of};
use crate::wait::soon;

/// What the servers of tests are not: safe against a crash of the machine.
const NOT_DURABLE: [&str; 2] = ["fsync", "durability"];

/// Looks at the database of a URL. No password is ever shown.
pub async fn examine(db: impl Database, url: &str) -> Vec<Finding> {
    let store = db.open(url).expect("a store");
    let found = soon("a look at the database", store.examine()).await.expect("findings");
    assert!(found.iter().all(|finding| !format!("{finding:?}").contains("secret")), "{found:#?}");
    found
}

/// All that is not good, apart from what no test server is.
pub fn bad(found: &[Finding]) -> Vec<(Grade, &'static str)> {
    let bad =
        found.iter().filter(|finding| finding.grade != Grade::Good && !NOT_DURABLE.contains(&finding.check));
    bad.map(|finding| (finding.grade, finding.check)).collect()
}

/// The finding of a check.
#[track_caller]
pub fn finding<'a>(found: &'a [Finding], check: &str) -> &'a Finding {
    found.iter().find(|finding| finding.check == check).unwrap_or_else(|| panic!("no {check}: {found:#?}"))
}

pub async fn a_database_in_order_is_good<D: Database>(db: D) {
    let url = fresh_url(db.server());
    client(db, &url).await.close().await.expect("a goodbye");
    let found = examine(db, &url).await;
    assert_eq!(bad(&found), []);
    for check in
        ["version", "writable", "isolation", "wake-up", "clock", "tables", "indexes", "rights", "deadlocks"]
    {
        finding(&found, check);
    }
    let deadlocks = &finding(&found, "deadlocks").what;
    assert!(deadlocks.starts_with(|c: char| c.is_ascii_digit()), "{deadlocks}");
}

pub async fn a_database_without_tables_is_a_note_and_stays_without<D: Database>(db: D) {
    let url = fresh_url(db.server());
    for _ in 0..2 {
        assert_eq!(bad(&examine(db, &url).await), [(Grade::Note, "tables")]);
    }
}

pub async fn a_missing_table_is_a_danger<D: Database>(db: D) {
    let url = fresh_url(db.server());
    client(db, &url).await.close().await.expect("a goodbye");
    db.server().sql(&format!("DROP TABLE {}mail", prefix_of::<D::Server>(&url)));
    let found = examine(db, &url).await;
    assert_eq!(bad(&found), [(Grade::Danger, "tables")]);
    let tables = finding(&found, "tables");
    assert!(tables.what.contains("mail") && !tables.what.contains("entries"), "{tables:?}");
    assert!(
        tables.fix.as_ref().is_some_and(|fix| fix.contains(&format!("leasehold schema {}", D::Server::SORT)))
    );
}

pub async fn a_missing_index_is_a_warning<D: Database>(db: D) {
    let url = fresh_url(db.server());
    client(db, &url).await.close().await.expect("a goodbye");
    db.server().drop_line_index(&prefix_of::<D::Server>(&url));
    let found = examine(db, &url).await;
    assert_eq!(bad(&found), [(Grade::Warning, "indexes")]);
    assert!(finding(&found, "indexes").what.contains("line"), "{found:#?}");
}

pub async fn a_user_without_rights_is_in_danger<D: Database>(db: D) {
    let (server, url) = (db.server(), fresh_url(db.server()));
    client(db, &url).await.close().await.expect("a goodbye");
    server.add_user("dora");
    let mine = server.for_user(&url, "dora");
    assert_eq!(bad(&examine(db, &mine).await), []);
    server.revoke("DELETE", "dora");
    let found = examine(db, &mine).await;
    assert_eq!(bad(&found), [(Grade::Danger, "rights")]);
    let rights = finding(&found, "rights");
    assert!(rights.what.contains("DELETE on") && !rights.what.contains("INSERT"), "{rights:?}");
}
