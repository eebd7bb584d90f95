//! A URL that leads to a server of another kind: the error says what answers there, and comes in time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::{Client, Kind, connect_with};
use leasehold_testkit::servers::{
    MariaDb, MariaDbOptions, Postgres, PostgresOptions, Redis, RedisOptions, ZooKeeper, ZooKeeperOptions,
};

/// The stores, how their URLs look for an address, what their servers are called, and how long connecting may take.
const STORES: [(&str, &str, Duration); 7] = [
    ("redis://{}", "a Redis server", Duration::from_secs(3)),
    ("redis+sentinel://{}/mymaster", "a Redis server", Duration::from_secs(3)),
    ("redis+cluster://{}", "a Redis server", Duration::from_secs(3)),
    ("redlock://{},127.0.0.1:1,127.0.0.1:2", "a Redis server", Duration::from_secs(3)),
    ("postgres://postgres@{}/postgres", "a PostgreSQL server", Duration::from_secs(5)),
    ("mysql://root@{}/locks", "a MySQL or MariaDB server", Duration::from_secs(5)),
    ("zookeeper://{}?session=4s", "a ZooKeeper server", Duration::from_secs(4)),
];

/// What a loaded machine may take on top.
const SLACK: Duration = Duration::from_secs(4);

/// How much longer than one try is tried.
const AGAIN: Duration = Duration::from_secs(2);

/// What a URL leads to, and what is said of it.
struct Place {
    address: SocketAddr,
    name: &'static str,
}

/// Every store is pointed at every place.
async fn each_is_named(places: &[Place]) {
    for place in places {
        let others = STORES.iter().filter(|store| place.name != store.1);
        join_all(others.map(|(url, own, limit)| is_named(place, url, own, *limit))).await;
    }
}

/// A store is pointed at this place.
async fn is_named(place: &Place, url: &str, own: &str, limit: Duration) {
    let url = url.replace("{}", &place.address.to_string());
    let began = Instant::now();
    // What may pass by itself is tried again until then; what can't is told at once.
    let options = Client::builder().open_for(limit + AGAIN);
    let error = match connect_with(options, &url).await {
        Ok(client) => panic!("{url} is {}, and was taken for {own}: {client:?}", place.name),
        Err(error) => error,
    };
    let took = began.elapsed();
    let passes = [SILENT, HANGS_UP].contains(&place.name) || url.starts_with("redlock:");
    let most = limit + SLACK + if passes { AGAIN } else { Duration::ZERO };
    assert!(took < most, "{url} at {} took {took:?}: {error}", place.name);
    let said = error.to_string();
    // Redlock gives its nodes half a second. Of one that needs longer to be known it says that it is not connected yet.
    let late = url.starts_with("redlock:") && said.contains("there is no connection to");
    let name = if url.starts_with("zookeeper:") { in_words_of_zookeeper(place.name) } else { place.name };
    let named = said.contains(name) || late;
    assert!(named, "{url} leads to {}: {said}", place.name);
    assert!(said.contains(&place.address.to_string()), "{url}: {said}");
    // Redlock tells of all nodes why they can't be counted, and others may be enough another time.
    let kind = if passes { Kind::Unavailable } else { Kind::Invalid };
    assert_eq!(error.kind(), kind, "{url}: {said}");
    assert!(error.advice_text().is_some(), "{url}: {said}");
}

/// ZooKeeper has words of its own for what a silent server means, since it looks at each server of a list.
fn in_words_of_zookeeper(name: &str) -> &str {
    match name {
        SILENT => "it does not answer",
        HANGS_UP => "it closes new connections at once",
        other => other,
    }
}

const SILENT: &str = "accepts connections, but does not answer within";
const HANGS_UP: &str = "closed the connection without a word";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_name_each_others_servers() {
    let redis = Redis::start(RedisOptions::new().tls());
    let postgres = Postgres::start(PostgresOptions::new());
    let mysql = MariaDb::start(MariaDbOptions::new());
    let zookeeper = ZooKeeper::start(ZooKeeperOptions::new());
    each_is_named(&[
        Place { address: redis.address(), name: "a Redis server" },
        Place { address: postgres.address(), name: "a PostgreSQL server" },
        Place { address: mysql.address(), name: "a MySQL or MariaDB server" },
        Place { address: zookeeper.address(), name: "a ZooKeeper server" },
        Place { address: redis.tls_address(), name: "a server that speaks TLS" },
    ])
    .await;
    // A server that is right, and only wants something else of us, is not called a stranger.
    let url = format!("redis+sentinel://{}/mymaster", redis.address());
    let error = leasehold::connect(&url).await.expect_err("it is no Sentinel");
    assert!(error.to_string().contains("is not a Sentinel"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_password_is_named_too() {
    let redis = Redis::start(RedisOptions::new().password("secret"));
    each_is_named(&[Place { address: redis.address(), name: "a Redis server" }]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_and_silence_are_named() {
    let http = listen(|mut stream| {
        let (mut said, mut part) = (Vec::<u8>::new(), [0; 1024]);
        // A server of today's: it waits for the end of a request, and thinks nothing of one that can't be one.
        while !said.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(1..) if !part[0].is_ascii_alphabetic() && said.is_empty() => break,
                Ok(more @ 1..) => said.extend(&part[..more]),
                _ => return,
            }
        }
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    });
    let silent = listen(|mut stream| while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {});
    let hangs_up = listen(drop);
    each_is_named(&[
        Place { address: http, name: "an HTTP server" },
        Place { address: silent, name: SILENT },
        Place { address: hangs_up, name: HANGS_UP },
    ])
    .await;
}

/// Drivers leave that to the cause of their error, or to the cause of that.
#[tokio::test]
async fn an_address_where_nothing_listens_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let escaped = folder.path().display().to_string().replace('/', "%2F");
    for (url, why) in [
        ("redis://127.0.0.1:1".to_owned(), "refused"),
        ("mysql://u@127.0.0.1:1/locks".to_owned(), "refused"),
        ("postgres://u@127.0.0.1:1/locks".to_owned(), "refused"),
        (format!("postgres://u@{escaped}/locks"), "No such file"),
        (format!("unix:{}/socket", folder.path().display()), "No such file"),
    ] {
        let options = Client::builder().open_for(Duration::from_millis(1));
        let error = connect_with(options, &url).await.expect_err(&url);
        assert!(error.to_string().contains(why), "{url}: {error}");
        // Once is enough.
        assert_eq!(error.to_string().matches(why).count(), 1, "{url}: {error}");
    }
}

/// Serves every connection in a thread of its own.
fn listen(serve: fn(std::net::TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}
