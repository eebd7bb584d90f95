//! The command does not outlive its lock: the runner is stopped or killed, alone or with all that has its name.
#![cfg(target_os = "linux")]

use std::io::{PipeReader, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};
use rustix::process::{Pid, Resource, Rlimit, Signal, getsid, kill_process, prlimit};

use crate::house::{House, Running, is_alive, until};
use crate::processes;

/// A command with a child in its own group and one in a group of its own, as `timeout` and job-control shells make them. All
/// three write their ids.
const FAMILY: &str = "set -m; sh -c 'echo $$ > other; exec sleep 1000' > /dev/null 2>&1 & set +m;
     sh -c 'echo $$ > same; exec sleep 1000' > /dev/null 2>&1 & echo $$ > first; wait";
const MEMBERS: [&str; 3] = ["first", "same", "other"];

fn family(house: &House, options: &[&str]) -> Running {
    family_with(house, options, Stdio::piped())
}

fn family_with(house: &House, options: &[&str], stderr: impl Into<Stdio>) -> Running {
    let args = [&["run", "x"], options, &["--", "bash", "-c", FAMILY]].concat();
    let mut command = house.leasehold(args);
    command.stdout(Stdio::null()).stderr(stderr);
    let running = Running::of(command.spawn().expect("the program starts"));
    await_family(house);
    running
}

/// A pipe that is full. What writes to it waits for as long as the reading end is there and not read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe does not block");
    for piece in [&[b'x'; 4096][..], b"x"] {
        while writer.write(piece).is_ok() {}
    }
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe blocks");
    (reader, writer)
}

fn await_family(house: &House) {
    until("the command and its children run", || MEMBERS.iter().all(|file| house.read(file).ends_with('\n')));
}

#[track_caller]
fn until_all_are_dead(house: &House) {
    for file in MEMBERS {
        until(&format!("{file} is dead"), || !is_alive(&house.read(file)));
    }
}

#[test]
fn a_runner_that_is_stopped_does_not_let_its_command_outlive_a_lease() {
    let house = House::new();
    let running = family(&house, &["--lease", "3s", "--grace", "500ms"]);
    let next = house.start(["run", "x", "--", "sh", "-c", "cat first same other | xargs kill -0 2>&1; date"]);
    until("the next one waits", || house.waiters("x") == 1);
    running.signal(Signal::STOP);
    let next = next.done();
    assert_eq!(next.stdout.matches("No such process").count(), 3, "{next:?}");
    running.signal(Signal::CONT);
    running.done().expect(76).says(&["lost"]);
}

#[test]
fn a_runner_that_is_stopped_does_not_let_its_command_outlive_a_kept_lease() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().tick(Duration::from_millis(500)));
    let (house, url) = (House::new(), format!("zookeeper://{}?session=4s", server.address()));
    let log = "trap 'echo term >> log' TERM; while :; do date +%s%N > new; mv new beat; sleep 0.02; done";
    let start = |script| house.start(["--store", &url, "run", "x", "--", "sh", "-c", script]);
    let running = start(log);
    until("it runs", || !house.read("beat").is_empty());
    // Longer than a session: it lives by its renewals.
    let first = house.read("beat");
    let age = |since: &str, now: &str| -> Option<u64> {
        Some(now.trim().parse::<u64>().ok()?.saturating_sub(since.trim().parse().ok()?) / 1_000_000)
    };
    until("it has run for more than a session", || age(&first, &house.read("beat")) > Some(6_000));
    assert_eq!(house.read("log"), "");
    running.signal(Signal::STOP);
    // It hears that it should end, and does not; the next one comes after its last sign of life.
    start("date +%s%N > next").done().expect(0);
    let (last, next) = (house.read("beat"), house.read("next"));
    assert!(age(&last, &next) > Some(0), "{last} {next}");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(house.read("beat"), last, "the command works beside the next holder");
    assert_eq!(house.read("log"), "term\n");
    running.signal(Signal::CONT);
    running.done().expect(76);
}

