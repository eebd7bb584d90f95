//! A holder that is paused past the end of its lease writes late, and its transaction changes nothing.
//!
//! Run it with `cargo run -p leasehold-mysql --example mysql_fencing -- mysql://user:password@host/database`. The story behind it is in
//! `docs/fencing.md`.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use leasehold_client::Client;
use leasehold_core::Token;
use leasehold_core::url::StoreUrl;
use leasehold_mysql::fence_sql;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, TxOpts};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let url = std::env::args().nth(1).ok_or("which database? mysql://user:password@host/database")?;
    play(&url).await
}

/// Anna is paused, Bert works meanwhile, and Anna goes on.
pub async fn play(url: &str) -> Outcome<()> {
    // Two clients, as two machines would be, and a table that the lock guards.
    let anna = Client::builder().label("anna").open(leasehold_mysql::open(StoreUrl::parse(url)?)?).await?;
    let bert = Client::builder().label("bert").open(leasehold_mysql::open(StoreUrl::parse(url)?)?).await?;
    let place = mysql_async::Opts::from_url(url.split('?').next().unwrap_or(url))?;
    // A row that is found counts, whether or not it changes: the same token may write the same balance twice.
    let mut db = Conn::new(OptsBuilder::from_opts(place).client_found_rows(true)).await?;
    for statement in [
        "CREATE TABLE example_account (id INT PRIMARY KEY, balance INT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
        "CREATE TABLE example_history (id INT, what TEXT)",
        "INSERT INTO example_account VALUES (7, 100, 0)",
    ] {
        db.query_drop(statement).await?;
    }

    let annas = anna.mutex("account/7").lease(Duration::from_millis(200)).lock().await?;
    println!("anna: has the lock with token {}, and is paused before she can write", annas.token());
    // Bert waits until Anna's lease is over.
    let berts = bert.mutex("account/7").lock().await?;
    let written = write(&mut db, berts.token(), 50, "bert").await?;
    println!("bert: has the lock with token {}, and his transaction is committed", berts.token());
    assert!(written && berts.token() > annas.token());

    let written = write(&mut db, annas.token(), 90, "anna").await?;
    println!("anna: goes on, and her transaction changes nothing");
    assert!(!written);
    let row: Option<(i32, String)> = db
        .query_first("SELECT balance, (SELECT GROUP_CONCAT(what) FROM example_history) FROM example_account")
        .await?;
    assert_eq!(row, Some((50, "bert".to_owned())));

    db.query_drop("DROP TABLE example_account, example_history").await?;
    drop(annas);
    berts.release().await?;
    anna.close().await?;
    bert.close().await?;
    Ok(())
}

/// A transaction of a holder. The guarded row comes first: if it refuses, all of it is rolled back.
async fn write(db: &mut Conn, token: Token, balance: i32, who: &str) -> Outcome<bool> {
    let fence = fence_sql("fence", token)?;
    let mut transaction = db.start_transaction(TxOpts::default()).await?;
    let statement =
        format!("UPDATE example_account SET balance = ?, {} WHERE id = 7 AND {}", fence.set, fence.when);
    transaction.exec_drop(statement, (balance,)).await?;
    let in_time = transaction.affected_rows() == 1;
    transaction.exec_drop("INSERT INTO example_history VALUES (7, ?)", (who,)).await?;
    if in_time {
        transaction.commit().await?
    } else {
        transaction.rollback().await?
    }
    Ok(in_time)
}
