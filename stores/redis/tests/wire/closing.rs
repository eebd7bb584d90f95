//! Nothing stays behind.

use leasehold_core::{Kind, Retry};
use leasehold_redis::wire::Slot;

use crate::common::{Bed, call, eventually, redis, until_connections};

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Tasks that were aborted end when they get their turn.
async fn until_tasks(wanted: usize) {
    eventually("all tasks have ended", || match tasks() {
        now if now == wanted => Ok(()),
        now => Err(now.to_string()),
    })
    .await;
}

#[tokio::test]
async fn a_session_has_two_connections() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    until_connections(&server, &["leasehold", "leasehold-push"]).await;
    for _ in 0..10 {
        bed.wire.run(call(&["GET", "a"])).await.unwrap();
    }
    until_connections(&server, &["leasehold", "leasehold-push"]).await;
}

#[tokio::test]
async fn closing_closes_all_connections() {
    let server = redis();
    let bed = Bed::open(&format!("{}?replicas=1&replicas-timeout=1ms", server.url())).await;
    let _ = bed.wire.replicated(Slot(0)).await;
    until_connections(&server, &["leasehold", "leasehold", "leasehold-push"]).await;
    bed.wire.close().await;
    until_connections(&server, &[]).await;
    let e = bed.wire.run(call(&["GET", "a"])).await.unwrap_err();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Unavailable, Retry::Never), "{e}");
    assert!(bed.wire.run_all(vec![call(&["GET", "a"])]).await[0].is_err());
    assert!(!bed.wire.listening(0).await);
    assert!(bed.wire.watch_events(true).await.is_err());
    bed.wire.close().await;
}

#[tokio::test]
async fn dropping_closes_all_connections_and_ends_all_tasks() {
    let server = redis();
    let before = tasks();
    let bed = Bed::open(&format!("{}?replicas=1&replicas-timeout=1ms", server.url())).await;
    let _ = bed.wire.replicated(Slot(0)).await;
    until_connections(&server, &["leasehold", "leasehold", "leasehold-push"]).await;
    drop(bed);
    until_connections(&server, &[]).await;
    until_tasks(before).await;
}

#[tokio::test]
async fn a_refused_opening_leaves_nothing() {
    let server = redis();
    let before = tasks();
    assert!(Bed::try_open(&format!("{}99", server.url())).await.is_err());
    until_connections(&server, &[]).await;
    until_tasks(before).await;
}

#[tokio::test]
async fn a_call_on_its_way_ends_when_the_wire_is_closed() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    let wire = bed.wire.clone();
    let waiting = tokio::spawn(async move { wire.run(call(&["BLPOP", "a", "0"])).await });
    eventually("the call has arrived", || match server.cli(&["CLIENT", "LIST"]) {
        list if list.contains("cmd=blpop") => Ok(()),
        list => Err(list),
    })
    .await;
    bed.wire.close().await;
    assert_eq!(waiting.await.unwrap().unwrap_err().retry_advice(), Retry::SameId);
}
