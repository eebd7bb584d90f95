//! What can't work is refused, before the store is asked: what it says it can't do, and what would wait for itself.

mod common;

use std::sync::LazyLock;

use common::Counting;
use leasehold_client::{Client, Kind, Owner, Part, Traits, Want};
use leasehold_memory::Memory;

static PLAIN: LazyLock<Traits> =
    LazyLock::new(|| Traits { store: "plain", shared: false, ..leasehold_memory::TRAITS.clone() });

#[tokio::test]
async fn shared_claims_and_permits_are_refused_where_the_store_has_none() {
    let store = Counting::promising(Memory::new(), &PLAIN);
    let client = Client::open(store.clone()).await.unwrap();
    let refused = [
        client.rwlock("n").read().await.err(),
        client.rwlock("n").try_read().await.err(),
        client.semaphore("n", 2).acquire(1).await.err(),
        client.multi([Part::mutex("a"), Part::read("n")]).lock().await.err(),
    ];
    for error in refused {
        let error = error.expect("it is refused");
        assert_eq!(error.kind(), Kind::Refused);
        assert!(error.to_string().contains("plain") && error.to_string().contains("use a mutex"), "{error}");
    }
    assert_eq!(
        store.counts.joins(),
        1,
        "only the mutex of the multi-lock was asked for, and it was given back"
    );
    assert!(client.inspect("a").await.unwrap().holders.is_empty());
    drop(client.rwlock("n").write().await.unwrap());
    drop(client.leader("n").campaign().await.unwrap());
}

#[tokio::test]
async fn a_reader_that_asks_to_write_is_refused_reentrant_or_not() {
    let client = Client::open(Memory::new()).await.unwrap();
    let lock = client.rwlock("n").owner(Owner::new());
    let reader = lock.read().await.unwrap();
    for lock in [lock.clone(), lock.clone().reentrant()] {
        let error = lock.write().await.expect_err("two such readers would wait for each other");
        assert_eq!(error.kind(), Kind::Refused);
        assert!(error.to_string().contains("downgrade"), "{error}");
        assert_eq!(lock.try_write().await.err().map(|e| e.kind()), Some(Kind::Refused));
    }
    assert_eq!(lock.clone().reentrant().read().await.unwrap().hold_count(), 2);
    drop(reader);
    let writer = lock.write().await.unwrap();
    let inner = lock.clone().reentrant().read().await.unwrap();
    assert_eq!(
        (inner.want(), inner.token()),
        (Want::Exclusive, writer.token()),
        "a writer may read under its own lock"
    );
}
