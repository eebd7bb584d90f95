//! Replicas that must have a grant.

use std::time::{Duration, Instant};

use leasehold_core::{Kind, Retry};
use leasehold_redis::wire::Slot;
use leasehold_testkit::servers::redis::Redis;
use leasehold_testkit::servers::resp::Reply;
use leasehold_testkit::wait::eventually;

use crate::common::{Bed, PATIENCE, call, redis, until_connections, until_done};

/// A master and a replica that follows it.
fn pair() -> (Redis, Redis) {
    let (master, replica) = (redis(), redis());
    replica.cli(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    // A connection that never wrote waits for nothing: only a write of its own shows that the replica acknowledges.
    let mut direct = master.connect().unwrap();
    leasehold_testkit::servers::until("the replica acknowledges a write", || {
        direct.ask(&["SET", "first", "1"]).unwrap();
        match direct.ask(&["WAIT", "1", "1000"]).unwrap() {
            Reply::Int(1) => Ok(()),
            other => Err(other.to_string()),
        }
    });
    (master, replica)
}

#[tokio::test]
async fn nothing_is_waited_for_if_none_are_demanded() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    bed.wire.replicated(Slot(0)).await.unwrap();
    assert_eq!(server.calls("wait"), 0);
    until_connections(&server, &["leasehold", "leasehold-push"]).await;
}

#[tokio::test]
async fn what_was_done_before_is_on_the_replica_after() {
    let (master, replica) = pair();
    let bed = Bed::open(&format!("{}?replicas=1&replicas-timeout=30s&timeout=30s", master.url())).await;
    for round in 0..100 {
        let word = round.to_string();
        let (_, mark) = bed.wire.run_marked(call(&["SET", "a", &word])).await.unwrap();
        bed.wire.replicated_since(mark).await.unwrap();
        assert_eq!(replica.cli(&["GET", "a"]).trim(), word);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_the_same_time_share_a_round_trip() {
    let (master, _replica) = pair();
    let bed = Bed::open(&format!("{}?replicas=1&replicas-timeout=30s&timeout=30s", master.url())).await;
    bed.wire.replicated(Slot(0)).await.unwrap();
    let before = master.calls("wait");
    let all = (0..500).map(|_| bed.wire.replicated(Slot(0)));
    for outcome in futures_util::future::join_all(all).await {
        outcome.unwrap();
    }
    let waits = master.calls("wait") - before;
    assert!(waits < 50, "{waits} round trips for 500 callers that came at once");
}

#[tokio::test]
async fn too_few_replicas_are_refused() {
    let (master, replica) = pair();
    let url = |replicas: u32| format!("{}?replicas={replicas}&replicas-timeout=500ms", master.url());
    let bed = Bed::open(&url(2)).await;
    let (_, mark) = bed.wire.run_marked(call(&["SET", "a", "1"])).await.unwrap();
    let limit = Instant::now() + PATIENCE;
    let mut answered = [false; 2];
    // On a machine that stalls, the one that is there may not answer in time either.
    while answered != [true; 2] {
        assert!(Instant::now() < limit, "the replica never answers");
        let (all, since) = (bed.wire.replicated(Slot(0)).await, bed.wire.replicated_since(mark).await);
        for (e, answered) in [all, since].into_iter().map(Result::unwrap_err).zip(&mut answered) {
            assert_eq!((e.kind(), e.retry_advice()), (Kind::Unavailable, Retry::Later), "{e}");
            assert!(e.advice_text().unwrap().contains("replicas=0"), "{e}");
            let said = |count: u32| {
                let what = format!("not enough replicas: 2 wanted, {count} answered within 500ms");
                e.to_string().contains(&what)
            };
            assert!(said(0) || said(1), "{e}");
            *answered |= said(1);
        }
    }
    let bed = Bed::open(&url(1)).await;
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
    replica.pause();
    let e = bed.wire.replicated(Slot(0)).await.unwrap_err();
    assert!(e.to_string().contains("not enough replicas: 1 wanted, 0 answered"), "{e}");
    replica.resume();
    until_replicated(&bed).await;
}

async fn until_replicated(bed: &Bed) {
    let limit = Instant::now() + PATIENCE;
    while let Err(e) = bed.wire.replicated(Slot(0)).await {
        assert!(Instant::now() < limit, "{e}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_command_does_not_wait_behind_the_replicas() {
    let (master, replica) = pair();
    let bed = Bed::open(&format!("{}?replicas=1&replicas-timeout=30s&timeout=30s", master.url())).await;
    replica.pause();
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
    let wire = bed.wire.clone();
    let waiting = tokio::spawn(async move { wire.replicated(Slot(0)).await });
    crate::common::eventually("the replicas are waited for", || match master.info("blocked_clients") {
        count if count == "1" => Ok(()),
        count => Err(count),
    })
    .await;
    bed.wire.run(call(&["SET", "a", "2"])).await.unwrap();
    assert!(!waiting.is_finished());
    replica.resume();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_master_that_restarted_is_not_the_one_that_answered() {
    let (master, replica) = pair();
    let bed = Bed::open(&format!("{}?replicas=1&replicas-timeout=1s", master.url())).await;
    let (_, mark) = bed.wire.run_marked(call(&["SET", "a", "1"])).await.unwrap();
    eventually("it is replicated", || bed.wire.replicated_since(mark)).await;
    // It comes back without what it had, and its replica follows it in that.
    master.kill();
    master.restart_empty();
    until_done(&bed.wire, &["GET", "a"]).await;
    until_replicated(&bed).await;
    drop(replica);
    let e = bed.wire.replicated_since(mark).await.unwrap_err();
    assert_eq!(e.kind(), Kind::Unavailable, "{e}");
    assert_ne!(e.retry_advice(), Retry::Never, "{e}");
}