#[test]
fn a_stopped_runner_of_a_lock_that_can_not_be_lost_leaves_its_command_alone() {
    let house = House::new();
    let script = "echo > ready; until [ -e go ]; do sleep 0.01; done; echo done > got";
    let running =
        house.start(["run", "x", "--on-lost", "ignore", "--lease", "300ms", "--", "sh", "-c", script]);
    until("it runs", || house.path("ready").exists());
    running.signal(Signal::STOP);
    house.run(["run", "x", "--", "true"]).expect(0);
    house.touch("go");
    until("the command runs to its end", || house.read("got") == "done\n");
    running.signal(Signal::CONT);
    running.done().expect(0);
}

#[test]
fn a_killed_runner_takes_all_that_its_command_started_with_it() {
    let house = House::new();
    let running = family(&house, &[]);
    running.signal(Signal::KILL);
    running.done().expect(-9);
    until_all_are_dead(&house);
}

#[test]
fn a_killed_runner_leaves_nothing_in_the_job_of_a_terminal_either() {
    let house = House::new();
    let line =
        format!("{} run x -- bash -c '{}'", env!("CARGO_BIN_EXE_leasehold"), FAMILY.replace('\'', "'\\''"));
    let mut terminal = Command::new("script");
    terminal
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("LEASEHOLD_STORE", house.store());
    terminal.current_dir(house.path("")).stdin(Stdio::piped()).stdout(Stdio::null());
    let running = Running::of(terminal.spawn().expect("script starts"));
    await_family(&house);
    kill_process(processes::runner_above(&house.read("first")), Signal::KILL).expect("a signal can be sent");
    until_all_are_dead(&house);
    drop(running);
}

#[test]
fn the_guard_is_not_taken_for_the_command() {
    let house = House::new();
    // As killall and pkill look for a name, and as they look for all that stands on the command line.
    for find in [
        &["pgrep", "leasehold"][..],
        &["pgrep", "-f", "leasehold"],
        &["pgrep", "-f", "run x"],
        &["pidof", "leasehold"],
    ] {
        let running = family(&house, &[]);
        let guard = processes::guard_of(&running).expect("a guard").as_raw_nonzero().to_string();
        let runner = running.pid().as_raw_nonzero().to_string();
        let found = Command::new(find[0]).args(&find[1..]).output().expect(find[0]);
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let found: Vec<&str> = found.split_whitespace().collect();
        assert!(
            found.contains(&&*runner) && !found.contains(&&*guard),
            "{find:?} {found:?} {runner} {guard}"
        );
        running.signal(Signal::KILL);
        running.done().expect(-9);
        until_all_are_dead(&house);
        // On files the lock is free when the last of them is gone.
        house.run(["run", "x", "--wait", "10s", "--", "rm", "first", "same", "other"]).expect(0);
    }
}

#[test]
fn a_signal_to_a_whole_session_leaves_nothing_of_the_command() {
    let house = House::new();
    for signal in ["-KILL", "-TERM"] {
        let mut runner = Command::new("setsid");
        runner.args(["--wait", env!("CARGO_BIN_EXE_leasehold"), "run", "x", "--", "bash", "-c", FAMILY]);
        runner.env("LEASEHOLD_STORE", house.store()).current_dir(house.path("")).process_group(0);
        let running = Running::of(runner.stderr(Stdio::null()).spawn().expect("setsid starts"));
        await_family(&house);
        let pid = house.read("first").trim().parse().ok().and_then(Pid::from_raw);
        let session = getsid(pid).expect("a session").as_raw_nonzero().to_string();
        let sent = Command::new("pkill").args([signal, "--session", &session, "."]).status().expect("pkill");
        assert!(sent.success());
        until_all_are_dead(&house);
        house.run(["run", "x", "--wait", "10s", "--", "rm", "first", "same", "other"]).expect(0);
        drop(running);
    }
}

