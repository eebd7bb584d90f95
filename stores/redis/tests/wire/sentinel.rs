//! A master that Sentinels name.
//!
//! The tests run on several threads: the handles of the servers block while they wait.

use leasehold_core::{Kind, Retry};
use leasehold_redis::wire::Slot;
use leasehold_testkit::servers::Sentinels;
use leasehold_testkit::servers::redis::RedisOptions;
use leasehold_testkit::servers::resp::Connection;

use crate::common::{Bed, call, eventually, text, until_connections, until_done};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_is_found_and_a_failover_followed() {
    let servers = Sentinels::start();
    let bed = Bed::open(&servers.url()).await;
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
    bed.wire.replicated(Slot(0)).await.unwrap();
    bed.heard.resumed(0).await;
    let old = servers.master();

    servers.kill_master();
    let new = servers.wait_for_new_master(old);
    assert_eq!(text(until_done(&bed.wire, &["GET", "a"]).await), "1");
    until_done(&bed.wire, &["SET", "a", "2"]).await;
    assert_eq!(servers.node(new).cli(&["GET", "a"]).trim(), "2");
    bed.heard.resumed(0).await;
    servers.node(new).cli(&["PUBLISH", &bed.channel(""), "from the new master"]);
    bed.heard.note("from the new master").await;

    servers.restart(old);
    servers.wait_until_ready();
    // The new master's connections are all there are.
    until_connections(servers.node(old), &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_hand_is_followed_without_a_call() {
    let servers = Sentinels::start();
    let bed = Bed::open(&servers.url()).await;
    assert!(bed.wire.listening(0).await);
    let new = servers.failover();
    // By what the Sentinels say, or by the heartbeat: nobody calls.
    until_connections(servers.node(new), &["leasehold", "leasehold-push"]).await;
    until_done(&bed.wire, &["SET", "a", "1"]).await;
    assert_eq!(servers.node(new).cli(&["GET", "a"]).trim(), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_may_die_and_be_found_by_others() {
    let servers = Sentinels::start();
    // One is given; the others are learned from it.
    let one = servers.sentinel_ports()[0];
    let bed =
        Bed::open(&format!("redis+sentinel://127.0.0.1:{one}/{}?timeout=1s", servers.master_name())).await;
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
    let hears = |ports: &[u16]| match ports.iter().any(|port| subscribers(*port) > 0) {
        true => Ok(()),
        false => Err("nobody".to_owned()),
    };
    eventually("the Sentinel is subscribed to", || hears(&[one])).await;
    servers.sentinels()[0].kill();
    eventually("another one is subscribed to", || hears(&servers.sentinel_ports()[1..])).await;
    let new = servers.failover();
    until_connections(servers.node(new), &["leasehold", "leasehold-push"]).await;
    until_done(&bed.wire, &["SET", "a", "2"]).await;
}

/// How many connections of a Sentinel are subscribed to something.
fn subscribers(port: u16) -> usize {
    let ask = || Connection::tcp(([127, 0, 0, 1], port).into())?.ask(&["CLIENT", "LIST"]);
    match ask() {
        Ok(list) => list.to_string().lines().filter(|line| line.contains(" sub=1 ")).count(),
        // It is dead.
        Err(_) => 0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_no_sentinel_knows_is_refused() {
    let servers = Sentinels::start_with(RedisOptions::new().password("hunter2"));
    let port = servers.sentinel_ports()[0];
    let e = Bed::try_open(&format!("redis+sentinel://:hunter2@127.0.0.1:{port}/nobody")).await.err().unwrap();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Invalid, Retry::Never), "{e}");
    assert!(e.to_string().contains("\"nobody\"") && !e.to_string().contains("hunter2"), "{e}");

    let bad = servers.url().replace("hunter2", "wrong");
    let e = Bed::try_open(&bad).await.err().unwrap();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Refused, Retry::Never), "{e}");
    Bed::open(&servers.url()).await;

    // A Sentinel is no server for locks.
    let e = Bed::try_open(&format!("redis://127.0.0.1:{port}")).await.err().unwrap();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Invalid, Retry::Never), "{e}");
    assert!(e.to_string().contains("is a Sentinel"), "{e}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_also_leaves_the_sentinels() {
    let servers = Sentinels::start();
    let bed = Bed::open(&servers.url()).await;
    let all = || servers.sentinel_ports().iter().map(|port| subscribers(*port)).sum::<usize>();
    let is = |wanted: usize| move |now: usize| if now == wanted { Ok(()) } else { Err(now.to_string()) };
    eventually("one Sentinel is subscribed to", || is(1)(all())).await;
    bed.wire.close().await;
    eventually("none is", || is(0)(all())).await;
    until_connections(servers.node(servers.master()), &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_can_have_a_login_of_its_own() {
    let servers = Sentinels::start();
    let port = servers.sentinel_ports()[0];
    let mut direct = Connection::tcp(([127, 0, 0, 1], port).into()).unwrap();
    let rights =
        ["on", ">hunter2", "&+switch-master", "+sentinel|get-master-addr-by-name", "+subscribe", "+ping"];
    let user: Vec<&str> = ["ACL", "SETUSER", "ana", "resetchannels"].into_iter().chain(rights).collect();
    for words in [user.as_slice(), &["ACL", "SETUSER", "default", "resetpass", ">other"]] {
        assert_eq!(direct.ask(words).unwrap().to_string(), "OK");
    }
    let url = format!("redis+sentinel://127.0.0.1:{port}/{}", servers.master_name());
    let e = Bed::try_open(&url).await.err().unwrap();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Refused, Retry::Never), "{e}");
    assert!(e.to_string().contains("sentinel-password"), "{e}");
    let bed = Bed::open(&format!("{url}?sentinel-user=ana&sentinel-password=hunter2")).await;
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
    eventually("the Sentinel is subscribed to", || match direct.ask(&["CLIENT", "LIST"]) {
        Ok(list) if list.to_string().contains("user=ana") && list.to_string().contains(" sub=1 ") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}
