//! Servers that refuse to run as root: they are started by a script that becomes another user first.

use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};

use super::poll::until;

/// The start of a script. `as_user` runs a program as another user if this one is root; the folder must be open to that user.
/// The kernel forgets the signal for a dead parent when the user changes, so it is asked for once more.
pub(crate) fn preamble(user: &str) -> String {
    format!(
        "set -e\n\
         as_user=\n\
         if [ \"$(id -u)\" = 0 ]; then\n\
         \x20 chmod o+x \"$(dirname '{{folder}}')\" '{{folder}}'\n\
         \x20 chown -R {user} '{{folder}}/data'\n\
         \x20 as_user='setpriv --reuid {user} --regid {user} --clear-groups --pdeathsig KILL'\n\
         fi\n\
         cd '{{folder}}/data'\n"
    )
}

/// The processes that a process started.
pub(crate) fn children(pid: u32) -> Vec<i32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Signals processes; those that are gone already don't matter.
pub(crate) fn signal_all(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        let _ = kill_process(pid, signal);
    }
}

/// Waits until none of these processes is there any more.
pub(crate) fn wait_until_gone(pids: &[i32]) {
    until("the server's processes are gone", || {
        let left = |pid: &&i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // One that nobody has waited for is gone too.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        match pids.iter().find(left) {
            Some(pid) => Err(format!("{pid} is there")),
            None => Ok(()),
        }
    });
}

/// Runs a client program; its output without the last line end, or what it complains of.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } = command.output().map_err(|e| e.to_string())?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned();
    if status.success() { Ok(text(stdout)) } else { Err(text(stderr)) }
}