#[test]
fn a_sigterm_to_everything_does_not_end_the_guard() {
    let house = House::new();
    // It hears that it should end, and takes its time.
    let script = "trap 'echo >> log' TERM; echo $$ > first; while :; do sleep 0.01; done";
    let running = house.start(["run", "x", "--", "sh", "-c", script]);
    until("it runs", || house.read("first").ends_with('\n'));
    let guard = processes::guard_of(&running).expect("a guard");
    // A stop of a service tells every process of it.
    for signal in
        [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::ALARM, Signal::PIPE]
    {
        kill_process(guard, signal).expect("a signal can be sent");
    }
    running.signal(Signal::TERM);
    until("it heard", || !house.read("log").is_empty());
    running.signal(Signal::KILL);
    running.done().expect(-9);
    until("the command is dead", || !is_alive(&house.read("first")));
}

#[test]
fn a_killed_guard_ends_the_command_too() {
    let house = House::new();
    let running = family(&house, &[]);
    kill_process(processes::guard_of(&running).expect("a guard"), Signal::KILL)
        .expect("a signal can be sent");
    running.done().expect(137);
    until_all_are_dead(&house);
    assert_eq!(house.holders("x"), 0);
}

#[test]
fn a_guard_that_is_stopped_keeps_no_command_alive() {
    let house = House::new();
    let mut running = family(&house, &["--max-hold", "1s", "--grace", "100ms"]);
    let guard = processes::guard_of(&running).expect("a guard");
    kill_process(guard, Signal::STOP).expect("a signal can be sent");
    until("the runner has ended", || !running.is_running());
    for file in MEMBERS {
        assert!(!is_alive(&house.read(file)), "{file}");
    }
    assert_eq!(house.holders("x"), 0);
    // It has our stderr open.
    kill_process(guard, Signal::CONT).expect("a signal can be sent");
    running.done().expect(124);
}

