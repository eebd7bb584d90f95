//! Somebody asks for the lock back: `release --ask`, and what `run` makes of it.

use crate::house::{House, until};

/// A command that writes down the signal it gets, tidies up, and ends with 7.
const POLITE: &str = "trap 'echo $1 >> log; exit 7' TERM USR1; echo > ready; while :; do sleep 0.01; done";

#[test]
fn a_holder_that_is_asked_says_so_and_runs_on() {
    let house = House::new();
    let holder = house.hold(&["x", "--label", "alice"], "done");
    assert_eq!(house.show("x")["holders"][0]["release_requested"], false);
    let asked = house.run(["release", "x", "--ask"]).expect(0);
    assert!(asked.stdout.starts_with("x: asked alice (exclusive for "), "{asked:?}");
    assert_eq!(house.show("x")["holders"][0]["release_requested"], true);
    let shown = house.run(["show", "x"]).expect(0).stdout;
    assert!(shown.contains("held, asked for"), "{shown}");
    // Once more does no harm, and is said once.
    house.run(["release", "x", "--ask"]).expect(0);
    house.touch("done");
    let done = holder.done().expect(0);
    assert_eq!(
        done.stderr,
        "leasehold: warning: requested: somebody asks for the lock \"x\" back; the command runs on\n"
    );
}

#[test]
fn a_quiet_holder_says_nothing() {
    let house = House::new();
    let holder = house.hold(&["x", "--quiet"], "done");
    house.run(["release", "x", "--ask"]).expect(0);
    house.touch("done");
    assert_eq!(holder.done().expect(0).stderr, "");
}

#[test]
fn with_on_request_the_command_gets_the_signal_and_its_exit_code_counts() {
    let house = House::new();
    for (signal, option) in [("TERM", "term"), ("USR1", "usr1")] {
        let script = POLITE.replace("$1", signal);
        let _ = std::fs::remove_file(house.path("ready"));
        let running = house.start(["run", "x", "--on-request", option, "--", "sh", "-c", &script]);
        until("it runs", || house.path("ready").exists());
        house.run(["release", "x", "--ask"]).expect(0);
        let done = running.done().expect(7);
        assert!(done.stderr.contains("leasehold: warning: requested: "), "{done:?}");
        assert_eq!(house.holders("x"), 0);
    }
    assert_eq!(house.read("log"), "TERM\nUSR1\n");
}

#[test]
fn a_command_that_is_asked_is_never_killed_for_it() {
    let house = House::new();
    let script = "trap 'echo heard >> log' TERM; echo > ready; until [ -e done ]; do sleep 0.01; done";
    let options = ["run", "x", "--on-request", "term", "--grace", "10ms", "--", "sh", "-c", script];
    let mut running = house.start(options);
    until("it runs", || house.path("ready").exists());
    house.run(["release", "x", "--ask"]).expect(0);
    until("it hears", || house.read("log") == "heard\n");
    // It works on under the lock, far beyond the grace.
    house.run(["run", "x", "--wait", "200ms", "--", "true"]).expect(75);
    assert!(running.is_running());
    house.touch("done");
    running.done().expect(0);
}

#[test]
fn the_next_holder_is_not_asked() {
    let house = House::new();
    let first = house.hold(&["x", "--label", "alice"], "done");
    house.run(["release", "x", "--ask"]).expect(0);
    house.touch("done");
    first.done().expect(0);
    let second = house.hold(&["x", "--label", "bob"], "done2");
    assert_eq!(house.show("x")["holders"][0]["release_requested"], false);
    house.touch("done2");
    assert_eq!(second.done().expect(0).stderr, "");
}

#[test]
fn every_holder_is_asked_or_the_one_with_the_token() {
    let house = House::new();
    let holders = [
        house.hold(&["x", "--shared", "--label", "alice"], "a"),
        house.hold(&["x", "--shared", "--label", "bob"], "b"),
    ];
    let seen = house.show("x");
    let bob = seen["holders"].as_array().and_then(|all| all.iter().find(|h| h["label"] == "bob"));
    let token = bob.and_then(|bob| bob["token"].as_str()).expect("a token").to_owned();
    let asked = house.run(["--format", "json", "release", "x", "--ask", "--token", &token]).expect(0).json();
    let labels = |asked: &serde_json::Value| -> Vec<String> {
        let all = asked["asked"].as_array().expect("an array");
        all.iter().map(|entry| entry["label"].as_str().expect("a label").to_owned()).collect()
    };
    assert_eq!((asked["name"].as_str(), labels(&asked)), (Some("x"), vec!["bob".to_owned()]));
    let asked = house.run(["--format", "json", "release", "x", "--ask"]).expect(0).json();
    assert_eq!(labels(&asked), ["alice", "bob"]);
    house.run(["release", "x", "--ask", "--token", "1"]).expect(64).says(&["mismatch"]);
    ["a", "b"].iter().for_each(|done| house.touch(done));
    holders.into_iter().for_each(|holder| drop(holder.done().expect(0)));
    assert_eq!(house.run(["release", "x", "--ask"]).expect(0).stdout, "x: nobody held it\n");
    house.run(["release", "x", "--ask", "--force"]).expect(64);
}

#[test]
fn a_request_can_be_waited_for() {
    let house = House::new();
    let script = POLITE.replace("$1", "TERM");
    let running = house.start(["run", "x", "--on-request", "term", "--", "sh", "-c", &script]);
    until("it runs", || house.path("ready").exists());
    house.run(["release", "x", "--ask", "--wait", "20s"]).expect(0);
    assert_eq!(house.holders("x"), 0);
    running.done().expect(7);
    // One that does not make room.
    let holder = house.hold(&["x", "--label", "alice"], "done");
    house.run(["release", "x", "--ask", "--wait", "100ms"]).expect(75).says(&["busy", "--force"]);
    assert_eq!(house.holders("x"), 1);
    let taken = house.run(["release", "x", "--force", "--yes", "--wait", "100ms"]).expect(0);
    assert!(taken.stdout.starts_with("x: taken from alice"), "{taken:?}");
    holder.done().expect(76);
}

#[test]
fn a_lock_that_is_asked_for_first_is_taken_only_if_it_has_to_be() {
    let house = House::new();
    let script = POLITE.replace("$1", "TERM");
    let running = house.start(["run", "x", "--on-request", "term", "--", "sh", "-c", &script]);
    until("it runs", || house.path("ready").exists());
    let done = house.run(["release", "x", "--force", "--yes", "--wait", "20s"]).expect(0);
    assert!(done.stdout.starts_with("x: asked "), "{done:?}");
    assert_eq!(done.stderr, "");
    running.done().expect(7);
}

#[test]
fn a_lock_that_is_taken_away_comes_with_a_warning_on_both_sides() {
    let house = House::new();
    let script = "trap '' TERM; echo > ready; while :; do sleep 0.01; done";
    let running = house.start(["run", "x", "--grace", "300ms", "--", "sh", "-c", script]);
    until("it runs", || house.path("ready").exists());
    let taken = house.run(["release", "x", "--force", "--yes"]).expect(0);
    assert!(taken.stderr.starts_with("leasehold: warning: overlap: "), "{taken:?}");
    running.done().expect(76).says(&["others can have it", "300ms"]);
    // Nothing was taken, nothing to warn of.
    assert_eq!(house.run(["release", "x", "--force", "--yes"]).expect(0).stderr, "");
}
