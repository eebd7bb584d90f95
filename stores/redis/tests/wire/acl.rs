//! Users with few rights.

use leasehold_core::{Kind, Retry};
use leasehold_redis::wire::{Call, Script, Slot};
use leasehold_testkit::servers::Cluster;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};

use crate::common::{Bed, call, text};

fn server(rights: &str) -> (Redis, String) {
    let server = Redis::start(RedisOptions::new().user(format!("ana on >hunter2 resetchannels {rights}")));
    let url = format!("redis://ana:hunter2@{}", server.address());
    (server, url)
}

#[tokio::test]
async fn a_user_with_only_what_is_needed_can_do_all() {
    let (server, url) = server(
        "~leasehold:* &leasehold:* +evalsha +eval +get +set +publish +subscribe +unsubscribe +ping +wait",
    );
    let bed = Bed::open(&format!("{url}?replicas=1&replicas-timeout=10ms")).await;
    assert!(bed.wire.listening(0).await);
    let script = Script::new("return redis.call('GET', KEYS[1])");
    bed.wire.run(call(&["SET", "leasehold:a", "1"])).await.unwrap();
    let answer = bed.wire.run(Call::script(&script, Slot(0), &["leasehold:a"])).await.unwrap();
    assert_eq!(text(answer), "1");
    bed.wire.watch_events(true).await.unwrap();
    server.cli(&["PUBLISH", "leasehold:e:0", "event"]);
    bed.heard.event("event").await;
    bed.wire.watch_events(false).await.unwrap();
    let e = bed.wire.replicated(Slot(0)).await.unwrap_err();
    assert!(e.to_string().contains("not enough replicas"), "{e}");
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let (_server, url) = server("~leasehold:* &leasehold:* +ping +subscribe +unsubscribe");
    let bed = Bed::open(&url).await;
    let script = Script::new("return 1");
    let e = bed.wire.run(Call::script(&script, Slot(0), &["leasehold:a"])).await.unwrap_err();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Refused, Retry::Never), "{e}");
    assert!(e.to_string().contains("evalsha") && !e.to_string().contains("hunter2"), "{e}");
}

#[tokio::test]
async fn without_a_right_to_subscribe_nobody_hears_but_commands_work() {
    let (_server, url) = server("~leasehold:* +@all");
    let bed = Bed::open(&url).await;
    bed.wire.run(call(&["SET", "leasehold:a", "1"])).await.unwrap();
    assert!(!bed.wire.listening(0).await);
    let e = bed.wire.watch_events(true).await.unwrap_err();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Refused, Retry::Never), "{e}");
}

#[tokio::test]
async fn a_key_that_the_user_may_not_touch_is_no_puzzle() {
    let (_server, url) = server("~leasehold:* &leasehold:* +@all");
    let bed = Bed::open(&url).await;
    let e = bed.wire.run(call(&["SET", "other:a", "1"])).await.unwrap_err();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Refused, Retry::Never), "{e}");
    let script = Script::new("return redis.call('SET', KEYS[1], 1)");
    let e = bed.wire.run(Call::script(&script, Slot(0), &["other:a"])).await.unwrap_err();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Refused, Retry::Never), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_a_cluster_needs_little_more() {
    let user = "ana on >hunter2 resetchannels ~leasehold:* &leasehold:* +evalsha +eval +get +set +spublish \
                +ssubscribe +sunsubscribe +ping +wait +asking +cluster|slots";
    let servers = Cluster::start_with(3, 1, RedisOptions::new().user(user));
    let url = servers.url().replace("://", "://ana:hunter2@");
    let bed = Bed::open(&url).await;
    let script = Script::new("return redis.call('SET', KEYS[1], ARGV[1])");
    for slot in bed.wire.masters().await.unwrap() {
        let post = bed.wire.post(slot);
        assert!(bed.wire.listening(post.node).await);
        let key = format!("leasehold:{{{}}}", post.tag);
        let (_, mark) = bed.wire.run_marked(Call::script(&script, slot, &[&key]).arg(1)).await.unwrap();
        bed.wire.replicated_since(mark).await.unwrap();
    }
    bed.wire.watch_events(true).await.unwrap();
    // Without the right to see the slots it can't work, and says so.
    for node in servers.nodes() {
        node.cli(&["ACL", "SETUSER", "ana", "-cluster|slots"]);
    }
    let e = Bed::try_open(&url).await.err().unwrap();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Refused, Retry::Never), "{e}");
    assert!(e.to_string().contains("cluster|slots") && !e.to_string().contains("hunter2"), "{e}");
}
