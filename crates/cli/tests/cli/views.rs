//! `ls`, `show`, `watch`, `release`, `stores`, `completions`, `man`; closed pipes and colours.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::house::{House, Running, until};

/// Ages and tokens differ from run to run.
fn without_numbers(text: &str) -> String {
    let mut clean = String::new();
    for c in text.chars() {
        if !(c.is_ascii_digit() && clean.ends_with('#')) {
            clean.push(if c.is_ascii_digit() { '#' } else { c });
        }
    }
    clean
}

#[test]
fn ls_is_an_aligned_table() {
    let house = House::new();
    assert_eq!(house.run(["ls"]).expect(0).stdout, "");
    let _a = house.hold(&["a/long name 🌙", "--label", "alice"], "one");
    let _b = house.hold(&["b", "--permits", "2", "--of", "5", "--label", "bob"], "two");
    let _c = house.hold(&["c", "--shared", "--label", "carol"], "three");
    let _d = house.hold(&["c", "--shared", "--label", "dave"], "four");
    let _e = house.start(["run", "b", "--permits", "4", "--of", "5", "--", "true"]);
    until("it waits", || house.waiters("b") == 1);

    let table = house.run(["ls"]).expect(0).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(lines[0].starts_with("NAME            WANT            HELD BY           FOR"), "{table}");
    assert!(lines[1].starts_with("a/long name 🌙  exclusive       alice             "), "{table}");
    assert!(lines[2].starts_with("b               2 of 5 permits  bob               "), "{table}");
    assert!(lines[3].starts_with("c               shared          carol and 1 more  "), "{table}");
    assert!(lines[1].ends_with("  -") && lines[2].ends_with("  1"), "{table}");

    let some = house.run(["ls", "a/"]).expect(0).stdout;
    assert_eq!(some.lines().count(), 2, "{some}");
    let json = house.run(["--format", "json", "ls"]).expect(0).stdout;
    let names: Vec<Value> =
        json.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["name"].clone()).collect();
    assert_eq!(names, ["a/long name 🌙", "b", "c"]);
}

#[test]
fn show_tells_holders_and_waiters() {
    let house = House::new();
    assert_eq!(house.run(["show", "x"]).expect(0).stdout, "x: free, and nobody waits for it\n");
    let _holder = house.hold(&["x", "--label", "alice", "--lease", "1h"], "done");
    let _first = house.start(["run", "x", "--label", "bob", "--", "true"]);
    until("bob waits", || house.waiters("x") == 1);
    let _second = house.start(["run", "x", "--label", "carol", "--order", "barge", "--shared", "--", "true"]);
    until("carol waits", || house.waiters("x") == 2);
    let text = without_numbers(&house.run(["show", "x"]).expect(0).stdout);
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0].join(" "), "x: held by #, # waiting");
    assert_eq!(words[1].join(" "), "PLACE WHO WANT FOR TOKEN LEASE LEFT");
    assert_eq!(&words[2][..3], ["held", "alice", "exclusive"], "{text}");
    assert_eq!(&words[3][..3], ["#st", "bob", "exclusive"], "{text}");
    assert_eq!(&words[4][..3], ["barging", "carol", "shared"], "{text}");

    let json = house.show("x");
    let holder = &json["holders"][0];
    assert_eq!((&json["name"], &json["limit"]), (&"x".into(), &Value::Null));
    assert_eq!(
        (&holder["label"], &holder["want"], &holder["permits"]),
        (&"alice".into(), &"exclusive".into(), &Value::Null)
    );
    assert!(holder["token"].as_str().is_some_and(|t| t.parse::<u64>().is_ok()), "{json}");
    assert!(holder["held_since_unix_ms"].as_u64() >= holder["since_unix_ms"].as_u64(), "{json}");
    assert!(holder["lease_left_ms"].as_u64().is_some_and(|ms| ms <= 3_600_000), "{json}");
    let waiter = &json["waiters"][0];
    assert_eq!(
        (&waiter["label"], &waiter["place"], &waiter["token"]),
        (&"bob".into(), &0.into(), &Value::Null)
    );
    assert_eq!((&json["waiters"][1]["order"], &json["waiters"][1]["place"]), (&"barge".into(), &Value::Null));
}

#[test]
fn a_name_can_not_change_the_terminal_of_who_looks() {
    let house = House::new();
    let _holder = house.hold(&["x\x1b[2J\n", "--label", "\x1b]0;me\x07"], "done");
    for args in [&["ls"][..], &["show", "x\x1b[2J\n"], &["run", "--try", "x\x1b[2J\n", "--", "true"]] {
        let done = house.run(args);
        assert!(!format!("{}{}", done.stdout, done.stderr).contains(['\x1b', '\x07']), "{done:?}");
    }
    let json = house.run(["--format", "json", "ls"]).expect(0);
    assert_eq!(json.json()["name"], "x\x1b[2J\n");
}

