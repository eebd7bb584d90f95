//! A store that is not available yet, or not any more. Limits are kept, and what is waited for is named.

use std::fs::File;
use std::time::{Duration, Instant};

use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::{
    Cluster, MariaDb, MariaDbOptions, Postgres, PostgresOptions, Redis, RedisOptions, ZooKeeper,
    ZooKeeperOptions,
};

use crate::house::{Done, House, Running, until};

/// One time-out of the Redis store, the exit of the program, and a machine that does other things as well.
const SLACK: Duration = Duration::from_secs(6);

fn through(proxy: &Proxy) -> String {
    format!("redis://{}", proxy.address())
}

fn timed(house: &House, args: &[&str]) -> (Done, Duration) {
    let since = Instant::now();
    (house.run(args), since.elapsed())
}

#[test]
fn a_server_that_starts_is_waited_for_and_named() {
    let (house, server) = (House::new(), Redis::start(RedisOptions::new()));
    let proxy = Proxy::start(server.address());
    for wait in [&["--wait", "60s"][..], &[]] {
        proxy.refuse();
        let url = through(&proxy);
        let args = [&["--store", &url, "run"], wait, &["x", "--", "echo", "mine"]].concat();
        let running = house.start(args);
        std::thread::sleep(Duration::from_secs(2));
        proxy.pass();
        let done = running.done().expect(0);
        assert_eq!(done.stdout, "mine\n");
        let waits: Vec<&str> = done.stderr.lines().filter(|line| line.contains("is waited for")).collect();
        assert_eq!(waits.len(), 1, "{done:#?}");
        assert!(waits[0].contains(&proxy.address().to_string()), "{done:#?}");
    }
    proxy.refuse();
    let url = through(&proxy);
    let quiet = house.run(["--store", &url, "run", "--quiet", "--wait", "1s", "x", "--", "true"]).expect(69);
    assert_eq!(quiet.stderr.lines().count(), 1, "{quiet:#?}");
}

#[test]
fn a_wait_ends_in_time_though_the_store_is_away() {
    let (house, server) = (House::new(), Redis::start(RedisOptions::new()));
    let proxy = Proxy::start(server.address());
    let url = through(&proxy);
    for hangs in [false, true] {
        if hangs {
            proxy.pass();
            proxy.hang();
        } else {
            proxy.refuse();
        }
        for (how, limit) in [(&["--wait", "3s"][..], 3), (&["--try"], 0), (&["--wait", "0"], 0)] {
            let args = [&["--store", &url, "run"], how, &["x", "--", "true"]].concat();
            let (done, time) = timed(&house, &args);
            let limit = Duration::from_secs(limit);
            assert!(time >= limit && time < limit + SLACK, "{how:?}, {hangs}: {time:?}: {done:#?}");
            done.expect(69).says(&["tried for", &proxy.address().to_string()]);
        }
    }
}

#[test]
fn a_wait_in_the_queue_ends_in_time_though_the_store_falls_silent() {
    let (house, server) = (House::new(), Redis::start(RedisOptions::new()));
    let proxy = Proxy::start(server.address());
    let (direct, url) = (server.url(), format!("{}/?timeout=1s", through(&proxy)));
    let script = "echo > held; until [ -e done ]; do sleep 0.01; done";
    let holder =
        house.start(["--store", &direct, "run", "loud", "--also", "quiet", "--", "sh", "-c", script]);
    until("it is held", || house.path("held").exists());
    let waits = |name| {
        let shown = house.run(["--store", &direct, "--format", "json", "show", name]).json();
        shown["waiters"].as_array().is_some_and(|waiters| !waiters.is_empty())
    };
    for (name, quiet) in [("loud", &[][..]), ("quiet", &["--quiet"])] {
        proxy.pass();
        let since = Instant::now();
        let waiter = [&["--store", &url, "run", "--wait", "4s"], quiet, &[name, "--", "true"]].concat();
        let waiter = house.start(waiter);
        until("it waits", || waits(name));
        proxy.hang();
        let done = waiter.done();
        let time = since.elapsed();
        assert!(time >= Duration::from_secs(4) && time < Duration::from_millis(7_500), "{time:?}: {done:#?}");
        done.expect(69).says(&["tried for", &proxy.address().to_string()]);
    }
    house.touch("done");
    holder.done().expect(0);
}

