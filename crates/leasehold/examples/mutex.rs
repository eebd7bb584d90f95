//! The verbs of every lock, on a mutex: wait, try, wait for a while.
//!
//! `cargo run -p leasehold --example mutex` runs it in memory; with `LEASEHOLD_STORE=file:locks` several copies of
//! it, started at the same time, exclude each other.
#![allow(clippy::print_stdout)]

use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> leasehold::Result<()> {
    let url = std::env::var("LEASEHOLD_STORE").unwrap_or_else(|_| "memory:".into());
    let client = leasehold::connect(&url).await?;
    let nightly = client.mutex("jobs/nightly");

    // Waits for as long as it takes. The token goes to whatever the lock guards: see the example `fencing`.
    let guard = nightly.lock().await?;
    println!("locked {} with token {}", guard.name(), guard.token());

    // Busy is `None`, not an error.
    assert!(nightly.try_lock().await?.is_none());
    assert!(nightly.lock_within(Duration::from_millis(20)).await?.is_none());
    println!("busy, as it should be");

    // Runs the work, and stops it if the lock is lost meanwhile.
    let sum = guard.protect(async { (1..=10).sum::<u32>() }).await.expect("nobody took the lock away");
    println!("worked under the lock: {sum}");

    // Dropping the guard gives the lock back too, in the background; this waits for it and tells if it was lost.
    guard.release().await?;

    let next = nightly.lock_within(Duration::from_secs(5)).await?.expect("it is free");
    println!("locked again with a higher token, {}", next.token());
    drop(next);

    // Gives everything back before the program ends.
    client.close().await
}
