//! What differs on a terminal. `script` (util-linux) gives each test a terminal of its own; where there is none, these
//! tests have nothing to say.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::house::{Done, House, Running, is_alive, until};
use crate::processes;

fn there_is_script() -> bool {
    Command::new("script").arg("--version").output().is_ok_and(|o| o.status.success())
}

/// Runs a shell script on a new terminal, typing these keys as soon as the file `ready` exists.
fn on_terminal(house: &House, script: &str, keys: &[u8]) -> Option<Done> {
    let mut child = terminal(house, script)?.spawn().expect("script starts");
    let mut keyboard = child.stdin.take().expect("a pipe");
    let running = Running::of(child);
    if !keys.is_empty() {
        until("it is ready for keys", || house.path("ready").exists());
        keyboard.write_all(keys).expect("it reads");
        keyboard.flush().expect("it reads");
    }
    let done = running.done();
    drop(keyboard);
    Some(done)
}

/// A new terminal that runs a shell script, which is the leader of its session.
fn terminal(house: &House, script: &str) -> Option<Command> {
    if !there_is_script() {
        return None;
    }
    let script = script.replace("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &script, "/dev/null"]);
    terminal
        .env("LEASEHOLD_STORE", house.store())
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .env_remove("NO_COLOR");
    terminal.current_dir(house.path("")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(terminal)
}

#[test]
fn the_command_can_read_keys() {
    let house = House::new();
    let script =
        "LEASEHOLD run x -- sh -c 'echo > ready; read line; echo \"got $line\" > got'; echo $? > code";
    let Some(done) = on_terminal(&house, script, b"hello\n") else { return };
    assert_eq!((house.read("got").as_str(), house.read("code").as_str()), ("got hello\n", "0\n"), "{done:?}");
}

#[test]
fn a_command_with_another_stdin_can_ask_the_terminal() {
    let house = House::new();
    let script = "echo piped | LEASEHOLD run x -- sh -c 'echo > ready; read key < /dev/tty; read line; echo \"$key $line\" > got'";
    let Some(done) = on_terminal(&house, script, b"key\n") else { return };
    assert_eq!(house.read("got"), "key piped\n", "{done:?}");
}

#[test]
fn ctrl_c_reaches_the_command_and_the_script_around_us() {
    let house = House::new();
    let script = "for i in 1 2 3; do echo $i >> rounds; LEASEHOLD run x -- sh -c 'echo > ready; exec sleep 1000'; done; echo > after";
    let Some(done) = on_terminal(&house, script, b"\x03") else { return };
    assert_eq!(house.read("rounds"), "1\n", "{done:?}");
    assert!(!house.path("after").exists());
    assert_eq!(house.holders("x"), 0);
}

#[test]
fn ctrl_c_while_waiting_ends_the_script_around_us() {
    let house = House::new();
    let _holder = house.hold(&["x"], "done");
    let script = "for i in 1 2 3; do echo $i >> rounds; LEASEHOLD run x -- true; done; echo > after";
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            if !there_is_script() {
                return;
            }
            until("it waits", || house.waiters("x") == 1);
            house.touch("ready");
        });
        on_terminal(&house, script, b"\x03")
    });
    let Some(done) = done else { return };
    assert_eq!(house.read("rounds"), "1\n", "{done:?}");
    assert!(!house.path("after").exists());
    assert_eq!(house.waiters("x"), 0);
}

#[test]
fn a_terminal_that_is_closed_ends_the_command_of_a_runner_that_leads_its_session() {
    let house = House::new();
    // The kernel tells the leader of the session, and nobody else.
    let script = "exec LEASEHOLD run x -- sh -c 'echo $$ > pid; exec sleep 20'";
    let Some(mut terminal) = terminal(&house, script) else { return };
    let running = Running::of(terminal.spawn().expect("script starts"));
    until("the command runs", || house.read("pid").ends_with('\n'));
    let leader = rustix::process::getsid(Pid::from_raw(house.read("pid").trim().parse().expect("a number")));
    assert_eq!(leader, Ok(processes::runner_above(&house.read("pid"))));
    running.signal(Signal::KILL);
    drop(running);
    let closed = std::time::Instant::now();
    until("the command is gone", || !is_alive(&house.read("pid")));
    assert!(closed.elapsed().as_secs() < 15, "it ran to its end");
    until("the lock is free", || house.holders("x") == 0);
}

