//! Job control as an interactive shell does it: pipelines, a pager, Ctrl-C, Ctrl-Z and `fg`, background jobs, password
//! prompts. `bash -i` on a terminal of its own (`script`, util-linux) is the shell.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::house::{House, Running, is_alive, until};
use crate::processes;

/// An interactive shell on a terminal.
struct Shell {
    keyboard: ChildStdin,
    screen: Arc<Mutex<Vec<u8>>>,
    marks: u32,
    _running: Running,
}

impl Shell {
    fn start(house: &House) -> Self {
        let mut terminal = Command::new("script");
        terminal.args([
            "--quiet",
            "--command",
            "stty cols 200; exec bash --norc --noprofile -i",
            "/dev/null",
        ]);
        terminal
            .env("LEASEHOLD_STORE", house.store())
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env("HISTFILE", "")
            .env("PS1", "$ ")
            .env("LESS", "")
            .env_remove("NO_COLOR");
        terminal.current_dir(house.path("")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = terminal.stderr(Stdio::null()).spawn().expect("script starts");
        let (keyboard, mut shown) =
            (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let screen = Arc::new(Mutex::new(Vec::new()));
        let seen = screen.clone();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(n @ 1..) = shown.read(&mut some) {
                seen.lock().expect("no panic").extend_from_slice(&some[..n]);
            }
        });
        let mut shell = Shell { keyboard, screen, marks: 0, _running: Running::of(child) };
        shell.line("bind 'set enable-bracketed-paste off'");
        shell.ready();
        shell
    }

    fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("it reads");
        self.keyboard.flush().expect("it reads");
    }

    fn line(&mut self, line: &str) {
        let line = line.replace("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
        self.keys(&format!("{line}\n"));
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("no panic")).into_owned()
    }

    #[track_caller]
    fn until_shown(&self, text: &str) {
        let what = || format!("{text:?} on the screen:\n{}", self.screen());
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !self.screen().contains(text) {
            assert!(std::time::Instant::now() < limit, "not in time: {}", what());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Waits until the shell itself reads a line and answers. What it prints is not what was typed.
    #[track_caller]
    fn ready(&mut self) {
        self.marks += 1;
        self.line(&format!("echo mark-$((41 + {}))", self.marks));
        self.until_shown(&format!("mark-{}", 41 + self.marks));
    }
}

#[test]
fn the_output_can_be_piped_into_a_pager() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    shell.line("LEASEHOLD run x -- seq 500 | less");
    // The pager has painted its first page and waits for a key.
    shell.until_shown("\n:");
    shell.keys("q");
    shell.ready();
    assert!(!shell.screen().contains("Stopped"), "{}", shell.screen());
    assert_eq!(house.holders("x"), 0);
    // Once more, with a command that writes for longer than the pager looks.
    shell.line("LEASEHOLD run x -- seq 1000000 | less; echo status ${PIPESTATUS[0]}");
    until("the command runs", || house.holders("x") == 1);
    shell.until_shown("\n:");
    shell.keys("q");
    shell.ready();
    shell.until_shown("status 141");
    assert!(!shell.screen().contains("Stopped"), "{}", shell.screen());
}

#[test]
fn a_pager_under_the_lock_has_the_keys() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    shell.line("LEASEHOLD run x -- sh -c 'seq 500 | less; echo after > got'");
    shell.until_shown("\n:");
    shell.keys("q");
    shell.ready();
    assert_eq!(house.read("got"), "after\n");
}

#[test]
fn ctrl_c_ends_a_whole_pipeline() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    shell.line(
        "LEASEHOLD run x -- sh -c 'echo $$ > pid; exec sleep 1000' | cat; echo status ${PIPESTATUS[@]}",
    );
    until("the command runs", || house.read("pid").ends_with('\n'));
    shell.keys("\x03");
    shell.ready();
    assert!(!is_alive(&house.read("pid")));
    assert_eq!(house.holders("x"), 0);
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    let inner = "trap \"echo int >> log\" INT; echo > ready; until [ -e go ]; do sleep 0.01; done";
    shell.line(&format!("LEASEHOLD run x -- sh -c '{inner}'"));
    until("the command runs", || house.path("ready").exists());
    shell.keys("\x03");
    until("it heard", || !house.read("log").is_empty());
    // Time for a second one to come: a claim of the lock goes through the whole machinery and back.
    house.run(["run", "x", "--wait", "300ms", "--", "true"]).expect(75);
    house.touch("go");
    shell.ready();
    assert_eq!(house.read("log"), "int\n");
}

