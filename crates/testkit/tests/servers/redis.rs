//! A single Redis server, and several independent ones.

use std::sync::LazyLock;

use leasehold_testkit::servers::resp::{Connection, Reply};
use leasehold_testkit::servers::{Independent, Redis, RedisOptions};

#[test]
fn a_server_answers_as_soon_as_it_is_started() {
    let redis = Redis::start(RedisOptions::new());
    assert_eq!(redis.cli(&["PING"]), "PONG");
    assert_eq!(redis.cli(&["SET", "a", "1"]), "OK");
    assert_eq!(redis.cli(&["INCR", "a"]), "2");
    assert_eq!(redis.cli(&["GET", "b"]), "");
    assert_eq!(redis.cli(&["MGET", "a", "b"]), "2\n");
    assert_eq!(redis.cli(&["DBSIZE"]), "1");
    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}/", redis.port()));
}

#[test]
fn commands_are_counted_by_the_server() {
    let redis = Redis::start(RedisOptions::new());
    assert_eq!(redis.calls("get"), 0);
    redis.cli(&["GET", "a"]);
    redis.cli(&["GET", "a"]);
    assert_eq!(redis.calls("GET"), 2);
    assert_eq!(redis.info("role"), "master");
}

#[test]
fn an_error_of_the_server_is_an_answer() {
    let redis = Redis::start(RedisOptions::new());
    redis.cli(&["SET", "a", "text"]);
    let Ok(Reply::Error(what)) = redis.ask(&["INCR", "a"]) else { panic!("no error") };
    assert!(what.contains("not an integer"), "{what}");
}

#[test]
fn a_password_is_asked_for() {
    let redis = Redis::start(RedisOptions::new().password("secret"));
    assert_eq!(redis.cli(&["PING"]), "PONG");
    assert!(redis.url().starts_with("redis://:secret@127.0.0.1:"));
    let mut stranger = Connection::tcp(redis.address()).unwrap();
    let Reply::Error(what) = stranger.ask(&["PING"]).unwrap() else { panic!("a stranger is let in") };
    assert!(what.starts_with("NOAUTH"), "{what}");
}

#[test]
fn users_have_their_own_rules_and_the_handle_still_gets_in() {
    let options = RedisOptions::new().user("default off").user("ana on >pass ~lh:* +set +get");
    let redis = Redis::start(options);
    assert_eq!(redis.cli(&["PING"]), "PONG");
    let mut ana = Connection::tcp(redis.address()).unwrap();
    assert_eq!(ana.ask(&["AUTH", "ana", "pass"]).unwrap(), Reply::Status("OK".into()));
    assert_eq!(ana.ask(&["SET", "lh:a", "1"]).unwrap(), Reply::Status("OK".into()));
    for refused in [vec!["SET", "other", "1"], vec!["FLUSHALL"]] {
        let Reply::Error(what) = ana.ask(&refused).unwrap() else { panic!("{refused:?} is allowed") };
        assert!(what.starts_with("NOPERM"), "{what}");
    }
}

#[test]
fn a_unix_socket_answers_too() {
    let redis = Redis::start(RedisOptions::new().unix_socket());
    let mut local = Connection::unix(&redis.socket_path()).unwrap();
    assert_eq!(local.ask(&["SET", "a", "1"]).unwrap(), Reply::Status("OK".into()));
    assert_eq!(redis.cli(&["GET", "a"]), "1");
}

#[test]
fn data_is_gone_after_a_kill_unless_it_is_appended_to_a_file() {
    let plain = Redis::start(RedisOptions::new());
    let durable = Redis::start(RedisOptions::new().append_only());
    for redis in [&plain, &durable] {
        redis.cli(&["SET", "a", "1"]);
        redis.kill();
        redis.restart();
    }
    assert_eq!(plain.cli(&["GET", "a"]), "");
    assert_eq!(durable.cli(&["GET", "a"]), "1");
    durable.restart_empty();
    assert_eq!(durable.cli(&["GET", "a"]), "");
}

#[test]
fn a_full_memory_refuses_writes() {
    let redis = Redis::start(RedisOptions::new().max_memory("3mb"));
    let some = "x".repeat(100_000);
    let refusal = (0..50).find_map(|at| match redis.ask(&["SET", &at.to_string(), &some]) {
        Ok(Reply::Error(what)) => Some(what),
        _ => None,
    });
    let refusal = refusal.expect("a refusal before 5 MB");
    assert!(refusal.starts_with("OOM"), "{refusal}");
}

#[test]
#[should_panic(expected = "Bad directive")]
fn a_server_that_does_not_start_shows_its_log() {
    Redis::start(RedisOptions::new().line("no-such-setting 1"));
}

#[test]
fn independent_servers_know_nothing_of_each_other() {
    let servers = Independent::start(3);
    servers[0].cli(&["SET", "a", "1"]);
    assert_eq!(servers[1].cli(&["GET", "a"]), "");
    let ports: Vec<u16> = servers.servers().iter().map(|server| server.port()).collect();
    let [a, b, c] = ports[..] else { panic!("{ports:?}") };
    assert_eq!(servers.url(), format!("redlock://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}"));
    servers[2].kill();
    assert!(servers[2].ask(&["PING"]).is_err());
    assert_eq!(servers[1].cli(&["PING"]), "PONG");
}

static SHARED: LazyLock<Redis> = LazyLock::new(|| Redis::start(RedisOptions::new()));

/// Two tests, and one server for both.
fn leave_a_mark(mine: &str) {
    SHARED.cli(&["SET", mine, "here"]);
    assert_eq!(SHARED.cli(&["GET", mine]), "here");
    assert_eq!(SHARED.info("process_id"), SHARED.pid().to_string());
}

#[test]
fn a_server_is_shared_by_the_tests_of_a_binary() {
    leave_a_mark("first");
}

#[test]
fn a_server_is_shared_by_the_tests_of_a_binary_and_by_this_one_too() {
    leave_a_mark("second");
}
