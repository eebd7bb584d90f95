//! Locks that end with the user's own transaction.
#![allow(missing_docs)] // Scenarios say by their names what they show.

use leasehold_sql::{TransactionLock, TransactionLocks};
use tokio::task::JoinSet;

use super::{Database, Link, Ran, SqlServer, client, fresh_url, prefix_of};
use crate::wait::{not_yet, soon};

/// A user's own connection.
async fn connect(db: impl Database, url: &str) -> Box<dyn Link> {
    soon("a connection", db.connect(url)).await.expect("a connection")
}

async fn run(link: &mut Box<dyn Link>, statement: &str) -> Ran {
    soon(statement, link.run(statement)).await.unwrap_or_else(|e| panic!("{statement}: {e}"))
}

/// The locks of a URL, with what they need.
async fn locks(db: impl Database, url: &str) -> TransactionLocks {
    let locks = db.transaction_locks(url).expect("locks");
    let mut link = connect(db, url).await;
    for statement in locks.setup() {
        run(&mut link, statement).await;
    }
    locks
}

/// Begins a transaction, and says whether it got the lock at once.
async fn attempt(link: &mut Box<dyn Link>, lock: &TransactionLock) -> bool {
    run(link, "BEGIN").await;
    run(link, &lock.attempt).await.rows.len() == 1
}

/// Waits until the lock is free for another connection. It ends its own transaction each time.
async fn becomes_free(link: &mut Box<dyn Link>, lock: &TransactionLock, after: &str) {
    for tried in 0.. {
        let free = attempt(link, lock).await;
        run(link, "ROLLBACK").await;
        if free {
            return;
        }
        assert!(tried < 2000, "the lock is still held after {after}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

pub async fn a_counter_in_a_table_stays_exact<D: Database>(db: D) {
    const ROUNDS: u32 = 12;
    let server = db.server();
    let url = fresh_url(server);
    let table = format!("{}counter", prefix_of::<D::Server>(&url));
    server.sql(&format!("CREATE TABLE {table} (n INT NOT NULL)"));
    server.sql(&format!("INSERT INTO {table} VALUES (0)"));
    let lock = locks(db, &url).await.named("counter").expect("a name");
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (mut link, lock, table) = (connect(db, &url).await, lock.clone(), table.clone());
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                run(&mut link, "BEGIN").await;
                assert_eq!(run(&mut link, &lock.wait).await.rows.len(), 1);
                // Only the lock keeps others out between these two.
                let seen: u32 = run(&mut link, &format!("SELECT n FROM {table}")).await.rows[0]
                    .parse()
                    .expect("a number");
                run(&mut link, &format!("UPDATE {table} SET n = {}", seen + 1)).await;
                run(&mut link, "COMMIT").await;
            }
        });
    }
    while let Some(finished) = tasks.join_next().await {
        finished.expect("a task");
    }
    assert_eq!(server.sql(&format!("SELECT n FROM {table}")), (4 * ROUNDS).to_string());
}

pub async fn the_lock_ends_with_the_commit_the_rollback_and_the_connection<D: Database>(db: D) {
    let url = fresh_url(db.server());
    let lock = locks(db, &url).await.named("x").expect("a name");
    let (mut a, mut b) = (connect(db, &url).await, connect(db, &url).await);
    for end in ["COMMIT", "ROLLBACK"] {
        assert!(attempt(&mut a, &lock).await);
        // Once more is no deadlock with oneself.
        assert_eq!(run(&mut a, &lock.wait).await.rows.len(), 1);
        assert!(!attempt(&mut b, &lock).await, "two have it");
        run(&mut b, "ROLLBACK").await;
        run(&mut a, end).await;
        // At once: whoever was answered is done.
        assert!(attempt(&mut b, &lock).await, "after {end}");
        run(&mut b, "ROLLBACK").await;
    }
    assert!(attempt(&mut a, &lock).await);
    drop(a);
    becomes_free(&mut b, &lock, "the end of a connection").await;
    // And one that the server ends.
    let mut a = connect(db, &url).await;
    assert!(attempt(&mut a, &lock).await);
    let id = run(&mut a, D::Server::OWN_ID).await.rows.remove(0);
    db.server().kill_backend(&id);
    becomes_free(&mut b, &lock, "a killed connection").await;
    assert!(a.run("COMMIT").await.is_err(), "the killed one can't commit");
}

