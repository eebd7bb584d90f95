//! What /proc tells of processes.
#![cfg(target_os = "linux")]

use rustix::process::Pid;

use crate::house::Running;

/// Id, state and parent of every process.
pub(crate) fn all() -> Vec<(i32, char, i32)> {
    let stat = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut rest = stat.rsplit(')').next()?.split_whitespace();
        Some((pid, rest.next()?.chars().next()?, rest.next()?.parse().ok()?))
    };
    std::fs::read_dir("/proc").expect("/proc").flatten().filter_map(stat).collect()
}

/// The runner of a command: the parent of the guard that is its parent.
pub(crate) fn runner_above(command: &str) -> Pid {
    let all = all();
    let parent =
        |of: i32| all.iter().find(|(pid, ..)| *pid == of).map(|(_, _, ppid)| *ppid).expect("it runs");
    let runner =
        Pid::from_raw(parent(parent(command.trim().parse().expect("a process id")))).expect("it runs");
    assert_eq!(comm(runner), "leasehold");
    runner
}

pub(crate) fn state_of(process: i32) -> Option<char> {
    all().into_iter().find(|(pid, ..)| *pid == process).map(|(_, state, _)| state)
}

fn comm(pid: Pid) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    comm.unwrap_or_default().trim().to_owned()
}

/// The guard of a runner: its only child.
pub(crate) fn guard_of(running: &Running) -> Option<Pid> {
    let parent = running.pid().as_raw_nonzero().get();
    let children = all().into_iter().filter(|(_, _, ppid)| *ppid == parent);
    children.filter_map(|(pid, ..)| Pid::from_raw(pid)).find(|pid| comm(*pid) == "lh-guard")
}
