//! What the command gets, what its end means, and the times of a hold.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use crate::house::{House, Running, until};

#[test]
fn the_command_runs_and_its_exit_code_is_ours() {
    let house = House::new();
    let done = house.run(["run", "hello", "--", "echo", "hi"]).expect(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("hi\n", ""));
    for code in [0, 1, 3, 75, 255] {
        house.run(["run", "x", "--", "sh", "-c", &format!("exit {code}")]).expect(code);
    }
    assert_eq!((house.holders("x"), house.waiters("x")), (0, 0));
}

#[test]
fn the_end_of_a_quick_command_under_a_lease_is_never_missed() {
    let house = House::new();
    // It ends while its guard is told until when the lock is good.
    for round in 0..60 {
        let done = house.run(["run", "x", "--lease", "60s", "--", "sh", "-c", "exit 3"]).expect(3);
        assert_eq!(done.stderr, "", "{round}");
    }
}

#[test]
fn a_command_that_a_signal_ended_is_128_plus_n() {
    let house = House::new();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("SEGV", 139)] {
        house.run(["run", "x", "--", "sh", "-c", &format!("ulimit -c 0; kill -{signal} $$")]).expect(code);
    }
}

#[test]
fn a_command_that_is_missing_or_no_program_gives_the_lock_back() {
    let house = House::new();
    house.run(["run", "x", "--", "no-such-command-here"]).expect(127).says(&["no-such-command-here", "PATH"]);
    house.run(["run", "x", "--", "./missing"]).expect(127);
    fs::write(house.path("plain"), "text").expect("a file can be written");
    fs::set_permissions(house.path("plain"), fs::Permissions::from_mode(0o644)).expect("permissions");
    house.run(["run", "x", "--", "./plain"]).expect(126).says(&["./plain"]);
    house.run(["run", "x", "--", "."]).expect(126);
    assert_eq!(house.holders("x"), 0);
}

#[test]
fn the_command_is_told_name_token_and_store() {
    let house = House::new();
    let print = "echo \"$LEASEHOLD_NAME|$LEASEHOLD_TOKEN|$LEASEHOLD_STORE|${LEASEHOLD_DEADLINE-unset}\"";
    let mut last = 0;
    for _ in 0..3 {
        let done = house.run(["run", "the name", "--", "sh", "-c", print]).expect(0);
        let told: Vec<&str> = done.stdout.trim().split('|').collect();
        assert_eq!((told[0], told[2], told[3]), ("the name", house.store().as_str(), "unset"));
        let token: u64 = told[1].parse().expect("a number");
        assert!(token > last, "tokens rise");
        last = token;
    }
}

#[test]
fn the_store_is_the_flag_then_the_variable_then_the_users_own_folder() {
    let house = House::new();
    let told = |args: &[&str], variable: Option<&str>| {
        let mut command = house.leasehold(args);
        // A name that no program of this user has, because the default store is the user's real one.
        let name = format!("leasehold-test-{}", std::process::id());
        command.args(["run", &name, "--", "sh", "-c", "echo $LEASEHOLD_STORE"]).env_remove("LEASEHOLD_STORE");
        command.envs(variable.map(|store| ("LEASEHOLD_STORE", store)));
        Running::of(command.spawn().expect("it starts")).done().expect(0).stdout
    };
    let url = |folder: &str| format!("file:{}\n", house.path(folder).display());
    let own = told(&[], None);
    let stores = house.run(["--format", "json", "stores"]).expect(0).stdout;
    let first: serde_json::Value =
        serde_json::from_str(stores.lines().next().expect("a store")).expect("JSON");
    assert_eq!(own, format!("file:{}\n", first["default_folder"].as_str().expect("a folder")));
    assert_eq!(told(&[], Some("")), own);
    assert_eq!(told(&[], Some("file:by-variable")), url("by-variable"));
    assert_eq!(told(&["--store", "file:by-flag"], Some("file:by-variable")), url("by-flag"));
}

#[test]
fn the_token_is_the_one_that_others_see() {
    let house = House::new();
    let holder = house.start([
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_TOKEN > token; cat never 2>&1; exec sleep 1000",
    ]);
    until("the token is written", || house.read("token").ends_with('\n'));
    assert_eq!(house.show("x")["holders"][0]["token"], house.read("token").trim());
    drop(holder);
}

#[test]
fn the_deadline_is_the_end_of_the_lease_or_of_the_hold() {
    let house = House::new();
    for (options, seconds) in [
        (&["--lease", "60s"][..], 60),
        (&["--max-hold", "50s"], 50),
        (&["--lease", "40s", "--max-hold", "50s"], 40),
    ] {
        let mut args = vec!["run", "x"];
        args.extend(options);
        args.extend(["--", "sh", "-c", "echo $LEASEHOLD_DEADLINE"]);
        let before = unix_ms();
        let deadline: u64 = house.run(args).expect(0).stdout.trim().parse().expect("a number");
        let (least, most) = (before + seconds * 1_000 - 2_000, unix_ms() + seconds * 1_000);
        assert!((least..=most).contains(&deadline), "{least} <= {deadline} <= {most}");
    }
}

#[test]
fn an_inner_run_does_not_see_the_outer_lock() {
    let house = House::new();
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let outer =
        ["run", "outer", "--also", "other", "--max-hold", "60s", "--", leasehold, "run", "inner", "--"];
    let print = "echo \"$LEASEHOLD_NAME ${LEASEHOLD_NAME_1-unset} ${LEASEHOLD_TOKEN_1-unset} ${LEASEHOLD_DEADLINE-unset}\"";
    let done = house.run(outer.into_iter().chain(["sh", "-c", print])).expect(0);
    assert_eq!(done.stdout, "inner unset unset unset\n");
}

