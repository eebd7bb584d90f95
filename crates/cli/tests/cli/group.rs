//! The command's process group: signals while it runs, what it leaves behind, and a runner that is killed.

use std::os::unix::process::CommandExt;

use rustix::process::Signal;

use crate::house::{House, Running, is_alive, until};
use crate::processes;

#[test]
fn signals_are_passed_on_to_the_whole_group() {
    let house = House::new();
    // Not INT and QUIT: a shell makes its background jobs ignore those.
    for (name, signal) in
        [("TERM", Signal::TERM), ("HUP", Signal::HUP), ("USR1", Signal::USR1), ("USR2", Signal::USR2)]
    {
        let script = format!(
            "rm -f log; (trap 'echo inner >> log; exit' {name}; echo > inner-{name}; while :; do sleep 0.01; done) &
             trap 'echo outer >> log; wait; exit 7' {name}; echo > outer-{name}; while :; do sleep 0.01; done"
        );
        let running = house.start(["run", "x", "--", "sh", "-c", &script]);
        let ready = [format!("inner-{name}"), format!("outer-{name}")];
        until("both are ready", || ready.iter().all(|file| house.path(file).exists()));
        running.signal(signal);
        running.done().expect(7);
        let mut heard: Vec<String> = house.read("log").lines().map(str::to_owned).collect();
        heard.sort();
        assert_eq!(heard, ["inner", "outer"], "{name}");
    }
}

#[test]
fn a_command_that_dies_of_a_passed_on_signal_is_128_plus_n() {
    let house = House::new();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::QUIT, 131)] {
        let script = format!("ulimit -c 0; echo > ready-{code}; exec sleep 1000");
        let running = house.start(["run", "x", "--", "sh", "-c", &script]);
        until("it runs", || house.path(&format!("ready-{code}")).exists());
        running.signal(signal);
        running.done().expect(code);
    }
}

#[test]
fn the_lock_is_given_back_only_when_the_whole_group_is_gone() {
    let house = House::new();
    // The command ends at once and leaves a process behind, in its group.
    let script =
        "(until [ -e go ]; do sleep 0.01; done; echo late >> log) > /dev/null 2>&1 & echo $! > pid; exit 4";
    let mut running = house.start(["run", "x", "--", "sh", "-c", script]);
    until("the command left a process behind", || house.read("pid").ends_with('\n'));
    house.run(["run", "--try", "x", "--", "true"]).expect(75);
    assert!(running.is_running() && is_alive(&house.read("pid")));
    let next = house.start(["run", "x", "--", "sh", "-c", "echo next >> log"]);
    until("the next one waits", || house.waiters("x") == 1);
    house.touch("go");
    running.done().expect(4);
    next.done().expect(0);
    assert_eq!(house.read("log"), "late\nnext\n");
}

#[test]
fn what_keeps_the_lock_after_the_commands_end_is_said() {
    let house = House::new();
    let script = "(until [ -e go ]; do sleep 0.01; done) > /dev/null 2>&1 & echo $! > pid";
    let running = house.start(["run", "x", "--", "sh", "-c", script]);
    until("the command left a process behind", || house.read("pid").ends_with('\n'));
    // Longer than it takes to say so.
    house.run(["run", "x", "--wait", "1500ms", "--", "true"]).expect(75);
    house.touch("go");
    let done = running.done().expect(0);
    assert!(done.stderr.starts_with("leasehold: warning: waiting: the command has ended; "), "{done:?}");
    assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
}

#[test]
fn a_daemon_that_left_the_group_does_not_keep_the_lock() {
    let house = House::new();
    let script = "setsid sh -c 'echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 & until [ -s pid ]; do sleep 0.01; done";
    house.run(["run", "x", "--", "sh", "-c", script]).expect(0);
    let pid = house.read("pid");
    assert!(is_alive(&pid));
    kill(&pid);
}