#[test]
fn the_command_itself_dies_with_both_of_its_keepers() {
    let house = House::new();
    let running = family(&house, &[]);
    // What the command started is not covered then: nobody is left to end it.
    for keeper in [processes::guard_of(&running).expect("a guard"), running.pid()] {
        kill_process(keeper, Signal::KILL).expect("a signal can be sent");
    }
    until("the command is dead", || !is_alive(&house.read("first")));
    for file in ["same", "other"] {
        if let Some(pid) = house.read(file).trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn the_lock_is_given_back_when_the_last_one_is_gone_whatever_its_group() {
    let house = House::new();
    let script = "set -m; sh -c 'echo > ready; until [ -e go ]; do sleep 0.01; done; echo late >> log' > /dev/null 2>&1 &
         until [ -e ready ]; do sleep 0.01; done; exit 4";
    let mut running = house.start(["run", "x", "--", "bash", "-c", script]);
    until("the command left a process behind", || house.path("ready").exists());
    let next = house.start(["run", "x", "--", "sh", "-c", "echo next >> log"]);
    until("the next one waits", || house.waiters("x") == 1);
    assert!(running.is_running());
    house.touch("go");
    running.done().expect(4);
    next.done().expect(0);
    assert_eq!(house.read("log"), "late\nnext\n");
}

#[test]
fn a_stop_reaches_every_group_of_the_command() {
    let house = House::new();
    let running = family(&house, &["--max-hold", "1s", "--grace", "200ms"]);
    running.done().expect(124);
    for file in MEMBERS {
        assert!(!is_alive(&house.read(file)), "{file}");
    }
}

#[test]
fn a_guard_that_has_to_act_says_so() {
    let house = House::new();
    let running = family(&house, &[]);
    running.signal(Signal::KILL);
    let done = running.done().expect(-9);
    let said: Vec<&str> = done.stderr.lines().collect();
    assert_eq!(said.len(), 2, "{done:?}");
    assert!(said[0].starts_with("leasehold: warning: guard: ") && said[0].contains("killed"), "{done:?}");
    assert!(said[1].contains("gone"), "{done:?}");
}

/// What docs/cli.md says is not covered.
#[test]
fn a_command_whose_keepers_are_both_stopped_runs_on_until_one_of_them_goes_on() {
    let house = House::new();
    for goes_on in ["guard", "runner"] {
        let running = family(&house, &["--lease", "2s", "--grace", "500ms"]);
        let guard = processes::guard_of(&running).expect("a guard");
        kill_process(guard, Signal::STOP).expect("a signal can be sent");
        running.signal(Signal::STOP);
        house.run(["run", "x", "--", "true"]).expect(0);
        assert!(is_alive(&house.read("first")), "nothing could end it");
        let one = if goes_on == "guard" { guard } else { running.pid() };
        kill_process(one, Signal::CONT).expect("a signal can be sent");
        until_all_are_dead(&house);
        running.signal(Signal::CONT);
        // It may be gone.
        let _ = kill_process(guard, Signal::CONT);
        running.done().expect(76);
        MEMBERS.iter().for_each(|file| std::fs::remove_file(house.path(file)).expect("a file"));
    }
}

/// A test can't suspend the machine. It can see that both wait by the clock that goes on meanwhile, and not by one that they look at now and
/// then.
#[test]
fn the_end_of_a_lease_is_waited_for_by_the_clock_that_counts_sleep() {
    let house = House::new();
    let running = family(&house, &["--lease", "1h", "--max-hold", "30m"]);
    let runner = running.pid().as_raw_nonzero().to_string();
    let first = house.read("first");
    let guard = std::fs::read_to_string(format!("/proc/{}/stat", first.trim())).expect("a process");
    let guard = guard
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(1))
        .expect("a parent")
        .to_owned();
    for (who, at_most) in [(&guard, 1_801), (&runner, 1_800)] {
        until("a timer is set", || {
            timers_of_the_boot_clock(who).iter().any(|left| (at_most - 120..=at_most).contains(left))
        });
    }
}

#[test]
fn a_stderr_that_is_not_read_keeps_no_command_beyond_its_lease() {
    let (house, (_unread, full)) = (House::new(), full_pipe());
    let running = family_with(&house, &["--lease", "3s", "--grace", "500ms"], full);
    let next = house.run(["run", "x", "--", "sh", "-c", "cat first same other | xargs kill -0 2>&1"]);
    assert_eq!(next.stdout.matches("No such process").count(), 3, "{next:?}");
    running.done().expect(76);
}

#[test]
fn a_stderr_that_is_not_read_keeps_no_command_whose_lock_is_taken_away() {
    let (house, (_unread, full)) = (House::new(), full_pipe());
    let running = family_with(&house, &["--grace", "300ms"], full);
    house.run(["release", "x", "--force", "--yes"]).expect(0);
    running.done().expect(76);
    until_all_are_dead(&house);
}

#[test]
fn a_stderr_that_is_not_read_keeps_no_command_beyond_max_hold() {
    let (house, (_unread, full)) = (House::new(), full_pipe());
    family_with(&house, &["--max-hold", "1s", "--grace", "300ms"], full).done().expect(124);
    until_all_are_dead(&house);
}

#[test]
fn a_stderr_that_is_not_read_keeps_no_command_of_a_killed_runner() {
    let (house, (_unread, full)) = (House::new(), full_pipe());
    let running = family_with(&house, &[], full);
    running.signal(Signal::KILL);
    running.done().expect(-9);
    until_all_are_dead(&house);
    house.run(["run", "x", "--wait", "10s", "--", "true"]).expect(0);
}

#[test]
fn a_stderr_that_is_not_read_keeps_no_outage_from_its_end() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().tick(Duration::from_millis(500)));
    let proxy = Proxy::to_zookeeper(server.address());
    let (house, (_unread, full)) = (House::new(), full_pipe());
    let url = format!("zookeeper://{}?session=6s", proxy.address());
    let mut command = house.leasehold(["--store", &url, "run", "x", "--", "sh", "-c", BEAT]);
    let mut running =
        Running::of(command.stdout(Stdio::null()).stderr(full).spawn().expect("the program starts"));
    until("it runs", || beat(&house).is_some());
    proxy.refuse();
    // Long enough to be told.
    std::thread::sleep(Duration::from_secs(2));
    proxy.pass();
    let since = beat(&house);
    until("it has run for more than a session", || beat(&house) > since.map(|since| since + 7_000));
    assert!(running.is_running());
    assert_eq!(house.read("log"), "");
    let direct = format!("zookeeper://{}", server.address());
    house.run(["--store", &direct, "release", "x", "--force", "--yes"]).expect(0);
    running.done().expect(76);
}