#[test]
fn stdin_is_passed() {
    let house = House::new();
    let mut child = house
        .leasehold(["run", "x", "--", "tr", "a-z", "A-Z"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(b"through\n").expect("it reads");
    assert_eq!(Running::of(child).done().expect(0).stdout, "THROUGH\n");
}

#[test]
#[cfg(target_os = "linux")]
fn the_command_inherits_no_file_of_ours() {
    let house = House::new();
    // Whoever runs the tests may have left files open for all; those are not ours.
    let list = ["-c", "ls /proc/$$/fd"];
    let plain =
        Command::new("sh").args(list).stdin(Stdio::null()).stderr(Stdio::piped()).output().expect("a shell");
    let done = house.run(["run", "x", "--", "sh"].into_iter().chain(list)).expect(0);
    assert_eq!(done.stdout, String::from_utf8_lossy(&plain.stdout));
}

#[test]
fn several_locks_are_held_at_once() {
    let house = House::new();
    let script = "echo \"$LEASEHOLD_NAME $LEASEHOLD_NAME_1 $LEASEHOLD_NAME_2\" > names; echo $LEASEHOLD_TOKEN_2 > token; exec sleep 1000";
    let holder = house.start(["run", "b", "--also", "c", "--also", "a", "--", "sh", "-c", script]);
    until("the command runs", || house.read("token").ends_with('\n'));
    assert_eq!(house.read("names"), "b c a\n");
    assert_eq!(house.show("a")["holders"][0]["token"], house.read("token").trim());
    for name in ["a", "b", "c"] {
        assert_eq!(house.holders(name), 1, "{name}");
        house.run(["run", "--try", name, "--", "true"]).expect(75).says(&["busy", name]);
    }
    // All or none: what could be had is given back when the rest can't.
    house.run(["run", "--try", "free", "--also", "a", "--", "true"]).expect(75);
    assert_eq!(house.holders("free"), 0);
    holder.signal(Signal::TERM);
    holder.done().expect(143);
    for name in ["a", "b", "c"] {
        assert_eq!(house.holders(name), 0, "{name}");
    }
}

#[test]
fn readers_share_and_a_writer_waits() {
    let house = House::new();
    let first = house.hold(&["x", "--shared"], "one");
    let second = house.hold(&["x", "--shared", "--try"], "two");
    assert_eq!(house.holders("x"), 2);
    let writer = house.start(["run", "x", "--", "sh", "-c", "echo w >> log"]);
    until("the writer waits", || house.waiters("x") == 1);
    house.run(["run", "x", "--shared", "--try", "--", "true"]).expect(75);
    house.touch("one");
    first.done().expect(0);
    assert_eq!(house.read("log"), "");
    house.touch("two");
    second.done().expect(0);
    writer.done().expect(0);
    assert_eq!(house.read("log"), "w\n");
}

#[test]
fn permits_are_counted() {
    let house = House::new();
    let first = house.hold(&["x", "--permits", "2", "--of", "3"], "one");
    let second = house.hold(&["x", "--permits", "1", "--of", "3", "--try"], "two");
    house.run(["run", "x", "--permits", "1", "--of", "3", "--try", "--", "true"]).expect(75);
    house.touch("one");
    first.done().expect(0);
    house.run(["run", "x", "--permits", "2", "--of", "3", "--try", "--", "true"]).expect(0);
    house.touch("two");
    second.done().expect(0);
}

#[test]
fn min_hold_keeps_the_lock_after_a_quick_command() {
    let house = House::new();
    let start = Instant::now();
    let holder =
        house.start(["run", "x", "--min-hold", "2500ms", "--", "sh", "-c", "echo done > log; exit 3"]);
    until("the command is done", || !house.read("log").is_empty());
    house.run(["run", "--try", "x", "--", "true"]).expect(75);
    holder.done().expect(3);
    assert!(start.elapsed() >= Duration::from_millis(2500), "{:?}", start.elapsed());
    house.run(["run", "--try", "x", "--", "true"]).expect(0);
}

#[test]
fn a_signal_ends_the_rest_of_min_hold() {
    let house = House::new();
    let start = Instant::now();
    let mut holder = house.start(["run", "x", "--min-hold", "1h", "--", "sh", "-c", "echo $$ > pid; exit 3"]);
    until("the command is gone", || {
        house.read("pid").ends_with('\n') && !crate::house::is_alive(&house.read("pid"))
    });
    assert!(holder.is_running());
    holder.signal(Signal::TERM);
    // Passed on to the command if that was not collected yet, so the code is the command's in any case.
    holder.done().expect(3);
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(house.holders("x"), 0);
}

#[test]
fn max_hold_stops_the_command() {
    let house = House::new();
    let script = "trap 'echo term >> log; exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let done = house
        .run(["run", "x", "--max-hold", "1s", "--", "sh", "-c", script])
        .expect(124)
        .says(&["--max-hold"]);
    assert_eq!(house.read("log"), "term\n", "{done:?}");
    let deaf = "trap '' TERM; while :; do sleep 0.01; done";
    house.run(["run", "x", "--max-hold", "100ms", "--grace", "100ms", "--", "sh", "-c", deaf]).expect(124);
    assert_eq!(house.holders("x"), 0);
    house.run(["run", "x", "--max-hold", "1h", "--", "sh", "-c", "exit 5"]).expect(5);
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}
