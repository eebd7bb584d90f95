//! What a multi-lock holds while it waits.

use std::time::Duration;

use leasehold_client::{Client, Part};
use leasehold_core::view::Happened;
use leasehold_memory::Memory;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_part_is_held_for_a_moment_and_given_back_while_another_one_is_waited_for() {
    let memory = Memory::new();
    let other = Client::open(memory.clone()).await.unwrap();
    let client = Client::open(memory).await.unwrap();
    let busy = other.mutex("y").lock().await.unwrap();
    let mut watch = other.watch("x").await.unwrap();
    let multi = client.multi([Part::mutex("x"), Part::mutex("y")]);
    let waiting = tokio::spawn(async move { multi.lock().await });
    let mut seen = Vec::new();
    while !seen.contains(&Happened::Released) {
        let event = timeout(LONG, watch.next()).await.expect("it is given back, though `y` is busy");
        seen.push(event.unwrap().unwrap().what);
    }
    assert!(seen.contains(&Happened::Acquired), "{seen:?}");
    busy.release().await.unwrap();
    let all = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert!(all.is_held());
}