#[test]
fn a_release_waits_as_long_as_it_was_told() {
    let (house, server) = (House::new(), Redis::start(RedisOptions::new()));
    let proxy = Proxy::start(server.address());
    let (direct, url) = (server.url(), through(&proxy));
    let script = "echo > held; until [ -e done ]; do sleep 0.01; done";
    let holder = house.start(["--store", &direct, "run", "x", "--", "sh", "-c", script]);
    until("it is held", || house.path("held").exists());
    for how in [&["--ask"][..], &["--force", "--yes"]] {
        let release = [&["--store", &url, "release", "x"], how, &["--wait", "3s"]].concat();
        proxy.refuse();
        let (done, time) = timed(&house, &release);
        assert!(time < Duration::from_secs(3) + SLACK, "{time:?}: {done:#?}");
        done.expect(69);
        // It has asked, and the store falls silent.
        proxy.pass();
        let since = Instant::now();
        let waiting = house.start(&release);
        until("it was asked", || house.run(["--store", &direct, "show", "x"]).stdout.contains("asked"));
        proxy.hang();
        let done = waiting.done();
        let time = since.elapsed();
        assert!(
            time >= Duration::from_secs(3) && time < Duration::from_secs(3) + SLACK,
            "{time:?}: {done:#?}"
        );
        done.expect(69);
    }
    // One that is back in time is no reason to give up.
    proxy.pass();
    let waiting = house.start(["--store", &url, "release", "x", "--ask", "--wait", "25s"]);
    std::thread::sleep(Duration::from_millis(500));
    proxy.refuse();
    house.touch("done");
    holder.done().expect(0);
    proxy.pass();
    waiting.done().expect(0);
}

/// The exit codes are those of docs/cli.md.
#[test]
fn a_limit_is_kept_on_a_server_that_takes_no_writes_now() {
    let house = House::new();
    let full = Redis::start(RedisOptions::new().max_memory("1mb"));
    let replica = Redis::start(RedisOptions::new().line("replicaof 127.0.0.1 1"));
    let read_only = Postgres::start(PostgresOptions::new().line("default_transaction_read_only = on"));
    for (url, why) in [
        (full.url(), "out of memory"),
        (replica.url(), "read-only replica"),
        (read_only.url(), "can only be read"),
    ] {
        for (how, limit) in [(&["--try"][..], 0), (&["--wait", "2s"], 2)] {
            let args = [&["--store", &url, "run"], how, &["x", "--", "true"]].concat();
            let (done, time) = timed(&house, &args);
            let limit = Duration::from_secs(limit);
            assert!(time >= limit && time < limit + SLACK, "{url}, {how:?}: {time:?}: {done:#?}");
            done.expect(77).says(&[why, "tried for"]);
        }
    }
}

/// A grant that no replica has is none: neither where the client asks for one, nor where the server takes no writes without.
#[test]
fn a_limit_is_kept_on_a_server_that_lost_its_replicas() {
    let house = House::new();
    let server = Redis::start(RedisOptions::new());
    let alone = format!("{}?replicas=1&replicas-timeout=300ms", server.url());
    let strict = Redis::start(RedisOptions::new().line("min-replicas-to-write 1"));
    for (url, why) in [(&alone, "not enough replicas"), (&strict.url(), "NOREPLICAS")] {
        for (how, limit) in [(&["--try"][..], 0), (&["--wait", "2s"], 2)] {
            let args = [&["--store", url, "run"], how, &["x", "--", "true"]].concat();
            let (done, time) = timed(&house, &args);
            let limit = Duration::from_secs(limit);
            assert!(time >= limit && time < limit + SLACK, "{url}, {how:?}: {time:?}: {done:#?}");
            done.expect(69).says(&[why, "tried for"]);
        }
    }
}

