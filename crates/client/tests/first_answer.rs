//! What happens to a lock in the moment of its grant, before the claim has read the answer, is never missed.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Counting, Event, until};
use leasehold_client::{Budget, Client, Guard};
use leasehold_memory::Memory;

const LONG: Duration = Duration::from_secs(3600);

/// No renewal comes to help: the lease is an hour.
async fn scene() -> (Arc<Counting>, [Client; 2]) {
    let store = Counting::over(Memory::new());
    let builder = || Client::builder().default_lease(LONG);
    let local = builder().open(store.clone()).await.unwrap();
    let direct = builder().local_queue(Budget::off()).open(store.clone()).await.unwrap();
    (store, [local, direct])
}

/// The guard says what the store says.
async fn must_be_true(client: &Client, guard: &Guard, when: &str) {
    let shown = client.inspect("n").await.unwrap();
    let held = shown.holders.len() == 1 && shown.holders[0].session == client.session();
    assert_eq!(guard.is_held(), held, "{when}: {shown:#?}");
}

/// The answer is read on the spot, or it comes late.
#[tokio::test]
async fn a_loss_in_the_moment_of_the_grant_is_not_missed() {
    let (store, clients) = scene().await;
    for client in &clients {
        for event in [Event::Revoked, Event::SessionGone] {
            for late in [false, true] {
                for fixed in [false, true] {
                    let when = format!("{event:?}, late {late}, fixed {fixed}");
                    store.at_the_grant.next(event);
                    if late {
                        store.gate.close();
                    }
                    let mutex = client.mutex("n");
                    let mutex = if fixed { mutex.lease(LONG) } else { mutex };
                    let joins = store.counts.joins();
                    let claim = tokio::spawn(async move { mutex.lock().await.unwrap() });
                    until("it is asked for", async || store.counts.joins() > joins).await;
                    store.gate.open();
                    let guard = claim.await.unwrap();
                    must_be_true(client, &guard, &when).await;
                    drop(guard);
                    until("it is free", async || client.inspect("n").await.unwrap().holders.is_empty()).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_try_that_loses_the_lock_in_the_moment_of_its_grant_still_answers() {
    let (store, clients) = scene().await;
    for client in &clients {
        for event in [Event::Revoked, Event::SessionGone] {
            store.at_the_grant.next(event);
            let tried = tokio::time::timeout(Duration::from_secs(60), client.mutex("n").try_lock()).await;
            if let Some(guard) = tried.expect("an answer").unwrap() {
                must_be_true(client, &guard, &format!("{event:?}")).await;
            }
        }
    }
}

#[tokio::test]
async fn a_request_in_the_moment_of_the_grant_is_not_missed() {
    let (store, clients) = scene().await;
    for client in &clients {
        store.at_the_grant.next(Event::Requested);
        let guard = client.mutex("n").lock().await.unwrap();
        assert!(guard.is_release_requested());
        guard.release().await.unwrap();
    }
}
