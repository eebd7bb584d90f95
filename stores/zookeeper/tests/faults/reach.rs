//! Servers that let nobody in for the moment: what is said about it, and that it passes.

use std::sync::Arc;

use leasehold_core::store::{Inbox, Note, Presence, Session, Store};
use leasehold_core::{Error, Kind, Label, Result, Retry, SessionId};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};
use leasehold_testkit::wait::{eventually, soon};

use super::common;

struct Deaf;

impl Inbox for Deaf {
    fn note(&self, _: Note) {}
    fn session_gone(&self) {}
}

/// One try to open a session, without the client's patience.
async fn open(store: &Arc<dyn Store>) -> Result<Arc<dyn Session>> {
    let me = Presence { id: SessionId::random().expect("an id"), label: Label::new("a") };
    soon("a try to connect", store.clone().open(me, Arc::new(Deaf))).await
}

fn passes_by_itself(error: &Error) {
    assert_eq!((error.kind(), error.retry_advice()), (Kind::Unavailable, Retry::Later), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_just_starting_is_named_and_then_lets_us_in() {
    let server = Arc::new(ZooKeeper::start(ZooKeeperOptions::new()));
    let store = common::open(&server.url()).expect("a store");
    server.kill();
    let error = open(&store).await.err().expect("a dead server");
    passes_by_itself(&error);
    assert!(error.to_string().contains("just starting"), "{error}");
    let starting = tokio::task::spawn_blocking({
        let server = server.clone();
        move || server.restart()
    });
    let session = eventually("it lets us in", || async {
        let opened = open(&store).await;
        if let Err(error) = &opened {
            passes_by_itself(error);
            let said = error.to_string();
            assert!(
                ["just starting", "did not let us in", "does not answer"]
                    .iter()
                    .any(|why| said.contains(why)),
                "{said}"
            );
        }
        opened
    })
    .await;
    session.close().await.expect("a goodbye");
    starting.await.expect("a server");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_too_many_connections_is_named_and_asked_politely() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().line("maxClientCnxns=3"));
    let store = common::open(&server.url()).expect("a store");
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(eventually("a session", || open(&store)).await);
    }
    let proxy = Proxy::to_zookeeper(server.address());
    let store = common::open(&format!("zookeeper://{}", proxy.address())).expect("a store");
    let error = open(&store).await.err().expect("a full server");
    passes_by_itself(&error);
    assert!(error.to_string().contains("maxClientCnxns"), "{error}");
    for _ in 0..3 {
        let before = proxy.traffic().connections;
        passes_by_itself(&open(&store).await.err().expect("a full server"));
        assert_eq!(proxy.traffic().connections - before, 1, "a look is enough to see that it is in vain");
    }
    sessions.pop().expect("a session").close().await.expect("a goodbye");
    sessions.push(eventually("there is room for one more", || open(&store)).await);
    for session in sessions {
        session.close().await.expect("a goodbye");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_pass_by_itself_is_not_worth_another_try() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().user("bob", "secret"));
    for (url, kind) in [
        (format!("{}/no/such/node", server.url()), Kind::Invalid),
        (format!("zookeeper://bob:wrong@{}?auth=sasl", server.address()), Kind::Refused),
    ] {
        let error = open(&common::open(&url).expect("a store")).await.err().expect(&url);
        assert_eq!((error.kind(), error.retry_advice()), (kind, Retry::Never), "{error}");
    }
}

/// A port that nobody listens at, one that takes connections and says nothing, and a name that is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_the_way_is_said_of_each_server() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address");
    let hung = Proxy::to_zookeeper(silent);
    hung.hang();
    let url =
        format!("zookeeper://127.0.0.1:1,{},no-such-host.invalid?timeout=1s&session=2s", hung.address());
    let error = open(&common::open(&url).expect("a store")).await.err().expect("no server");
    passes_by_itself(&error);
    let said = error.to_string();
    for part in [
        "127.0.0.1:1: it refuses",
        &format!("{}: it does not answer", hung.address()),
        "no-such-host.invalid",
    ] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
}
