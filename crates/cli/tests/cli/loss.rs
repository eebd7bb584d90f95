//! The lock is taken away, or its lease ends, while the command runs.

use std::time::{Duration, Instant};

use leasehold_testkit::servers::{Redis, RedisOptions};
use rustix::process::Signal;

use crate::house::{House, is_alive, until};

#[test]
fn a_lost_lock_stops_the_command_and_is_76() {
    let house = House::new();
    let script = "trap 'echo term >> log; exit 0' TERM; echo > ready; while :; do sleep 0.01; done";
    let running = house.start(["run", "x", "--label", "victim", "--", "sh", "-c", script]);
    until("it runs", || house.path("ready").exists());
    let released = house.run(["release", "x", "--force", "--yes"]).expect(0);
    assert!(released.stdout.starts_with("x: taken from victim (exclusive for "), "{released:?}");
    running.done().expect(76).says(&["lost", "\"x\"", "revoked"]);
    assert_eq!(house.read("log"), "term\n");
}

#[test]
fn a_command_that_does_not_hear_is_killed_after_the_grace_and_its_children_too() {
    let house = House::new();
    let script = "trap '' TERM; (trap '' TERM; while :; do sleep 0.01; done) & echo $! > pid; while :; do sleep 0.01; done";
    let running = house.start(["run", "x", "--grace", "300ms", "--", "sh", "-c", script]);
    until("it runs", || house.read("pid").ends_with('\n'));
    let start = Instant::now();
    house.run(["release", "x", "--force", "--yes"]).expect(0);
    running.done().expect(76);
    assert!(start.elapsed() >= Duration::from_millis(300) && start.elapsed() < Duration::from_secs(10));
    assert!(!is_alive(&house.read("pid")));
}

#[test]
fn on_lost_kill_gives_no_time() {
    let house = House::new();
    let script = "trap 'echo term >> log' TERM; echo > ready; while :; do sleep 0.01; done";
    let running = house.start(["run", "x", "--on-lost", "kill", "--", "sh", "-c", script]);
    until("it runs", || house.path("ready").exists());
    house.run(["release", "x", "--force", "--yes"]).expect(0);
    running.done().expect(76);
    assert_eq!(house.read("log"), "");
}

#[test]
fn on_lost_ignore_warns_and_keeps_the_commands_code() {
    let house = House::new();
    let running = house.start([
        "run",
        "x",
        "--on-lost",
        "ignore",
        "--",
        "sh",
        "-c",
        "echo > ready; until [ -e go ]; do sleep 0.01; done; exit 6",
    ]);
    until("it runs", || house.path("ready").exists());
    house.run(["release", "x", "--force", "--yes"]).expect(0);
    house.run(["run", "x", "--wait", "20s", "--", "touch", "go"]).expect(0);
    let done = running.done().expect(6);
    assert!(done.stderr.starts_with("leasehold: warning: lost: "), "{done:?}");
}

#[test]
fn a_loss_reaches_what_the_command_left_behind() {
    let house = House::new();
    let script = "(while :; do sleep 0.01; done) > /dev/null 2>&1 & echo $! > pid; exit 0";
    let running = house.start(["run", "x", "--", "sh", "-c", script]);
    until("it left a process behind", || house.read("pid").ends_with('\n'));
    house.run(["release", "x", "--force", "--yes"]).expect(0);
    running.done().expect(76);
    assert!(!is_alive(&house.read("pid")));
}

#[test]
fn one_of_several_locks_lost_is_lost() {
    let house = House::new();
    let running = house.start(["run", "a", "--also", "b", "--", "sh", "-c", "echo > ready; exec sleep 1000"]);
    until("it runs", || house.path("ready").exists());
    house.run(["release", "b", "--force", "--yes"]).expect(0);
    running.done().expect(76);
    assert_eq!(house.holders("a"), 0);
}

