//! `doctor`: what is found about a store, and what that means for the exit code.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use leasehold_testkit::servers::{Independent, Redis, RedisOptions};
use serde_json::Value;

use crate::house::{Done, House};

/// The finding of a check, as JSON.
#[track_caller]
fn finding(done: &Done, check: &str) -> Value {
    let report = done.json();
    let findings = report["findings"].as_array().expect("an array");
    let found = findings.iter().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("no {check}: {report:#}")).clone()
}

fn examine(house: &House) -> Done {
    house.run(["--format", "json", "doctor"])
}

#[test]
fn a_store_in_order_is_exit_code_0_and_a_line_a_finding() {
    let house = House::new();
    let done = house.run(["doctor"]).expect(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    for check in
        ["promises", "filesystem", "space", "permissions", "connect", "latency", "hand-over", "tokens"]
    {
        let said = lines.iter().filter(|line| line.split_whitespace().nth(1) == Some(check)).count();
        assert_eq!(said, 1, "{check}: {done:#?}");
    }
    let last = lines.last().expect("a summary");
    assert!(last.starts_with(&house.store()) && last.contains(" good)"), "{done:#?}");
    assert_eq!(done.stderr, "");
}

#[test]
fn nothing_is_left_behind() {
    let house = House::new();
    house.run(["doctor"]).expect(0);
    assert_eq!(house.run(["ls"]).expect(0).stdout, "");
}

#[test]
fn a_report_is_one_json_object() {
    let house = House::new();
    let done = examine(&house).expect(0);
    let report = done.json();
    assert_eq!((report["store"].as_str(), report["url"].as_str()), (Some("file"), Some(&*house.store())));
    assert!(report["worst"].is_string() && report["worst"] != "danger", "{report:#}");
    let tokens = finding(&done, "tokens");
    assert_eq!(
        (&tokens["grade"], &tokens["fix"], &tokens["node"]),
        (&"good".into(), &Value::Null, &Value::Null)
    );
    assert!(tokens["what"].is_string() && tokens["why"].is_string(), "{tokens}");
}

#[test]
fn a_warning_says_why_and_what_to_do_and_is_no_failure() {
    let house = House::new();
    fs::create_dir(house.path("locks")).expect("a folder");
    fs::set_permissions(house.path("locks"), PermissionsExt::from_mode(0o1777)).expect("a mode");
    house.run(["ls"]).expect(0);
    let done = house.run(["doctor"]).expect(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    // The worst comes first.
    let words: Vec<&str> = lines[0].split_whitespace().take(2).collect();
    assert_eq!(words, ["warning", "permissions"], "{done:#?}");
    assert!(
        lines[1].trim_start().starts_with("why ") && lines[2].trim_start().starts_with("fix "),
        "{done:#?}"
    );
    assert!(lines.last().expect("a summary").contains(" warning"), "{done:#?}");
}

#[test]
fn a_danger_is_exit_code_1() {
    let house = House::new();
    house.run(["run", "payments", "--", "true"]).expect(0);
    fs::write(house.path("locks/q/payments"), "x".repeat(4096)).expect("a file");
    let done = examine(&house).expect(1);
    assert_eq!(done.json()["worst"], "danger");
    let damage = finding(&done, "damage");
    assert!(
        damage["what"].as_str().expect("text").contains("payments") && damage["fix"].is_string(),
        "{damage}"
    );
    let text = house.run(["doctor"]).expect(1).stdout;
    assert!(text.lines().last().expect("a summary").contains("locks are in danger"), "{text}");
}

#[test]
fn a_store_that_can_not_be_opened_is_the_usual_error() {
    let house = House::new();
    house.touch("plain");
    let store = format!("file:{}", house.path("plain").display());
    let opened = house.run(["--store", &store, "ls"]);
    let done = house.run(["--store", &store, "doctor"]).expect(opened.code()).says(&["plain"]);
    assert_eq!(done.stdout, "");
    house.run(["--store", "carrier-pigeon:coop", "doctor"]).expect(64).says(&["no store is known"]);
    house.run(["doctor", "--lease", "0"]).expect(64).says(&["lease"]);
}

#[test]
fn the_memory_store_can_be_looked_at_too() {
    let house = House::new();
    let done = house.run(["--store", "memory:", "--format", "json", "doctor"]).expect(0);
    assert_eq!(finding(&done, "hand-over")["grade"], "good");
}

/// Looks at this store.
fn examine_at(url: &str) -> Done {
    House::new().run(["--store", url, "--format", "json", "doctor"])
}

#[test]
fn a_redis_server_is_looked_at_and_a_danger_is_exit_code_1() {
    let redis = Redis::start(RedisOptions::new().append_only().password("s3cr3t"));
    let done = examine_at(&redis.url()).expect(0);
    for check in ["eviction", "persistence", "rights", "hand-over", "tokens", "cleanup"] {
        assert_eq!(finding(&done, check)["grade"], "good", "{done:#?}");
    }
    let report = done.json();
    assert_eq!(report["store"], "redis");
    assert!(report["worst"] == "note" || report["worst"] == "warning", "{report:#}");
    assert!(!done.stdout.contains("s3cr3t") && done.stderr.is_empty(), "{done:#?}");
    redis.cli(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"]);
    let done = examine_at(&redis.url()).expect(1);
    assert_eq!(done.json()["worst"], "danger");
    let eviction = finding(&done, "eviction");
    assert!(eviction["grade"] == "danger" && eviction["fix"].is_string(), "{eviction}");
    redis.kill();
    assert_eq!(examine_at(&format!("{}?timeout=500ms", redis.url())).expect(69).stdout, "");
}

#[test]
fn the_nodes_of_redlock_are_looked_at_and_a_danger_is_exit_code_1() {
    let servers = Independent::start_with(3, RedisOptions::new().append_only());
    let url = format!("{}?timeout=2s", servers.url());
    let done = examine_at(&url).expect(0);
    for check in ["quorum", "nodes", "independence", "hand-over", "tokens", "cleanup"] {
        assert_eq!(finding(&done, check)["grade"], "good", "{check}: {done:#?}");
    }
    assert_eq!(done.json()["store"], "redlock");
    servers[2].cli(&["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()]);
    let done = examine_at(&url).expect(1);
    assert_eq!(finding(&done, "independence")["grade"], "danger", "{done:#?}");
    let text = House::new().run(["--store", &url, "doctor"]).expect(1).stdout;
    assert!(text.starts_with("danger"), "{text}");
    assert!(text.lines().last().expect("a summary").contains("locks are in danger"), "{text}");
}