#[test]
fn a_killed_runner_frees_the_lock_and_takes_the_command_with_it() {
    let house = House::new();
    let running = house.start(["run", "x", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000"]);
    until("the command runs", || house.read("pid").ends_with('\n'));
    running.signal(Signal::KILL);
    running.done().expect(-9);
    until("the command is dead", || !is_alive(&house.read("pid")));
    house.run(["run", "--wait", "20s", "x", "--", "true"]).expect(0);
}

#[test]
fn a_killed_runner_takes_the_commands_own_children_with_it() {
    let house = House::new();
    let script = "sleep 1000 > /dev/null 2>&1 & echo $! > pid; wait";
    let running = house.start(["run", "x", "--", "sh", "-c", script]);
    until("the command runs", || house.read("pid").ends_with('\n'));
    running.signal(Signal::KILL);
    running.done().expect(-9);
    until("the child's child is dead", || !is_alive(&house.read("pid")));
}

#[test]
fn the_next_holder_never_meets_what_a_killed_runner_left() {
    let house = House::new();
    for _ in 0..10 {
        let script = "rm -f met; sleep 1000 > /dev/null 2>&1 & echo $! > pid; wait";
        let running = house.start(["run", "x", "--", "sh", "-c", script]);
        until("the command runs", || house.read("pid").ends_with('\n'));
        let next =
            house.start(["run", "x", "--", "sh", "-c", "kill -0 $(cat pid) 2> /dev/null && exit 9; rm pid"]);
        until("the next one waits", || house.waiters("x") == 1);
        running.signal(Signal::KILL);
        running.done().expect(-9);
        next.done().expect(0);
    }
}

#[test]
fn a_stopped_command_hears_that_it_should_end() {
    let house = House::new();
    let running = house.start([
        "run",
        "x",
        "--max-hold",
        "500ms",
        "--",
        "sh",
        "-c",
        "echo $$ > pid; kill -STOP $$; sleep 1000",
    ]);
    running.done().expect(124);
    assert!(!is_alive(&house.read("pid")));
}

#[test]
#[cfg(target_os = "linux")]
fn a_suspended_runner_suspends_its_command() {
    let house = House::new();
    // It waits without a child: a shell whose child was stopped between vfork and exec does not look stopped.
    let script = "mkfifo go; echo $$ > pid; read line < go";
    // In a group of its own, as a shell would start it: a group that nobody could continue is never stopped.
    let mut runner = house.leasehold(["run", "x", "--", "sh", "-c", script]);
    let running = Running::of(runner.process_group(0).spawn().expect("it starts"));
    until("the command runs", || house.read("pid").ends_with('\n'));
    let command: i32 = house.read("pid").trim().parse().expect("a process id");
    let runner = running.pid().as_raw_nonzero().get();
    running.signal(Signal::TSTP);
    until("both are stopped", || {
        processes::state_of(command) == Some('T') && processes::state_of(runner) == Some('T')
    });
    running.signal(Signal::CONT);
    until("the command goes on", || processes::state_of(command) != Some('T'));
    std::fs::write(house.path("go"), "go\n").expect("it reads");
    running.done().expect(0);
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    let house = House::new();
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let script = format!("trap '' HUP; exec {leasehold} run x -- sh -c 'kill -HUP $$; exit 9'");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).env("LEASEHOLD_STORE", house.store());
    Running::of(shell.spawn().expect("a shell")).done().expect(9);
}

/// The exception that docs/cli.md names: a Rust program ignores SIGPIPE before its first line, and can't see what it
/// was before.
#[test]
fn a_sigpipe_that_was_ignored_from_the_start_has_its_default_effect_again() {
    let house = House::new();
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    let script = format!("trap '' PIPE; exec {leasehold} run x -- sh -c 'kill -PIPE $$; exit 9'");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).env("LEASEHOLD_STORE", house.store());
    Running::of(shell.spawn().expect("a shell")).done().expect(128 + 13);
}

#[test]
fn orphans_are_collected_while_the_command_runs() {
    let house = House::new();
    // Two hundred orphans come and go; none may stay as a zombie of ours.
    let script = "i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done; echo > ready; until [ -e go ]; do sleep 0.01; done";
    let running = house.start(["run", "x", "--", "sh", "-c", script]);
    until("they have come and gone", || house.path("ready").exists());
    until("no zombie is left", || zombies_of(&running) == 0);
    house.touch("go");
    running.done().expect(0);
}

fn kill(pid: &str) {
    let pid = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

fn zombies_of(running: &Running) -> usize {
    let parent = running.pid().as_raw_nonzero().get();
    processes::all().into_iter().filter(|(_, state, ppid)| *state == 'Z' && *ppid == parent).count()
}
