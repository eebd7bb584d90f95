//! A holder that is paused past the end of its lease writes late, and is refused.
//!
//! Run it with `cargo run -p leasehold --example fencing`. The story behind it, and the same check for databases and
//! other resources, is in `docs/fencing.md`.
#![allow(clippy::print_stdout)]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::{Client, Fence, Kind, Stale, Token};

/// What the lock guards. It refuses whoever comes with a lower token than the highest it has seen.
struct Account {
    fence: Fence,
    balance: Mutex<i64>,
}

impl Account {
    /// Stamps the token before it reads: from now on no earlier holder can write.
    fn read(&self, token: Token) -> Result<i64, Stale> {
        let balance = self.balance.lock().unwrap_or_else(PoisonError::into_inner);
        self.fence.check(token)?;
        Ok(*balance)
    }

    /// Check and write are one step: the mutex is held for both.
    fn write(&self, token: Token, new: i64) -> Result<(), Stale> {
        let mut balance = self.balance.lock().unwrap_or_else(PoisonError::into_inner);
        self.fence.check(token)?;
        *balance = new;
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two clients of one store, as two machines would be.
    let store = leasehold::open_store("memory:").await?;
    let anna = Client::builder().label("anna").open(store.clone()).await?;
    let bert = Client::builder().label("bert").open(store).await?;
    let account = Account { fence: Fence::new(), balance: Mutex::new(100) };

    // Anna's lease is fixed and short, so that it ends while she is paused.
    let annas = anna.mutex("account/7").lease(Duration::from_millis(200)).lock().await?;
    let read = account.read(annas.token())?;
    println!("anna: has the lock with token {} and reads {read}", annas.token());
    assert!(annas.is_held());
    println!("anna: is paused before she can write (a suspended laptop, a long garbage collection)");

    // Bert waits until Anna's lease is over, and works meanwhile.
    let berts = bert.mutex("account/7").lock().await?;
    let read = account.read(berts.token())?;
    account.write(berts.token(), read - 50)?;
    println!("bert: has the lock with token {}, reads {read} and writes {}", berts.token(), read - 50);
    assert!(berts.token() > annas.token());
    berts.release().await?;

    // Anna goes on where she was. A paused process doesn't look at its guard first: its write is on its way.
    println!("anna: goes on and writes 90, with token {}", annas.token());
    let refused = account.write(annas.token(), 90).expect_err("the late write must be refused");
    println!("account: refuses, {refused}");
    assert_eq!(account.read(refused.highest)?, 50);

    // If she looks, the guard tells her.
    assert!(!annas.is_held());
    let lost = annas.release().await.expect_err("the lease had ended");
    assert_eq!(lost.kind(), Kind::Lost);
    println!("anna: learns from her guard: {lost}");
    println!("account: holds {}, as Bert left it", account.read(refused.highest)?);

    anna.close().await?;
    bert.close().await?;
    Ok(())
}
