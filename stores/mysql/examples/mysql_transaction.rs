//! A lock that ends with the commit: the last seats of a show are sold, each once.
//!
//! Run it with `cargo run -p leasehold-mysql --example mysql_transaction -- mysql://user:password@host/database`. The driver is the user's own;
//! Leasehold only says what to run.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use leasehold_mysql::{Config, TransactionLock};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const SEATS: u32 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let url = std::env::args().nth(1).ok_or("which database? mysql://user:password@host/database")?;
    play(&url).await
}

/// Ten customers at once want one of three seats.
pub async fn play(url: &str) -> Outcome<()> {
    let locks = Config::parse(url)?.transaction_locks();
    let lock = locks.named("show/7")?;
    let mut box_office = connect(url).await?;
    // Once, by somebody who may create tables.
    for statement in locks.setup() {
        box_office.query_drop(statement).await?;
    }
    box_office.query_drop("CREATE TABLE example_bookings (show_id INT, customer INT)").await?;
    let mut customers = tokio::task::JoinSet::new();
    for customer in 0..10 {
        let (mut own, lock) = (connect(url).await?, lock.clone());
        customers.spawn(async move { book(&mut own, &lock, customer).await });
    }
    let mut sold = 0;
    while let Some(booked) = customers.join_next().await {
        sold += u32::from(booked??);
    }
    let rows: Option<u32> = box_office.query_first("SELECT COUNT(*) FROM example_bookings").await?;
    box_office.query_drop("DROP TABLE example_bookings").await?;
    println!("{sold} of 10 got one of {SEATS} seats");
    assert_eq!((sold, rows), (SEATS, Some(SEATS)));
    Ok(())
}

/// Counts and inserts. No row is there that could be locked, so without the lock two would count the same and both insert.
async fn book(own: &mut Conn, lock: &TransactionLock, customer: u32) -> Outcome<bool> {
    let mut transaction = own.start_transaction(TxOpts::default()).await?;
    // The first statement: what is read after it is as new as the lock.
    let locked: Option<u32> = transaction.query_first(&lock.wait).await?;
    if locked.is_none() {
        return Err("the rows to lock are missing: run the setup".into());
    }
    let taken: Option<u32> =
        transaction.query_first("SELECT COUNT(*) FROM example_bookings WHERE show_id = 7").await?;
    let free = taken < Some(SEATS);
    // The customer thinks it over. Others count meanwhile, if they can.
    tokio::time::sleep(Duration::from_millis(10)).await;
    if free {
        transaction.exec_drop("INSERT INTO example_bookings VALUES (7, ?)", (customer,)).await?;
    }
    // Here the lock ends. If the program dies before, it ends too, and nothing was booked.
    transaction.commit().await?;
    Ok(free)
}

async fn connect(url: &str) -> Outcome<Conn> {
    // What stands behind the question mark is for Leasehold.
    let place = url.split('?').next().unwrap_or(url);
    Ok(Conn::from_url(place).await?)
}
