//! What can't work says why, and what to do. No error shows a password.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use leasehold_core::{Error, Kind, Retry};
use leasehold_redis::Config;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};

use crate::common::{Bed, call, redis};

/// A password that no other text contains.
const PASSWORD: &str = "hunter2%25%3F";

/// Opens what can't be opened.
async fn refused(url: &str) -> Error {
    let e = match Bed::try_open(url).await {
        Ok(_) => panic!("{url} was opened"),
        Err(e) => e,
    };
    assert!(e.advice_text().is_some(), "no advice: {e}");
    for shown in [e.to_string(), format!("{e:?}")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    e
}

#[track_caller]
fn says(e: &Error, kind: Kind, retry: Retry, words: &[&str]) {
    assert_eq!((e.kind(), e.retry_advice()), (kind, retry), "{e}");
    for word in words {
        assert!(e.to_string().contains(word), "no {word:?} in: {e}");
    }
}

/// A server of another kind: it answers each request with the same bytes.
fn answering(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|read| read > 0) {
                    if stream.write_all(bytes).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A node of a cluster that knows no other.
fn lonely_node() -> Redis {
    // The port of a cluster's bus is the usual one and 10000, which may be too high: any other will do.
    let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Redis::start(RedisOptions::new().line("cluster-enabled yes").line(format!("cluster-port {bus}")))
}

#[tokio::test]
async fn a_missing_password() {
    let server = Redis::start(RedisOptions::new().password("hunter2%?"));
    let e = refused(&format!("redis://{}", server.address())).await;
    says(&e, Kind::Refused, Retry::Never, &["wants a password", &server.address().to_string()]);
    Bed::open(&format!("redis://:{PASSWORD}@{}", server.address())).await;
    Bed::open(&format!("redis://{}?password={PASSWORD}", server.address())).await;
}

#[tokio::test]
async fn a_wrong_password() {
    let server = Redis::start(RedisOptions::new().password("right"));
    for url in [
        format!("redis://:{PASSWORD}@{}", server.address()),
        format!("redis://bob:{PASSWORD}@{}", server.address()),
        format!("redis://{}?user=bob&password={PASSWORD}", server.address()),
    ] {
        let e = refused(&url).await;
        says(&e, Kind::Refused, Retry::Never, &["does not know this user and password"]);
    }
}

#[tokio::test]
async fn a_password_in_a_file() {
    let server = Redis::start(RedisOptions::new().password("hunter2"));
    let file = server.folder().join("password");
    std::fs::write(&file, "hunter2\n").unwrap();
    let url = format!("redis://{}?password-file={}", server.address(), file.display());
    let bed = Bed::open(&url).await;
    assert!(bed.wire.listening(0).await);
    std::fs::remove_file(&file).unwrap();
    says(&Config::parse(&url).unwrap_err(), Kind::Invalid, Retry::Never, &["password file"]);
}

#[tokio::test]
async fn a_database_that_does_not_exist() {
    let server = redis();
    let e = refused(&format!("{}99", server.url())).await;
    says(&e, Kind::Invalid, Retry::Never, &["no database of this number"]);
}

#[tokio::test]
async fn a_node_of_a_cluster_as_a_single_server() {
    let server = lonely_node();
    let e = refused(&server.url()).await;
    says(&e, Kind::Invalid, Retry::Never, &["node of a cluster", "redis+cluster://"]);
}

#[tokio::test]
async fn a_single_server_as_a_cluster() {
    let server = redis();
    let e = refused(&format!("redis+cluster://{}", server.address())).await;
    says(&e, Kind::Invalid, Retry::Never, &["not a node of a cluster", "redis://"]);
}

#[tokio::test]
async fn a_cluster_without_slots() {
    let server = lonely_node();
    let e = refused(&format!("redis+cluster://{}", server.address())).await;
    says(&e, Kind::Unavailable, Retry::Later, &["no slots"]);
}

#[tokio::test]
async fn a_replica() {
    let (master, replica) = (redis(), redis());
    replica.cli(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let e = refused(&replica.url()).await;
    says(&e, Kind::Refused, Retry::Later, &["replica of", &master.address().to_string()]);
}

#[tokio::test]
async fn a_server_as_a_sentinel() {
    let server = redis();
    let e = refused(&format!("redis+sentinel://{}/mymaster", server.address())).await;
    says(&e, Kind::Invalid, Retry::Never, &["not a Sentinel"]);
}

#[tokio::test]
async fn an_old_server() {
    let old = answering(b"-ERR unknown command 'HELLO'\r\n-ERR unknown command 'HELLO'\r\n-X\r\n");
    let e = refused(&format!("redis://{old}")).await;
    says(&e, Kind::Invalid, Retry::Never, &["too old", "7.0"]);
    let six = answering(
        b"*6\r\n$7\r\nversion\r\n$5\r\n6.2.7\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
          $0\r\n\r\n",
    );
    let e = refused(&format!("redis://{six}")).await;
    says(&e, Kind::Invalid, Retry::Never, &["too old", "6.2.7"]);
}

#[tokio::test]
async fn servers_of_other_kinds() {
    let web = answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let mail = answering(b"220 mail.example ESMTP\r\n");
    let tls = answering(b"\x15\x03\x01\x00\x02\x02\x46");
    let lies = answering(b"+OK\r\n+OK\r\n+OK\r\n");
    for other in [web, mail, tls, lies] {
        let e = refused(&format!("redis://:{PASSWORD}@{other}")).await;
        says(&e, Kind::Invalid, Retry::Never, &[&other.to_string()]);
    }
}

#[tokio::test]
async fn a_server_that_says_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let e = refused(&format!("redis://{address}?timeout=200ms")).await;
    says(&e, Kind::Unavailable, Retry::Later, &["does not answer", &address.to_string()]);
}

#[tokio::test]
async fn a_server_that_hangs_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let e = refused(&format!("redis://{address}?timeout=1s")).await;
    says(&e, Kind::Unavailable, Retry::Later, &["closed the connection", &address.to_string()]);
}

#[tokio::test]
async fn a_port_where_nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for url in [
        format!("redis://{address}"),
        format!("redis+sentinel://{address}/mymaster"),
        format!("redis+cluster://{address}"),
    ] {
        let e = refused(&url).await;
        says(&e, Kind::Unavailable, Retry::Later, &["can't connect", &address.to_string()]);
    }
    says(
        &refused("unix:/nowhere/redis.sock").await,
        Kind::Unavailable,
        Retry::Later,
        &["/nowhere/redis.sock"],
    );
}

#[tokio::test]
async fn a_host_that_does_not_exist() {
    let e = refused("redis://no-such-host.invalid").await;
    says(&e, Kind::Unavailable, Retry::Later, &["no-such-host.invalid"]);
}

#[tokio::test]
async fn a_key_of_another_type() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    server.cli(&["LPUSH", "a", "1"]);
    let e = bed.wire.run(call(&["GET", "a"])).await.unwrap_err();
    says(&e, Kind::Mismatch, Retry::Never, &["another type", "prefix"]);
}