pub async fn whoever_waits_gets_in_when_the_other_commits<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server);
    let table = format!("{}note", prefix_of::<D::Server>(&url));
    server.sql(&format!("CREATE TABLE {table} (said INT NOT NULL)"));
    let lock = locks(db, &url).await.named("x").expect("a name");
    let (mut a, mut b) = (connect(db, &url).await, connect(db, &url).await);
    assert!(attempt(&mut a, &lock).await);
    let read = format!("SELECT COUNT(*) FROM {table}");
    let mut waiter = tokio::spawn(async move {
        run(&mut b, "BEGIN").await;
        run(&mut b, &lock.wait).await;
        let seen = run(&mut b, &read).await.rows;
        run(&mut b, "COMMIT").await;
        seen
    });
    not_yet("the second has the lock", &mut waiter).await;
    run(&mut a, &format!("INSERT INTO {table} VALUES (1)")).await;
    run(&mut a, "COMMIT").await;
    // What the first one wrote is seen, though the second began before.
    assert_eq!(soon("the second", waiter).await.expect("a task"), ["1"]);
}

pub async fn names_are_told_apart_whatever_their_case_and_length<D: Database>(db: D) {
    let url = fresh_url(db.server());
    let locks = locks(db, &url).await;
    let (mut a, mut b) = (connect(db, &url).await, connect(db, &url).await);
    let (long, longer) = ("x".repeat(1024), format!("{}y", "x".repeat(1023)));
    let names = ["a", "A", "a ", "ä", "Ä", "'; --", "🌙", "\0", &long, &longer];
    for name in names {
        let lock = locks.named(name).expect("a name");
        assert!(attempt(&mut a, &lock).await);
        assert!(!attempt(&mut b, &lock).await, "{name:?} excludes itself");
        run(&mut b, "ROLLBACK").await;
        let others = names.map(|other| (other, locks.named(other).expect("a name")));
        // Now and then two share a key, by chance.
        for (other, others) in others.iter().filter(|(_, others)| others.key != lock.key) {
            assert!(attempt(&mut b, others).await, "{name:?} is not {other:?}");
            run(&mut b, "ROLLBACK").await;
        }
        run(&mut a, "ROLLBACK").await;
    }
    assert!(locks.named(&"x".repeat(1025)).is_err());
}

pub async fn a_prefix_has_locks_of_its_own<D: Database>(db: D) {
    let (one, other) = (fresh_url(db.server()), fresh_url(db.server()));
    let lock = locks(db, &one).await.named("x").expect("a name");
    let others = locks(db, &other).await.named("x").expect("a name");
    let (mut a, mut b) = (connect(db, &one).await, connect(db, &other).await);
    assert!(attempt(&mut a, &lock).await && attempt(&mut b, &others).await);
}

pub async fn it_is_another_lock_than_a_mutex_of_that_name<D: Database>(db: D) {
    let url = fresh_url(db.server());
    let lock = locks(db, &url).await.named("x").expect("a name");
    let (client, mut link) = (client(db, &url).await, connect(db, &url).await);
    let guard = client.mutex("x").lock().await.expect("a lock");
    assert!(attempt(&mut link, &lock).await);
    // Neither holds the other up: its renewals and its release don't wait for the transaction.
    soon("a release", guard.release()).await.expect("a release");
    soon("a lock", client.mutex("x").lock()).await.expect("a lock").release().await.expect("a release");
    run(&mut link, "COMMIT").await;
    client.close().await.expect("a goodbye");
}

pub async fn many_names_in_one_order_never_deadlock<D: Database>(db: D) {
    let url = fresh_url(db.server());
    let locks = locks(db, &url).await;
    let mut tasks = JoinSet::new();
    for turned in [false, true, false, true] {
        let mut names = ["a", "b", "c", "d", "e"];
        if turned {
            names.reverse();
        }
        let (all, mut link) = (locks.all(names).expect("names"), connect(db, &url).await);
        tasks.spawn(async move {
            for _ in 0..10 {
                run(&mut link, "BEGIN").await;
                for lock in &all {
                    run(&mut link, &lock.wait).await;
                }
                run(&mut link, "COMMIT").await;
            }
        });
    }
    while let Some(finished) = tasks.join_next().await {
        finished.expect("no deadlock");
    }
}

pub async fn the_setup_can_be_repeated_while_a_lock_is_held<D: Database>(db: D) {
    let url = fresh_url(db.server());
    let lock = locks(db, &url).await.named("x").expect("a name");
    let (mut a, mut b) = (connect(db, &url).await, connect(db, &url).await);
    assert!(attempt(&mut a, &lock).await);
    let again = locks(db, &url).await.named("x").expect("a name");
    assert!(!attempt(&mut b, &again).await, "it is held");
    run(&mut b, "ROLLBACK").await;
    run(&mut a, "COMMIT").await;
    assert!(attempt(&mut b, &again).await);
}
