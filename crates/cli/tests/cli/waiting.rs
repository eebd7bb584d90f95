//! Busy, waiting, signals while waiting, and the order of entry.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::house::{House, Running, until};

#[test]
fn a_try_on_a_busy_lock_is_75_at_once() {
    let house = House::new();
    let _holder = house.hold(&["x", "--label", "the holder"], "done");
    house.run(["run", "--try", "x", "--", "touch", "never"]).expect(75).says(&[
        "busy",
        "\"x\"",
        "the holder",
    ]);
    let quiet = house.run(["run", "--try", "--quiet", "x", "--", "touch", "never"]).expect(75);
    assert_eq!(quiet.stderr, "");
    assert!(!house.path("never").exists());
    assert_eq!(house.waiters("x"), 0);
}

#[test]
fn a_wait_that_is_over_is_75_and_leaves_nothing_in_the_queue() {
    let house = House::new();
    let _holder = house.hold(&["x"], "done");
    for order in ["queue", "barge", "spin"] {
        let start = Instant::now();
        house
            .run(["run", "--wait", "200ms", "--order", order, "x", "--", "touch", "never"])
            .expect(75)
            .says(&["busy", "200ms"]);
        assert!(start.elapsed() >= Duration::from_millis(200));
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(house.waiters("x"), 0, "{order}");
    }
    assert!(!house.path("never").exists());
}

#[test]
fn a_waiter_enters_when_the_lock_is_free() {
    let house = House::new();
    for order in ["queue", "barge", "spin"] {
        let done = format!("done-{order}");
        let holder = house.hold(&["x"], &done);
        let waiter = house.start(["run", "--wait", "20s", "--order", order, "x", "--", "echo", "in"]);
        if order != "spin" {
            until("it waits", || house.waiters("x") == 1);
        }
        house.touch(&done);
        holder.done().expect(0);
        assert_eq!(waiter.done().expect(0).stdout, "in\n");
    }
}

#[test]
fn a_signal_while_waiting_leaves_the_queue_and_is_128_plus_n() {
    let house = House::new();
    let _holder = house.hold(&["x"], "done");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1] {
        let waiter = house.start(["run", "x", "--", "touch", "never"]);
        until("it waits", || house.waiters("x") == 1);
        waiter.signal(signal);
        let done = waiter.done().expect(128 + signal.as_raw());
        assert_eq!(done.stderr, "");
        assert_eq!(house.waiters("x"), 0, "{signal:?}");
    }
    assert!(!house.path("never").exists());
}

#[test]
fn a_waiter_that_is_killed_leaves_the_queue() {
    let house = House::new();
    let holder = house.hold(&["x"], "done");
    let dead = house.start(["run", "x", "--", "touch", "never"]);
    until("it waits", || house.waiters("x") == 1);
    let alive = house.start(["run", "x", "--", "echo", "in"]);
    until("it waits", || house.waiters("x") == 2);
    dead.signal(Signal::KILL);
    dead.done().expect(-9);
    house.touch("done");
    holder.done().expect(0);
    assert_eq!(alive.done().expect(0).stdout, "in\n");
    assert!(!house.path("never").exists());
}

#[test]
fn a_run_that_waits_for_its_own_end_is_warned() {
    let house = House::new();
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let inner = ["run", "x", "--", leasehold, "run", "x", "--wait", "1s", "--", "true"];
    let done = house.run(inner).expect(75);
    assert!(done.stderr.starts_with("leasehold: warning: deadlock: "), "{done:?}");
}

#[test]
fn fifty_enter_in_the_order_in_which_they_came() {
    let house = House::new();
    let holder = house.hold(&["x"], "done");
    let waiters: Vec<Running> = (0..50)
        .map(|n| {
            let waiter = house.start(["run", "x", "--", "sh", "-c", &format!("echo {n} >> log")]);
            until("it waits", || house.waiters("x") == n + 1);
            waiter
        })
        .collect();
    house.touch("done");
    holder.done().expect(0);
    for waiter in waiters {
        waiter.done().expect(0);
    }
    let order: Vec<usize> = house.read("log").lines().map(|n| n.parse().expect("a number")).collect();
    assert_eq!(order, (0..50).collect::<Vec<_>>());
}

#[test]
fn a_set_of_locks_is_waited_for_without_holding_any() {
    let house = House::new();
    for busy in ["a", "b"] {
        let holder = house.hold(&[busy], "done");
        let set = house.start(["run", "a", "--also", "b", "--", "sh", "-c", "echo set >> log"]);
        until("it waits", || house.waiters(busy) == 1);
        let other = if busy == "a" { "b" } else { "a" };
        until("the other one is free", || house.holders(other) == 0);
        house.run(["run", other, "--try", "--", "sh", "-c", "echo one >> log"]).expect(0);
        house.touch("done");
        holder.done().expect(0);
        set.done().expect(0);
        assert_eq!(house.read("log"), "one\nset\n");
        ["log", "done", "done.held"]
            .iter()
            .for_each(|file| std::fs::remove_file(house.path(file)).expect("a file"));
    }
}
