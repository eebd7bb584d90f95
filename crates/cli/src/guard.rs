//! A second pair of eyes: a tiny process that outlives `leasehold run` if that is killed with SIGKILL, and then kills
//! the command's whole process group.
//!
//! The kernel's parent-death signal (see [`crate::sys::die_with_parent`]) reaches only the command itself, not what the
//! command has started. The guard sleeps on a pipe of which the runner holds the other end: a byte means that all is well,
//! the end of the file without it means that the runner is dead.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

/// The first argument of the process that guards; the second is the group.
const ARGUMENT: &str = "__guard";

/// The runner's side.
#[derive(Debug)]
pub(crate) struct Guard(ChildStdin);

impl Guard {
    /// Starts to guard this group. That it can't be started is no reason not to run the command.
    pub(crate) fn over(group: Pid) -> Option<Guard> {
        let mut guard = Command::new(std::env::current_exe().ok()?)
            .args([ARGUMENT, &group.as_raw_nonzero().to_string()])
            // Neither the terminal's signals, nor a pipe that somebody reads to its end, nor a folder to unmount.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
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
        let _ = kill_process_group(group, Signal::KILL);
    }
    std::process::exit(0);
}