#[test]
fn a_lease_that_ends_stops_the_command_before_anyone_else_enters() {
    let house = House::new();
    // Each writes when it enters and, if it ends in an orderly way, when it leaves.
    let script = "echo in >> log; trap 'echo out >> log; exit 0' TERM; while :; do sleep 0.01; done";
    let start = Instant::now();
    let running = house.start(["run", "x", "--lease", "2s", "--grace", "1s", "--", "sh", "-c", script]);
    until("it runs", || !house.read("log").is_empty());
    let next = house.start(["run", "x", "--", "sh", "-c", "echo next >> log"]);
    running.done().expect(76).says(&["lease"]);
    next.done().expect(0);
    assert_eq!(house.read("log"), "in\nout\nnext\n");
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
}

#[test]
fn a_deaf_command_is_killed_before_its_lease_ends() {
    let house = House::new();
    let script = "trap '' TERM; echo > ready; while :; do echo first >> log; sleep 0.01; done";
    let running = house.start(["run", "x", "--lease", "1s", "--grace", "300ms", "--", "sh", "-c", script]);
    until("it runs", || house.path("ready").exists());
    let next = house.start(["run", "x", "--", "sh", "-c", "echo next >> log; sleep 0.1"]);
    running.done().expect(76);
    next.done().expect(0);
    assert!(house.read("log").ends_with("first\nnext\n"), "{}", house.read("log"));
}

#[test]
fn a_command_that_is_quicker_than_its_lease_is_not_disturbed() {
    let house = House::new();
    let done = house.run(["run", "x", "--lease", "60s", "--", "sh", "-c", "exit 2"]).expect(2);
    assert_eq!(done.stderr, "");
    assert_eq!(house.holders("x"), 0);
}

#[test]
fn a_store_that_does_not_answer_keeps_a_command_that_has_ended_for_seconds_and_says_so() {
    let (house, server) = (House::new(), Redis::start(RedisOptions::new()));
    let url = server.url();
    let script = "echo > ready; until [ -e done ]; do sleep 0.01; done; exit 7";
    let start = || {
        let _ = std::fs::remove_file(house.path("done"));
        let _ = std::fs::remove_file(house.path("ready"));
        let running = house.start(["--store", &url, "run", "x", "--", "sh", "-c", script]);
        until("it runs", || house.path("ready").exists());
        server.pause();
        house.touch("done");
        running
    };
    let (running, ended) = (start(), Instant::now());
    let done = running.done().expect(7);
    let took = ended.elapsed();
    server.resume();
    assert!(took < Duration::from_secs(8), "{took:?}");
    let said: Vec<&str> = done.stderr.lines().filter(|line| line.contains(": release: ")).collect();
    assert!(said[0].contains("the command has ended") && said[0].contains("redis://"), "{done:?}");
    assert!(said[said.len() - 1].contains("it ends by itself, after "), "{done:?}");
    // A signal ends the wait, and the code is the command's all the same.
    house.run(["--store", &url, "release", "x", "--force", "--yes"]).expect(0);
    let (running, ended) = (start(), Instant::now());
    std::thread::sleep(Duration::from_millis(1500));
    running.signal(rustix::process::Signal::TERM);
    running.done().expect(7);
    assert!(ended.elapsed() < Duration::from_secs(4), "{:?}", ended.elapsed());
    server.resume();
}

#[test]
fn a_store_that_does_not_answer_keeps_any_command_for_seconds_and_says_so() {
    let (house, server) = (House::new(), Redis::start(RedisOptions::new()));
    let url = server.url();
    let holder = house.start([
        "--store",
        &url,
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "echo > ready; until [ -e done ]; do sleep 0.01; done",
    ]);
    until("it runs", || house.path("ready").exists());
    let waiters = || {
        house.run(["--store", &url, "--format", "json", "show", "x"]).json()["waiters"]
            .as_array()
            .map(Vec::len)
    };
    // What it can't take back ends by itself.
    for (places, quiet) in [(1, &[][..]), (2, &["--quiet"])] {
        let waiter = house.start([&["--store", &url, "run"], quiet, &["x", "--", "true"]].concat());
        until("it waits", || waiters() == Some(places));
        server.pause();
        waiter.signal(Signal::TERM);
        let done = waiter.done().expect(128 + 15);
        let said = done
            .stderr
            .lines()
            .filter(|line| line.contains(": close: ") && line.contains(&server.address().to_string()));
        assert_eq!(said.count(), usize::from(quiet.is_empty()), "{done:#?}");
        server.resume();
    }
    house.touch("done");
    holder.done().expect(0);
}