/// A command that says that it runs until it is killed, and that it was told to end.
const BEAT: &str =
    "trap 'echo term >> log' TERM; while :; do date +%s%3N > new; mv new beat; sleep 0.02; done";

/// When it last said so, in milliseconds.
fn beat(house: &House) -> Option<u64> {
    house.read("beat").trim().parse().ok()
}

/// Both keepers may be stopped for a moment, as with the machine that they run on: it must not end a command whose lock
/// is good for long.
#[test]
fn the_guard_knows_far_ahead_that_the_lock_is_good() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().tick(Duration::from_millis(500)));
    let (house, url) = (House::new(), format!("zookeeper://{}?session=8s", server.address()));
    let running = house.start(["--store", &url, "run", "x", "--", "sh", "-c", BEAT]);
    until("it runs", || beat(&house).is_some());
    let guard = processes::guard_of(&running).expect("a guard").as_raw_nonzero().to_string();
    let (until, mut seen) = (Instant::now() + Duration::from_secs(8), Vec::new());
    while Instant::now() < until {
        seen.extend(times_of_the_boot_clock(&guard));
        std::thread::sleep(Duration::from_millis(10));
    }
    let (least, most) = (seen.iter().min().expect("a timer"), seen.iter().max().expect("a timer"));
    assert!(*least > *most / 10, "{least:?} of {most:?}");
}

#[test]
fn a_guard_that_was_stopped_ends_no_command_whose_lock_was_renewed() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().tick(Duration::from_millis(500)));
    let (house, url) = (House::new(), format!("zookeeper://{}?session=4s", server.address()));
    let mut running = house.start(["--store", &url, "run", "x", "--", "sh", "-c", BEAT]);
    until("it runs", || beat(&house).is_some());
    let guard = processes::guard_of(&running).expect("a guard");
    kill_process(guard, Signal::STOP).expect("a signal can be sent");
    let since = beat(&house);
    until("it has run for more than a session", || beat(&house) > since.map(|since| since + 6_000));
    kill_process(guard, Signal::CONT).expect("a signal can be sent");
    let since = beat(&house);
    until("it runs on", || beat(&house) > since.map(|since| since + 1_000) || !running.is_running());
    assert!(running.is_running());
    assert_eq!(house.read("log"), "");
}

#[test]
fn max_hold_is_kept_though_the_runner_is_stopped() {
    let house = House::new();
    for on_lost in ["term", "ignore"] {
        let running = family(&house, &["--max-hold", "1s", "--grace", "300ms", "--on-lost", on_lost]);
        running.signal(Signal::STOP);
        until_all_are_dead(&house);
        // Its end is told when the runner goes on.
        until("the guard is done", || {
            let guard = processes::guard_of(&running);
            guard.is_none_or(|guard| processes::state_of(guard.as_raw_nonzero().get()) == Some('Z'))
        });
        running.signal(Signal::CONT);
        running.done().expect(124);
        MEMBERS.iter().for_each(|file| std::fs::remove_file(house.path(file)).expect("a file"));
    }
}

#[test]
fn a_guard_that_can_not_see_what_is_left_gives_nothing_back() {
    let house = House::new();
    let script =
        "set -m; sh -c 'until [ -e go ]; do sleep 0.01; done' > /dev/null 2>&1 & set +m; echo > ready
         until [ -e end ]; do sleep 0.01; done; exit 4";
    let running = house.start(["run", "x", "--", "bash", "-c", script]);
    until("it runs", || house.path("ready").exists());
    let guard = processes::guard_of(&running).expect("a guard");
    let limit = |files: u64| {
        let limit = Rlimit { current: Some(files), maximum: Some(1_024) };
        prlimit(Some(guard), Resource::Nofile, limit).expect("a limit can be set");
    };
    limit(3);
    house.touch("end");
    house.run(["run", "x", "--wait", "1s", "--", "true"]).expect(75);
    house.touch("go");
    limit(1_024);
    running.done().expect(4);
    house.run(["run", "x", "--try", "--", "true"]).expect(0);
}