#[test]
fn what_can_never_work_fails_at_once_whatever_the_wait() {
    let house = House::new();
    let (redis, postgres) =
        (Redis::start(RedisOptions::new().password("hunter2")), Postgres::start(PostgresOptions::new()));
    let mysql = MariaDb::start(MariaDbOptions::new());
    let zookeeper = ZooKeeper::start(ZooKeeperOptions::new().user("bob", "secret"));
    for (url, code) in [
        (format!("redis://:wrong@{}", redis.address()), 77),
        (format!("redis://:hunter2@{}/99", redis.address()), 64),
        (postgres.url().replace("/postgres", "/nowhere"), 77),
        (mysql.url().replace("/locks", "/nowhere"), 77),
        (format!("mysql://root:wrong@{}/locks", mysql.address()), 77),
        (format!("zookeeper://bob:wrong@{}?auth=sasl", zookeeper.address()), 77),
        ("redis://127.0.0.1:1:2".to_owned(), 64),
    ] {
        let (done, time) = timed(&house, &["--store", &url, "run", "--wait", "60s", "x", "--", "true"]);
        assert!(time < Duration::from_secs(15), "{url}: {time:?}");
        done.expect(code);
    }
}

/// Starts so many commands at once. One has the lock, and keeps its connection until there is no room for another one,
/// which is told the reason. Each gets the lock.
fn all_get_their_turn(url: &str, crowd: usize, reason: &str) {
    let house = House::new();
    let script = "echo >> turns; until [ -e go ]; do sleep 0.01; done";
    let args = ["--store", url, "run", "--wait", "60s", "x", "--", "sh", "-c", script];
    let said = File::create(house.path("said")).expect("a file");
    let start = || {
        let mut command = house.leasehold(args);
        command.stderr(said.try_clone().expect("the file once more"));
        Running::of(command.spawn().expect("the program starts"))
    };
    let running: Vec<_> = (0..crowd).map(|_| start()).collect();
    until("one is not let in", || house.read("said").contains("is waited for"));
    // What each says at first depends on the moment: a slow machine lets requests time out. One more finds the server
    // full.
    let one_more = ["--store", url, "run", "--wait", "2s", "x", "--", "true"];
    until("one that is not let in says why", || {
        house.read("said").contains(reason) || house.run(one_more).stderr.contains(reason)
    });
    house.touch("go");
    for one in running {
        let done = one.done();
        assert_eq!(done.code(), 0, "{}", house.read("said"));
    }
    assert_eq!(house.read("turns").lines().count(), crowd);
}

#[test]
fn more_processes_than_a_postgres_server_takes_connections_all_get_their_turn() {
    let few = PostgresOptions::new().line("max_connections = 8").line("superuser_reserved_connections = 0");
    let server = Postgres::start(few);
    all_get_their_turn(&server.url(), 14, "too many clients");
}

#[test]
fn more_processes_than_a_mysql_server_takes_connections_all_get_their_turn() {
    let server = MariaDb::start(MariaDbOptions::new().line("max-connections=10"));
    all_get_their_turn(&server.url(), 16, "Too many connections");
}

#[test]
fn more_processes_than_a_redis_server_takes_clients_all_get_their_turn() {
    let server = Redis::start(RedisOptions::new().line("maxclients 8"));
    all_get_their_turn(&server.url(), 10, "as many clients as it takes");
}

/// Which says it in other words.
#[test]
fn more_processes_than_a_redis_cluster_takes_clients_all_get_their_turn() {
    let cluster = Cluster::start_with(1, 0, RedisOptions::new().line("maxclients 8"));
    let url = format!("{}?replicas=0", cluster.url());
    all_get_their_turn(&url, 10, "as many clients as it takes");
}

#[test]
fn more_processes_than_a_zookeeper_server_takes_connections_all_get_their_turn() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().line("maxClientCnxns=4"));
    all_get_their_turn(&server.url(), 10, "maxClientCnxns");
}
