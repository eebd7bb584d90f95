//! The proxy in front of ZooKeeper: what it counts, and what it loses.

use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::zookeeper::jute::{Jute, Kind, op};
use leasehold_testkit::servers::zookeeper::words;
use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};

static SERVER: LazyLock<ZooKeeper> = LazyLock::new(|| ZooKeeper::start(ZooKeeperOptions::new()));

fn stage() -> (Proxy, Jute) {
    let proxy = Proxy::to_zookeeper(SERVER.address());
    let client = Jute::connect(proxy.address(), Duration::from_secs(10)).unwrap();
    (proxy, client)
}

#[track_caller]
fn assert_reset<T>(result: io::Result<T>) {
    let kind = result.err().expect("a reset connection").kind();
    assert!(matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{kind:?}");
}

fn exists(path: &str) -> bool {
    SERVER.nodes().iter().any(|node| node == path)
}

#[test]
fn requests_are_counted_by_what_they_ask() {
    let (proxy, mut client) = stage();
    client.create("/counted", b"", Kind::Ephemeral).unwrap();
    client.data("/counted").unwrap();
    client.data("/not-there").unwrap();
    client.delete("/counted").unwrap();
    let counted = [op::CONNECT, op::CREATE, op::GET_DATA, op::DELETE].map(|op| proxy.requests_of(op));
    assert_eq!(counted, [1, 1, 2, 1]);
    assert_eq!((proxy.requests(), proxy.traffic().answers), (5, 5));
    assert_eq!(proxy.requests_of(op::CREATE2), 0);
    assert_eq!(proxy.requests_by_op().len(), 4);
}

#[test]
fn a_lost_answer_has_had_its_effect() {
    let (proxy, mut client) = stage();
    proxy.lose_answer_to(op::CREATE);
    client.data("/").unwrap();
    assert_reset(client.create("/lost-answer", b"", Kind::Ephemeral));
    assert!(exists("/lost-answer"));
    let mut again = Jute::resume(proxy.address(), client.session()).unwrap();
    assert!(again.delete("/lost-answer").unwrap());
}

#[test]
fn a_request_that_is_cut_before_has_no_effect() {
    let (proxy, mut client) = stage();
    proxy.cut_before(op::CREATE);
    client.data("/").unwrap();
    assert_reset(client.create("/cut-before", b"", Kind::Ephemeral));
    assert!(!exists("/cut-before"));
    assert_eq!(proxy.requests_of(op::CREATE), 0);
}

#[test]
fn a_fault_waits_for_its_path() {
    let (proxy, mut client) = stage();
    proxy.lose_answer_to((op::DELETE, "/path-b"));
    client.create("/path-a", b"", Kind::Ephemeral).unwrap();
    client.create("/path-b", b"", Kind::Ephemeral).unwrap();
    assert!(client.delete("/path-a").unwrap());
    assert_reset(client.delete("/path-b"));
    assert!(!exists("/path-b"));
    assert_eq!(proxy.faults_left(), 0);
}

#[test]
fn four_letter_words_pass() {
    let (proxy, _client) = stage();
    let said = words::ask(proxy.address(), "srvr").unwrap();
    assert_eq!(words::mode(&said), Some("standalone"));
}