#[test]
fn a_guard_that_was_killed_before_the_command_started_is_not_the_commands_fault() {
    let house = House::new();
    let holder = house.hold(&["x"], "done");
    let waiter = house.start(["run", "x", "--", "touch", "ran"]);
    until("it waits", || house.waiters("x") == 1);
    until("its guard is there", || processes::guard_of(&waiter).is_some());
    let guard = processes::guard_of(&waiter).expect("a guard");
    kill_process(guard, Signal::KILL).expect("a signal can be sent");
    house.touch("done");
    holder.done().expect(0);
    waiter.done().expect(69).says(&["guard process was killed"]);
    assert!(!house.path("ran").exists());
}

/// How many seconds are left of the timers of a process on `CLOCK_BOOTTIME` (7).
fn timers_of_the_boot_clock(id: &str) -> Vec<u64> {
    times_of_the_boot_clock(id).iter().map(Duration::as_secs).collect()
}

/// The same, exactly.
fn times_of_the_boot_clock(id: &str) -> Vec<Duration> {
    let folder = std::fs::read_dir(format!("/proc/{id}/fdinfo")).expect("a process");
    let files = folder.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
    let of_this_clock = files.filter(|text| text.contains("clockid: 7"));
    of_this_clock
        .filter_map(|text| {
            let value = text.lines().find_map(|line| line.strip_prefix("it_value: ("))?;
            let (seconds, rest) = value.split_once(", ")?;
            let nanos: u64 = rest.split(')').next()?.parse().ok()?;
            Some(Duration::from_secs(seconds.parse().ok()?) + Duration::from_nanos(nanos))
        })
        .collect()
}

#[test]
fn the_guard_says_nothing_where_the_runner_stops_the_command_itself() {
    let house = House::new();
    let ignores = "trap '' TERM; sleep 5";
    for options in [&["--grace", "300ms"][..], &["--grace", "300ms", "--quiet"], &["--grace", "0s"]] {
        let args = [&["run", "q", "--max-hold", "500ms"], options, &["--", "sh", "-c", ignores]].concat();
        let done = house.run(args).expect(124).says(&["--max-hold"]);
        assert!(!done.stderr.contains("guard"), "{options:?}: {done:?}");
    }
    // Here it is killed at once.
    let holder = house.start(["run", "q", "--on-lost", "kill", "--", "sh", "-c", "echo > ready; sleep 5"]);
    until("it runs", || house.path("ready").exists());
    house.run(["release", "q", "--force", "--yes"]).expect(0);
    let done = holder.done().expect(76).says(&["lost"]);
    assert!(!done.stderr.contains("guard"), "{done:?}");
}

#[test]
fn a_quiet_runner_that_was_killed_has_a_quiet_guard() {
    let house = House::new();
    let running = family(&house, &["--quiet"]);
    running.signal(Signal::KILL);
    let done = running.done().expect(-9);
    until_all_are_dead(&house);
    assert_eq!(done.stderr, "");
}

/// A container is entered like that: the leaders of the session and of the group can't be seen from inside.
#[test]
fn a_session_from_outside_of_the_container_is_one_as_any_other() {
    let house = House::new();
    for inner in [&["unshare", "-pf", "--mount-proc"][..], &["unshare", "-pf"]] {
        // Without the terminal of whoever runs this test.
        let unshared = |args: &[&str]| {
            let mut command = Command::new("setsid");
            command.args(inner).args(args).env("LEASEHOLD_STORE", house.store());
            command.current_dir(house.path("")).stdin(Stdio::null()).stdout(Stdio::piped());
            command.stderr(Stdio::piped());
            Running::of(command.spawn().expect("setsid starts")).done()
        };
        if unshared(&["true"]).code() != 0 {
            return;
        }
        let script = "(sleep 0.5; echo late > got) > /dev/null 2>&1 & echo hi";
        let done = unshared(&[env!("CARGO_BIN_EXE_leasehold"), "run", "ns", "--", "sh", "-c", script]);
        let done = done.expect(0);
        assert_eq!(
            (done.stdout.as_str(), house.read("got").as_str()),
            ("hi\n", "late\n"),
            "{inner:?} {done:?}"
        );
        std::fs::remove_file(house.path("got")).expect("a file");
    }
}