#[test]
fn ctrl_z_stops_a_pipeline_and_fg_continues_it() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    // It waits without a child: a shell whose child was stopped between vfork and exec does not look stopped.
    let inner = "mkfifo go; echo $$ > pid; read line < go; echo out";
    shell.line(&format!("LEASEHOLD run x -- sh -c '{inner}' | cat > got"));
    until("the command runs", || house.read("pid").ends_with('\n'));
    shell.keys("\x1a");
    shell.until_shown("Stopped");
    until("the command is stopped", || state(&house.read("pid")) == 'T');
    shell.ready();
    shell.line("fg");
    until("the command goes on", || state(&house.read("pid")) != 'T');
    std::fs::write(house.path("go"), "go\n").expect("it reads");
    shell.ready();
    assert_eq!(house.read("got"), "out\n");
    assert_eq!(house.holders("x"), 0);
}

#[test]
fn a_background_job_runs_and_can_be_brought_to_the_front() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    let inner = "echo $$ > pid; until [ -e go ]; do sleep 0.01; done; read line; echo \"got $line\" > got";
    shell.line(&format!("LEASEHOLD run x -- sh -c '{inner}' &"));
    until("the command runs", || house.read("pid").ends_with('\n'));
    shell.ready();
    assert_ne!(state(&house.read("pid")), 'T');
    // Now it wants to read the terminal that it does not have.
    house.touch("go");
    until("it is stopped", || state(&house.read("pid")) == 'T');
    shell.line("fg");
    until("it goes on", || state(&house.read("pid")) != 'T');
    shell.keys("hello\n");
    until("it has read", || house.read("got") == "got hello\n");
    shell.ready();
}

#[test]
fn a_password_can_be_asked_for_in_a_pipeline() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    // As sudo and ssh do it: the terminal's echo is off while they read from it, whatever their own stdin and stdout are.
    let inner =
        "stty -echo < /dev/tty; echo > ready; read pw < /dev/tty; stty echo < /dev/tty; echo \"pw $pw\"";
    shell.line(&format!("echo | LEASEHOLD run x -- sh -c '{inner}' | cat > got"));
    until("it asks", || house.path("ready").exists());
    shell.keys("secret\n");
    until("it has read", || house.read("got") == "pw secret\n");
    shell.ready();
    assert!(!shell.screen().contains("Stopped") && !shell.screen().contains("secret"), "{}", shell.screen());
}

#[test]
fn a_shell_with_jobs_of_its_own_can_run_under_the_lock() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    shell.line("LEASEHOLD run x -- bash --norc --noprofile -i");
    until("the lock is held", || house.holders("x") == 1);
    shell.ready();
    shell.line("sh -c 'echo > ready; exec sleep 1000'");
    until("a job of the inner shell runs", || house.path("ready").exists());
    shell.keys("\x03");
    shell.ready();
    assert_eq!(house.holders("x"), 1, "Ctrl-C was for the job of the inner shell");
    shell.line("exit 3");
    shell.line("echo outer $?");
    shell.until_shown("outer 3");
    assert_eq!(house.holders("x"), 0);
}

#[test]
fn a_job_that_is_suspended_is_ended_before_its_lease() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    let inner = "trap \"echo term >> log; exit\" TERM; echo $$ > pid; while :; do sleep 0.01; done";
    shell.line(&format!("LEASEHOLD run x --lease 4s --grace 2s -- sh -c '{inner}'"));
    until("the command runs", || house.read("pid").ends_with('\n'));
    shell.keys("\x1a");
    shell.until_shown("Stopped");
    // It hears of it, though it was stopped, and the next one comes after its end.
    house
        .run(["run", "x", "--", "sh", "-c", "kill -0 $(cat pid) 2> /dev/null || echo next >> log"])
        .expect(0);
    assert_eq!(house.read("log"), "term\nnext\n");
    shell.line("fg");
    shell.line("echo code $?");
    shell.until_shown("code 76");
}

#[test]
fn a_signal_to_the_runner_of_a_job_reaches_the_command_once() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    let inner = "trap \"echo term >> log\" TERM; echo $$ > pid; until [ -e go ]; do sleep 0.01; done";
    shell.line(&format!("LEASEHOLD run x -- sh -c '{inner}' | cat"));
    until("the command runs", || house.read("pid").ends_with('\n'));
    let runner = processes::runner_above(&house.read("pid"));
    rustix::process::kill_process(runner, rustix::process::Signal::TERM).expect("a signal can be sent");
    until("it heard", || !house.read("log").is_empty());
    house.run(["run", "x", "--wait", "300ms", "--", "true"]).expect(75);
    house.touch("go");
    shell.ready();
    assert_eq!(house.read("log"), "term\n");
}

