//! Each fault of the proxy, in front of a real server.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::resp::{Connection, Reply, encode};
use leasehold_testkit::servers::{Redis, RedisOptions, until};
use leasehold_testkit::wait::A_WHILE;

fn stage() -> (Redis, Proxy, Connection) {
    let redis = Redis::start(RedisOptions::new());
    let proxy = Proxy::start(redis.address());
    let client = Connection::tcp(proxy.address()).unwrap();
    (redis, proxy, client)
}

fn ask(client: &mut Connection, command: &str) -> io::Result<String> {
    client.ask(&command.split(' ').collect::<Vec<_>>()).map(|reply| reply.to_string())
}

#[track_caller]
fn assert_reset<T>(result: io::Result<T>) {
    let kind = result.err().expect("a reset connection").kind();
    assert!(matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{kind:?}");
}

#[test]
fn everything_passes_and_is_counted() {
    let (_redis, proxy, mut client) = stage();
    assert_eq!(ask(&mut client, "SET a 1").unwrap(), "OK");
    assert_eq!(ask(&mut client, "GET a").unwrap(), "1");
    let request = (encode(&["SET", "a", "1"]).len() + encode(&["GET", "a"]).len()) as u64;
    let traffic = proxy.traffic();
    assert_eq!((traffic.connections, traffic.requests, traffic.answers), (1, 2, 2));
    assert_eq!(
        (traffic.bytes_to_server, traffic.bytes_to_client),
        (request, "+OK\r\n$1\r\n1\r\n".len() as u64)
    );
    assert_eq!((traffic.reads_from_client, traffic.reads_from_server), (2, 2));
    assert_eq!(proxy.open_connections(), 1);
    drop(client);
    until("the closed connection is closed", || match proxy.open_connections() {
        0 => Ok(()),
        open => Err(open),
    });
}

#[test]
fn pipelined_commands_are_counted_one_by_one() {
    let (_redis, proxy, mut client) = stage();
    for at in 0..50 {
        client.send(&["SET", &at.to_string(), "*1\r\n$4\r\nPING\r\n"]).unwrap();
    }
    for _ in 0..50 {
        assert_eq!(client.read().unwrap(), Reply::Status("OK".into()));
    }
    assert_eq!(proxy.requests(), 50);
}

#[test]
fn large_values_pass_in_both_directions() {
    let (_redis, _proxy, mut client) = stage();
    let large = "x".repeat(3 << 20);
    assert_eq!(client.ask(&["SET", "a", &large]).unwrap(), Reply::Status("OK".into()));
    assert_eq!(client.ask(&["GET", "a"]).unwrap(), Reply::Bulk(large.into_bytes()));
}

#[test]
fn a_cut_resets_what_is_open_and_lets_new_connections_in() {
    let (redis, proxy, mut client) = stage();
    ask(&mut client, "PING").unwrap();
    proxy.cut();
    assert_reset(ask(&mut client, "SET a 1"));
    assert_eq!(proxy.open_connections(), 0);
    assert_eq!(redis.cli(&["EXISTS", "a"]), "0");
    let mut again = Connection::tcp(proxy.address()).unwrap();
    assert_eq!(ask(&mut again, "PING").unwrap(), "PONG");
}

#[test]
fn a_refusing_proxy_lets_nobody_in_until_it_passes_again() {
    let (_redis, proxy, mut client) = stage();
    ask(&mut client, "PING").unwrap();
    proxy.refuse();
    assert_reset(ask(&mut client, "PING"));
    for _ in 0..3 {
        let refused = Connection::tcp(proxy.address()).err().expect("a refusal");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
    proxy.pass();
    let mut again = Connection::tcp(proxy.address()).unwrap();
    assert_eq!(ask(&mut again, "PING").unwrap(), "PONG");
}

#[test]
fn a_hanging_proxy_holds_everything_and_lets_it_go_later() {
    let (redis, proxy, mut client) = stage();
    ask(&mut client, "PING").unwrap();
    proxy.hang();
    let mut other = Connection::tcp(proxy.address()).expect("it is accepted");
    client.send(&["SET", "a", "1"]).unwrap();
    other.send(&["SET", "b", "1"]).unwrap();
    thread::sleep(A_WHILE);
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
    proxy.pass();
    assert_eq!(client.read().unwrap().to_string(), "OK");
    assert_eq!(other.read().unwrap().to_string(), "OK");
    assert_eq!(redis.cli(&["DBSIZE"]), "2");
}

#[test]
fn a_hanging_connection_can_be_cut_and_what_it_held_is_gone() {
    let (redis, proxy, mut client) = stage();
    ask(&mut client, "PING").unwrap();
    proxy.hang();
    client.send(&["SET", "a", "1"]).unwrap();
    proxy.cut();
    assert_reset(client.read());
    proxy.pass();
    assert_eq!(ask(&mut Connection::tcp(proxy.address()).unwrap(), "EXISTS a").unwrap(), "0");
    assert_eq!(redis.cli(&["EXISTS", "a"]), "0");
}

#[test]
fn a_delay_holds_up_both_ways_and_not_one_request_after_the_other() {
    let (_redis, proxy, mut client) = stage();
    let each_way = Duration::from_millis(40);
    proxy.delay(each_way);
    let began = Instant::now();
    for _ in 0..20 {
        client.send(&["PING"]).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..20 {
        assert_eq!(client.read().unwrap().to_string(), "PONG");
    }
    let took = began.elapsed();
    assert!(took >= each_way * 2, "{took:?}");
    assert!(took < each_way * 20, "the delays add up: {took:?}");
    proxy.pass();
    assert_eq!(ask(&mut client, "PING").unwrap(), "PONG");
}

#[test]
fn answers_drip() {
    let (_redis, proxy, mut client) = stage();
    let every = Duration::from_millis(5);
    proxy.drip(2, every);
    let began = Instant::now();
    assert_eq!(ask(&mut client, "ECHO 0123456789").unwrap(), "0123456789");
    // 17 bytes are 9 pieces, with 8 pauses between them.
    assert!(began.elapsed() >= every * 8, "{:?}", began.elapsed());
}

#[test]
fn swallowed_answers_never_come_and_the_connection_stays() {
    let (redis, proxy, mut client) = stage();
    proxy.swallow_answers();
    client.send(&["SET", "a", "1"]).unwrap();
    until("the request has its effect", || match redis.cli(&["EXISTS", "a"]) {
        is if is == "1" => Ok(()),
        is => Err(is),
    });
    until("the answer has come to the proxy", || match proxy.traffic().reads_from_server {
        1 => Ok(()),
        reads => Err(reads),
    });
    thread::sleep(A_WHILE);
    proxy.pass();
    assert_eq!(ask(&mut client, "ECHO second").unwrap(), "second");
}

#[test]
fn a_lost_answer_has_had_its_effect() {
    let (redis, proxy, mut client) = stage();
    proxy.lose_next_answer();
    assert_reset(ask(&mut client, "SET a 1"));
    assert_eq!(redis.cli(&["GET", "a"]), "1");
    assert_eq!(proxy.faults_left(), 0);
    let mut again = Connection::tcp(proxy.address()).unwrap();
    assert_eq!(ask(&mut again, "GET a").unwrap(), "1");
}

#[test]
fn some_requests_are_answered_before_an_answer_is_lost() {
    let (redis, proxy, mut client) = stage();
    proxy.lose_answers_after(2);
    ask(&mut client, "SET a 1").unwrap();
    ask(&mut client, "SET b 1").unwrap();
    assert_reset(ask(&mut client, "SET c 1"));
    assert_eq!(redis.cli(&["DBSIZE"]), "3");
}

#[test]
fn a_request_that_is_cut_before_has_no_effect() {
    let (redis, proxy, mut client) = stage();
    ask(&mut client, "PING").unwrap();
    proxy.cut_before_request();
    assert_reset(ask(&mut client, "SET a 1"));
    assert_eq!(redis.cli(&["EXISTS", "a"]), "0");
    assert_eq!(proxy.requests(), 1);
}

#[test]
fn a_fault_waits_for_the_request_it_is_meant_for() {
    let (redis, proxy, mut client) = stage();
    proxy.lose_answer_to(b"orders");
    proxy.cut_before(b"INCR");
    let mut other = Connection::tcp(proxy.address()).unwrap();
    ask(&mut client, "SET users 1").unwrap();
    assert_eq!(proxy.faults_left(), 2);
    assert_reset(ask(&mut client, "SET orders 1"));
    assert_reset(ask(&mut other, "INCR orders"));
    assert_eq!(redis.cli(&["GET", "orders"]), "1");
    assert_eq!(proxy.faults_left(), 0);
}

#[test]
fn answers_before_the_lost_one_still_arrive() {
    let (redis, proxy, mut client) = stage();
    proxy.lose_answer_to(b"SET b");
    proxy.pass();
    proxy.lose_answer_to(b"second");
    for key in ["first", "second"] {
        client.send(&["SET", key, "1"]).unwrap();
    }
    // The connection may be gone before this one leaves.
    let _ = client.send(&["SET", "third", "1"]);
    assert_eq!(client.read().unwrap().to_string(), "OK");
    assert_reset(client.read());
    assert_eq!(redis.cli(&["EXISTS", "first", "second"]), "2");
}

#[test]
fn a_dead_server_behind_the_proxy_is_a_closed_connection() {
    let (redis, proxy, mut client) = stage();
    ask(&mut client, "PING").unwrap();
    redis.kill();
    assert!(ask(&mut client, "PING").is_err());
    let early = Connection::tcp(proxy.address()).and_then(|mut early| ask(&mut early, "PING"));
    assert!(early.is_err());
    redis.restart();
    let mut late = Connection::tcp(proxy.address()).unwrap();
    assert_eq!(ask(&mut late, "PING").unwrap(), "PONG");
}

#[tokio::test(flavor = "current_thread")]
async fn the_proxy_works_while_the_runtime_of_the_test_is_blocked() {
    let (_redis, proxy, mut client) = stage();
    assert_eq!(ask(&mut client, "PING").unwrap(), "PONG");
    proxy.cut();
    assert_reset(ask(&mut client, "PING"));
}

#[test]
fn a_round_trip_through_the_proxy_waits_for_no_timer() {
    let (_redis, _proxy, mut client) = stage();
    let trip = || {
        let began = Instant::now();
        ask(&mut client, "PING").unwrap();
        began.elapsed()
    };
    // The shortest timer takes a millisecond, Nagle with delayed acknowledgements 40 of them. A busy machine slows down many
    // trips, but not all.
    let fastest = std::iter::repeat_with(trip).take(500).min().unwrap();
    assert!(fastest < Duration::from_micros(900), "{fastest:?}");
}
