//! The life of a server process: paused, stopped, killed, and never outliving the test.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use leasehold_testkit::servers::process::{Process, Program};
use leasehold_testkit::servers::resp::Connection;
use leasehold_testkit::servers::{Redis, RedisOptions, home, until};
use leasehold_testkit::wait::A_WHILE;

fn is_alive(pid: u32) -> bool {
    // The state stands behind the name, which is in parentheses. A zombie is dead.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}

fn wait_until_dead(pid: u32) {
    until("the server is dead", || if is_alive(pid) { Err("alive") } else { Ok(()) });
}

fn wait_until_gone(path: &Path) {
    until("the folder is gone", || if path.exists() { Err(path.display()) } else { Ok(()) });
}

#[test]
#[should_panic(expected = "`no-such-server` is not installed. Please run: apt-get install some-package")]
fn a_missing_server_is_a_failure_that_says_what_to_install() {
    Process::start(Program {
        name: "no-such-server",
        package: "some-package",
        args: vec![],
        files: vec![],
        ready: Box::new(|_| Ok(())),
    });
}

#[test]
fn a_paused_server_answers_again_after_it_is_resumed() {
    let redis = Redis::start(RedisOptions::new());
    let mut connection = redis.connect().unwrap();
    redis.pause();
    connection.send(&["PING"]).unwrap();
    thread::scope(|scope| {
        let answer = scope.spawn(|| connection.read().unwrap().to_string());
        thread::sleep(A_WHILE);
        assert!(!answer.is_finished(), "a paused server answers");
        redis.resume();
        assert_eq!(answer.join().unwrap(), "PONG");
    });
}

#[test]
fn a_paused_server_can_be_stopped_and_killed() {
    let redis = Redis::start(RedisOptions::new());
    let ends: [fn(&Redis); 2] = [|redis| redis.stop(), |redis| redis.kill()];
    for end in ends {
        let pid = redis.pid();
        redis.pause();
        assert!(redis.is_running() && !redis.is_up());
        end(&redis);
        assert!(!is_alive(pid) && !redis.is_running());
        redis.restart();
        assert!(redis.is_up());
        assert_eq!(redis.cli(&["PING"]), "PONG");
    }
}

#[test]
fn a_killed_server_refuses_connections_and_comes_back_on_its_port() {
    let redis = Redis::start(RedisOptions::new());
    let port = redis.port();
    redis.kill();
    let refused = Connection::tcp(redis.address()).err().expect("a refusal");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    redis.restart();
    assert_eq!(redis.port(), port);
    assert_eq!(redis.cli(&["PING"]), "PONG");
}

#[test]
fn the_port_of_a_dead_server_is_given_to_nobody_else() {
    let redis = Redis::start(RedisOptions::new());
    redis.kill();
    // More sockets than there are free ports would be a surer test, and a rude one.
    let others: Vec<TcpListener> = (0..500).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    assert!(others.iter().all(|other| other.local_addr().unwrap().port() != redis.port()));
    redis.restart();
}

#[test]
fn a_dropped_server_leaves_nothing_behind() {
    let redis = Redis::start(RedisOptions::new().append_only().unix_socket().tls());
    let (pid, folder) = (redis.pid(), redis.folder().to_owned());
    let certificates = redis.certificates().ca();
    assert!(folder.starts_with(home()) && folder.join("log").exists() && certificates.exists());
    drop(redis);
    assert!(!is_alive(pid) && !folder.exists() && !certificates.exists());
}

const PART: &str = "LEASEHOLD_TESTKIT_SERVER_PART";

/// Not a test, but what the tests below start in a process of its own: a shared server, and how the process goes on.
#[test]
#[allow(clippy::print_stdout)]
fn part_of_another_process() {
    let Ok(part) = std::env::var(PART) else { return };
    // The thread that starts the server ends long before the process does.
    let start = || Box::leak(Box::new(Redis::start(RedisOptions::new().append_only())));
    let redis: &Redis = thread::spawn(start).join().unwrap();
    redis.cli(&["SET", "a", "1"]);
    if part == "paused" {
        redis.pause();
    }
    println!("\n@@ {} {}", redis.pid(), home().display());
    match part.as_str() {
        "ends" => {}
        "panics" => panic!("as it should"),
        "exits" => std::process::exit(3),
        _ => thread::sleep(Duration::from_secs(60)),
    }
}

/// Another test process with a server that is never dropped.
struct Other {
    process: Child,
    server: u32,
    home: PathBuf,
}

impl Other {
    fn start(part: &str) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lives::part_of_another_process", "--nocapture"])
            .env(PART, part)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let told = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("@@ ").map(str::to_owned));
        let told = told.expect("the other process says which server it has");
        let (server, home) = told.split_once(' ').unwrap();
        Other { process, server: server.parse().unwrap(), home: home.into() }
    }

    /// Everything is gone soon after the process is.
    fn leaves_nothing(mut self) {
        self.process.wait().unwrap();
        wait_until_dead(self.server);
        wait_until_gone(&self.home);
    }
}

#[test]
fn a_server_that_is_never_dropped_goes_with_its_process() {
    for part in ["ends", "panics", "exits"] {
        Other::start(part).leaves_nothing();
    }
}

#[test]
fn a_server_dies_when_the_test_process_is_killed() {
    for part in ["runs", "paused"] {
        let mut other = Other::start(part);
        thread::sleep(A_WHILE);
        assert!(is_alive(other.server), "the server outlives the thread that asked for it");
        other.process.kill().unwrap();
        other.leaves_nothing();
    }
}