/// The runner has seen that no signal came, and the command is not there yet: only the runner hears of this Ctrl-C. The
/// guard is stopped meanwhile, so that the moment is long enough.
#[test]
fn ctrl_c_at_the_start_of_the_command_reaches_it() {
    let house = House::new();
    let holder = house.hold(&["x"], "done");
    let script =
        "sh -c 'echo $$ > runner; exec LEASEHOLD run x -- sh -c \"sleep 5; echo > slept\"'; echo > after";
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            if !there_is_script() {
                return;
            }
            until("it waits", || house.waiters("x") == 1);
            let runner: i32 = house.read("runner").trim().parse().expect("a process id");
            let (guard, ..) =
                processes::all().into_iter().find(|(.., parent)| *parent == runner).expect("a guard");
            let tell = |signal| {
                kill_process(Pid::from_raw(guard).expect("a process id"), signal).expect("it lives");
            };
            tell(Signal::STOP);
            house.touch("done");
            holder.done().expect(0);
            until("it has the lock", || house.holders("x") == 1);
            // Time for the order to start the command.
            house.run(["run", "x", "--wait", "300ms", "--", "true"]).expect(75);
            house.touch("ready");
            until("the guard would have heard as well", || {
                let status = std::fs::read_to_string(format!("/proc/{guard}/status")).unwrap_or_default();
                let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
                pending.is_some_and(|mask| mask.trim().ends_with('2'))
            });
            tell(Signal::CONT);
        });
        on_terminal(&house, script, b"\x03")
    });
    let Some(done) = done else { return };
    assert!(!house.path("slept").exists() && !house.path("after").exists(), "{done:?}");
    assert_eq!(house.holders("x"), 0);
}

#[test]
fn a_command_that_handles_ctrl_c_decides_itself() {
    let house = House::new();
    let inner = "trap \"echo heard > heard; exit 5\" INT; echo > ready; while :; do sleep 0.01; done";
    // Ctrl-C reaches the shell around us as well, as it does without us. bash waits to see what the command makes of it.
    let script = format!(
        "exec bash -c \"LEASEHOLD run x -- sh -c '{}'; echo \\$? > code\"",
        inner.replace('"', "\\\"")
    );
    let Some(done) = on_terminal(&house, &script, b"\x03") else { return };
    assert_eq!((house.read("heard").as_str(), house.read("code").as_str()), ("heard\n", "5\n"), "{done:?}");
}

#[test]
fn the_terminal_is_ours_again_afterwards() {
    let house = House::new();
    let script = "LEASEHOLD run x -- true; echo > ready; read line; echo \"got $line\" > got";
    let Some(done) = on_terminal(&house, script, b"hello\n") else { return };
    assert_eq!(house.read("got"), "got hello\n", "{done:?}");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let house = House::new();
    let inner = "echo > ready; read line; echo \"got $line\" > got";
    // An interactive shell's job control: the job is stopped by Ctrl-Z, then brought back.
    let script = format!(
        "bash --norc -mc \"LEASEHOLD run x -- sh -c '{}'; echo stopped > stopped; fg; echo done\"",
        inner.replace('"', "\\\"").replace('$', "\\$")
    );
    let has_bash = Command::new("bash").arg("--version").output().is_ok_and(|o| o.status.success());
    if !has_bash {
        return;
    }
    let Some(done) = on_terminal(&house, &script, b"\x1ahello\n") else { return };
    assert_eq!(
        (house.read("stopped").as_str(), house.read("got").as_str()),
        ("stopped\n", "got hello\n"),
        "{done:?}"
    );
}

#[test]
fn ctrl_z_is_ignored_where_no_shell_could_continue_us() {
    let house = House::new();
    let script = "exec LEASEHOLD run x -- sh -c 'echo > ready; read line; echo \"got $line\" > got'";
    let Some(done) = on_terminal(&house, script, b"\x1ahello\n") else { return };
    assert_eq!(house.read("got"), "got hello\n", "{done:?}");
}

#[test]
fn a_wait_shows_one_live_line() {
    let house = House::new();
    let holder = house.hold(&["x", "--label", "the holder"], "done");
    let script = "(sleep 0.6; echo > ready) & LEASEHOLD run x --wait 2s -- true; echo $? > code";
    let Some(done) = on_terminal(&house, script, b"\n") else { return };
    assert!(done.stdout.contains("waiting for x: 1st in line, held by the holder for "), "{done:?}");
    assert_eq!(house.read("code"), "75\n");
    drop(holder);
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let house = House::new();
    let _holder = house.hold(&["x"], "done");
    let Some(done) = on_terminal(&house, "LEASEHOLD ls", b"") else { return };
    assert!(done.stdout.contains("\x1b[1mNAME\x1b[0m"), "{done:?}");
    let Some(done) = on_terminal(&house, "NO_COLOR=1 LEASEHOLD ls", b"") else { return };
    assert!(!done.stdout.contains("\x1b[1m"), "{done:?}");
}

#[test]
fn release_asks_on_a_terminal() {
    let house = House::new();
    let mut holder = house.hold(&["x", "--label", "alice"], "done");
    let script = "(sleep 0.2; echo > ready) & LEASEHOLD release x --force; echo $? > code";
    let Some(done) = on_terminal(&house, script, b"n\n") else { return };
    assert!(done.stdout.contains("Take x from alice (exclusive for "), "{done:?}");
    assert_eq!(house.read("code"), "77\n");
    assert!(holder.is_running());
    std::fs::remove_file(house.path("ready")).expect("a file");
    let Some(done) = on_terminal(&house, script, b"y\n") else { return };
    assert!(done.stdout.contains("taken from alice"), "{done:?}");
    holder.done().expect(76);
}
