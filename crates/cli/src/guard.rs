//! A second pair of eyes: a tiny process that outlives `leasehold run` if that is killed with SIGKILL, and then kills
//! the command's whole process group.
//!
//! The kernel's parent-death signal (see [`crate::sys::die_with_parent`]) reaches only the command itself, not what the
//! command has started. The guard sleeps on a pipe of which the runner holds the other end: a byte means that all is well,
//! the end of the file without it means that the runner is dead.
//!
//! Where the store can lend its session (`file:`), the guard has it open as its standard output: the lock then stays taken
//! until the guard has seen the group's end, so the next holder never meets what is left of this one.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// The first argument of the process that guards; the second is the group.
const ARGUMENT: &str = "__guard";

/// The runner's side.
#[derive(Debug)]
pub(crate) struct Guard(ChildStdin);

impl Guard {
    /// Starts to guard this group. That it can't be started is no reason not to run the command.
    pub(crate) fn over(group: Pid, lifeline: Option<OwnedFd>) -> Option<Guard> {
        let mut guard = Command::new(std::env::current_exe().ok()?)
            .args([ARGUMENT, &group.as_raw_nonzero().to_string()])
            // Neither the terminal's signals, nor a pipe that somebody reads to its end, nor a folder to unmount.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(lifeline.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()
            .ok()?;
        guard.stdin.take().map(Guard)
    }

    /// The group is gone: there is nothing left to guard.
    pub(crate) fn dismiss(mut self) {
        let _ = self.0.write_all(b".");
    }
}

/// If this process was started to guard, does so and never returns.
pub(crate) fn serve_if_asked() {
    let mut args = std::env::args_os().skip(1);
    if args.next().as_deref() != Some(OsStr::new(ARGUMENT)) {
        return;
    }
    let group = args.next().and_then(|id| id.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let all_is_well = matches!(std::io::stdin().read(&mut [0]), Ok(1..));
    if let (Some(group), false) = (group, all_is_well) {
        kill_until_gone(group);
    }
    std::process::exit(0);
}

/// Kills, and waits for the end: whatever a process is doing in the kernel, it takes a moment to die. A process of
/// another user, which can't be killed, is not waited for.
fn kill_until_gone(group: Pid) {
    let mut pause = Duration::from_micros(200);
    while kill_process_group(group, Signal::KILL).is_ok()
        && test_kill_process_group(group) != Err(Errno::SRCH)
    {
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
