//! What a store says it can't do is refused by the client, before the store is asked.

mod common;

use std::sync::LazyLock;

use common::Counting;
use leasehold_client::{Client, Kind, Part, Traits};
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
