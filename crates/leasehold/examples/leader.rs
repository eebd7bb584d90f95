//! Leader election: one leads, another takes over when it resigns, and anybody can look on.
//!
//! Run it with `cargo run -p leasehold --example leader`.
#![allow(clippy::print_stdout)]

use leasehold::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> leasehold::Result<()> {
    let store = leasehold::open_store("memory:").await?;
    let one = Client::builder().label("node one").open(store.clone()).await?;
    let two = Client::builder().label("node two").open(store).await?;

    let leadership = one.leader("scheduler").campaign().await?;
    println!("node one leads, token {}", leadership.token());

    // The second stands by. In a service this is a loop: campaign, lead until it is lost, campaign again.
    let standby = tokio::spawn({
        let two = two.clone();
        async move { two.leader("scheduler").campaign().await }
    });

    let current = one.leader("scheduler").current().await?.expect("somebody leads");
    println!("whoever asks sees: {}", current.label);
    assert_eq!(current.label.as_str(), "node one");

    leadership.resign().await?;
    let leadership = standby.await.expect("the task did not panic")?;
    println!("node one resigned, node two leads, token {}", leadership.token());
    let current = one.leader("scheduler").current().await?.expect("somebody leads");
    assert_eq!(current.label.as_str(), "node two");

    leadership.resign().await?;
    one.close().await?;
    two.close().await
}
