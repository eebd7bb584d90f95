//! A lock that ends with the commit: the last seats of a show are sold, each once.
//!
//! Run it with `cargo run -p leasehold-postgres --example postgres_transaction -- postgres://user:password@host/database`. The driver is the user's own;
//! Leasehold only says what to run.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use leasehold_postgres::{Config, TransactionLock};
use tokio_postgres::{Client, NoTls};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const SEATS: i64 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let url = std::env::args().nth(1).ok_or("which database? postgres://user:password@host/database")?;
    play(&url).await
}

/// Ten customers at once want one of three seats.
pub async fn play(url: &str) -> Outcome<()> {
    let locks = Config::parse(url)?.transaction_locks();
    let lock = locks.named("show/7")?;
    let box_office = connect(url).await?;
    box_office.batch_execute("CREATE TABLE example_bookings (show_id INT, customer INT)").await?;
    let mut customers = tokio::task::JoinSet::new();
    for customer in 0..10 {
        let (mut own, lock) = (connect(url).await?, lock.clone());
        customers.spawn(async move { book(&mut own, &lock, customer).await });
    }
    let mut sold = 0;
    while let Some(booked) = customers.join_next().await {
        sold += i64::from(booked??);
    }
    let rows: i64 = box_office.query_one("SELECT count(*) FROM example_bookings", &[]).await?.get(0);
    box_office.batch_execute("DROP TABLE example_bookings").await?;
    println!("{sold} of 10 got one of {SEATS} seats");
    assert_eq!((sold, rows), (SEATS, SEATS));
    Ok(())
}

/// Counts and inserts. No row is there that could be locked, so without the lock two would count the same and both insert.
async fn book(own: &mut Client, lock: &TransactionLock, customer: i32) -> Outcome<bool> {
    let transaction = own.transaction().await?;
    transaction.execute(&lock.wait, &[]).await?;
    let taken = transaction.query_one("SELECT count(*) FROM example_bookings WHERE show_id = 7", &[]).await?;
    let free = taken.get::<_, i64>(0) < SEATS;
    // The customer thinks it over. Others count meanwhile, if they can.
    tokio::time::sleep(Duration::from_millis(10)).await;
    if free {
        transaction.execute("INSERT INTO example_bookings VALUES (7, $1)", &[&customer]).await?;
    }
    // Here the lock ends. If the program dies before, it ends too, and nothing was booked.
    transaction.commit().await?;
    Ok(free)
}

async fn connect(url: &str) -> Outcome<Client> {
    // What stands behind the question mark is for Leasehold.
    let place = url.split('?').next().unwrap_or(url);
    let (client, connection) = tokio_postgres::connect(place, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