#[test]
fn watch_tells_what_happens() {
    let house = House::new();
    let mut watch = house.start(["--format", "json", "watch", "w/"]);
    let mut lines = BufReader::new(watch.child().stdout.take().expect("a pipe")).lines();
    // It says nothing until something happens: make things happen until it speaks.
    let (tell, heard) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut events: Vec<Value> = Vec::new();
        for line in lines.by_ref() {
            let event: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
            let _ = tell.send(format!("{} {}", event["name"], event["event"]));
            events.push(event);
        }
        events
    });
    until("the watch has begun", || {
        house.run(["run", "w/first", "--", "true"]).expect(0);
        heard.try_recv().is_ok()
    });
    let holder = house.hold(&["w/x", "--label", "alice"], "done");
    let waiter = house.start(["run", "w/x", "--label", "bob", "--", "true"]);
    until("bob waits", || house.waiters("w/x") == 1);
    house.run(["run", "other", "--", "true"]).expect(0);
    house.run(["release", "w/x", "--force", "--yes"]).expect(0);
    holder.done().expect(76);
    waiter.done().expect(0);
    // One more, whose end is the end of what we wait for.
    house.run(["run", "w/last", "--", "true"]).expect(0);
    until("the last event is heard", || heard.try_iter().any(|event| event == r#""w/last" "released""#));
    watch.signal(Signal::INT);
    watch.done().expect(130);
    let events = reader.join().expect("read");
    let of_x: Vec<(&str, &str)> = events
        .iter()
        .filter(|e| e["name"] == "w/x")
        .map(|e| (e["event"].as_str().expect("text"), e["label"].as_str().expect("text")))
        .collect();
    assert_eq!(
        of_x,
        [
            ("acquired", "alice"),
            ("queued", "bob"),
            ("lost", "alice"),
            ("acquired", "bob"),
            ("released", "bob")
        ],
        "{events:#?}"
    );
    assert!(events.iter().any(|e| e["event"] == "lost" && e["reason"] == "revoked"));
    assert!(events.iter().all(|e| e["name"].as_str().is_some_and(|n| n.starts_with("w/"))), "{events:#?}");
}

#[test]
fn release_needs_force_and_a_yes() {
    let house = House::new();
    let mut holder = house.hold(&["x", "--label", "alice"], "done");
    house.run(["release", "x"]).expect(64).says(&["--force"]);
    house.run(["release", "x", "--force"]).expect(64).says(&["--yes"]);
    assert!(holder.is_running());
    assert_eq!(house.holders("x"), 1);
}

#[test]
fn release_with_a_token_takes_only_that_grant() {
    let house = House::new();
    let holder = house.hold(&["x", "--label", "alice"], "done");
    let token: u64 =
        house.show("x")["holders"][0]["token"].as_str().and_then(|t| t.parse().ok()).expect("a token");
    let wrong = (token - 1).to_string();
    house.run(["release", "x", "--force", "--yes", "--token", &wrong]).expect(64).says(&["mismatch"]);
    assert_eq!(house.holders("x"), 1);
    let done = house
        .run(["--format", "json", "release", "x", "--force", "--yes", "--token", &token.to_string()])
        .expect(0);
    let json = done.json();
    assert_eq!((&json["name"], &json["released"][0]["label"]), (&"x".into(), &"alice".into()));
    holder.done().expect(76);
    let nobody = house.run(["release", "x", "--force", "--yes"]).expect(0);
    assert_eq!(nobody.stdout, "x: nobody held it\n");
}

#[test]
fn stores_print_their_promises() {
    let house = House::new();
    let text = house.run(["stores"]).expect(0).stdout;
    for word in ["file", "memory", "fencing tokens", "what can break it", "one of 12s costs no lock"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let json = house.run(["--format", "json", "stores"]).expect(0).stdout;
    let file = json
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .find(|s| s["store"] == "file");
    assert_eq!(file.expect("the file store")["death"], "at once");
}

#[test]
fn completions_and_man_pages_are_printed() {
    let house = House::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(house.run(["completions", shell]).expect(0).stdout.contains("max-hold"), "{shell}");
    }
    house.run(["completions", "tcsh"]).expect(64);
    assert!(house.run(["man"]).expect(0).stdout.contains(".TH leasehold 1"));
    assert!(house.run(["man", "run"]).expect(0).stdout.contains("leasehold\\-run"));
    house.run(["man", "lock"]).expect(64).says(&["lock", "run, ls"]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let house = House::new();
    for args in [&["completions", "bash"][..], &["man"], &["stores"], &["--help"]] {
        // The reader is gone before the first word.
        let mut child = house.leasehold(args).stdout(Stdio::piped()).spawn().expect("it starts");
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
        let done = Running::of(child).done();
        assert_eq!((done.code(), stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn output_that_is_not_a_terminal_has_no_colours() {
    let house = House::new();
    let _holder = house.hold(&["x"], "done");
    for args in [&["ls"][..], &["show", "x"], &["stores"]] {
        assert!(!house.run(args).expect(0).stdout.contains('\x1b'));
    }
}