#[test]
fn what_a_command_sends_to_its_own_group_does_not_come_back() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    let inner = "trap \"echo usr1 >> log\" USR1; kill -USR1 0; echo > ready; until [ -e go ]; do sleep 0.01; done; exit 5";
    shell.line(&format!("LEASEHOLD run x -- sh -c '{inner}'; echo code $?"));
    until("the command has sent it", || house.path("ready").exists());
    house.run(["run", "x", "--wait", "300ms", "--", "true"]).expect(75);
    house.touch("go");
    shell.until_shown("code 5");
    assert_eq!(house.read("log"), "usr1\n");
}

/// `setsid` starts a daemon where it forks. Here it does not: it becomes the command itself, in a session of its own.
#[test]
fn a_command_that_makes_a_session_of_its_own_is_stopped_as_any_other() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    let inner = "setsid sh -c 'sleep 1000 & echo $! > child; echo $$ > pid; wait'";
    for (round, (options, code)) in
        [("--max-hold 1s --grace 300ms", 124), ("--grace 300ms", 76), ("", 137)].into_iter().enumerate()
    {
        for file in ["pid", "child"] {
            let _ = std::fs::remove_file(house.path(file));
        }
        shell.line(&format!("LEASEHOLD run x {options} -- {inner}; echo code-{round} $?"));
        until("the command runs", || house.read("pid").ends_with('\n'));
        match code {
            76 => drop(house.run(["release", "x", "--force", "--yes"]).expect(0)),
            137 => {
                let runner = processes::runner_above(&house.read("pid"));
                rustix::process::kill_process(runner, rustix::process::Signal::KILL).expect("it runs");
            }
            _ => {}
        }
        shell.until_shown(&format!("code-{round} {code}"));
        until("the command is dead", || !is_alive(&house.read("pid")));
        until("what it started is dead", || !is_alive(&house.read("child")));
        house.run(["run", "x", "--wait", "10s", "--", "true"]).expect(0);
    }
}

#[test]
fn a_terminal_that_was_stopped_keeps_no_command_beyond_its_lease() {
    let house = House::new();
    let mut shell = Shell::start(&house);
    let inner = "echo $$ > pid; while :; do sleep 0.01; done";
    shell.line(&format!("LEASEHOLD run x --lease 3s --grace 500ms -- sh -c '{inner}'"));
    until("the command runs", || house.read("pid").ends_with('\n'));
    shell.keys("\x13");
    let next = "kill -0 $(cat pid) 2> /dev/null || echo next >> log";
    house.run(["run", "x", "--", "sh", "-c", next]).expect(0);
    assert_eq!(house.read("log"), "next\n");
    shell.keys("\x11");
    shell.ready();
}

#[test]
fn a_waiter_that_is_suspended_leaves_the_queue_and_comes_back() {
    let house = House::new();
    let holder = house.hold(&["x"], "done");
    let mut shell = Shell::start(&house);
    shell.line("LEASEHOLD run x -- sh -c 'echo > got'");
    until("it waits", || house.waiters("x") == 1);
    shell.keys("\x1a");
    shell.until_shown("Stopped");
    assert_eq!(house.waiters("x"), 0);
    house.touch("done");
    holder.done().expect(0);
    house.run(["run", "x", "--wait", "10s", "--", "true"]).expect(0);
    assert!(!house.path("got").exists());
    shell.line("fg");
    until("it has its turn", || house.path("got").exists());
    shell.ready();
    assert_eq!(house.holders("x"), 0);
}

#[test]
fn a_waiting_job_in_the_background_leaves_the_terminal_alone() {
    let house = House::new();
    let holder = house.hold(&["x"], "done");
    let mut shell = Shell::start(&house);
    shell.line("stty tostop");
    shell.line("LEASEHOLD run x -- true &");
    until("it waits", || house.waiters("x") == 1);
    // Longer than it takes until a line is shown.
    house.run(["run", "x", "--wait", "700ms", "--", "true"]).expect(75);
    shell.line("jobs");
    shell.until_shown("Running");
    assert!(!shell.screen().contains("waiting for x"), "{}", shell.screen());
    shell.line("fg");
    shell.until_shown("waiting for x");
    house.touch("done");
    holder.done().expect(0);
    shell.ready();
}

fn state(pid: &str) -> char {
    processes::state_of(pid.trim().parse().expect("a process id")).unwrap_or('-')
}
