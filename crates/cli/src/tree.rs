//! Which processes a command consists of: all that descend from it, as far as they stayed in its session.
//!
//! A process group is too small a net: `timeout`, and shells with job control, put what they start into groups of their own. It can
//! also be too large: on a terminal the command shares the group of the shell's job with the rest of a pipeline. Descent is
//! exact, because the runner and its guard are subreapers: an orphan becomes a child of theirs, and stays in the tree.
//! What calls `setsid` is a daemon, and on its own; but not the command itself (`setsid make`), nor what stays in the
//! session that it makes.
//!
//! Read from /proc. Where there is none (not on Linux) the tree can't be seen, and the process group has to do.

use std::collections::HashMap;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgid, getpid, kill_process};

/// A living process of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pid: Pid,
    pub(crate) group: i32,
}

/// What is read of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    pid: i32,
    state: u8,
    parent: i32,
    group: i32,
    session: i32,
}

/// The root of a tree, and the sessions in which a process has to be to belong to it: the one that the command was
/// started in, and the one that it may have made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root {
    pub(crate) pid: Pid,
    /// As /proc has it: 0 is one whose leader can't be seen from here, as it is outside of our container. `None` if it
    /// could not be read: then all sessions count, as it is better to wait for a daemon than not for the command.
    session: Option<i32>,
    command: Option<Pid>,
    /// Whether the command's id may be another process's by now.
    reaped: bool,
}

impl Root {
    /// Below this process, in our own session as it is now.
    pub(crate) fn at(pid: Pid) -> Self {
        // Not by getsid(2): what it gives may be 0, which is no process id.
        let own = read(getpid().as_raw_nonzero().get()).ok().flatten();
        let session = own.map(|stat| stat.session);
        Root { pid, session, command: None, reaped: true }
    }

    /// The same tree as that of this command, which lives.
    pub(crate) fn of(self, command: Pid) -> Self {
        Root { command: Some(command), reaped: false, ..self }
    }

    /// The command has ended, and was waited for.
    pub(crate) fn reaped(&mut self) {
        self.reaped = true;
    }

    /// The command, as long as its id is its own.
    pub(crate) fn living_command(&self) -> Option<Pid> {
        self.command.filter(|_| !self.reaped)
    }

    fn counts(&self, stat: &Stat) -> bool {
        let is_command = |id: i32| self.command.is_some_and(|command| command.as_raw_nonzero().get() == id);
        self.session.is_none_or(|session| session == stat.session)
            || is_command(stat.session)
            || is_command(stat.pid)
    }
}

/// All living processes of the tree, without the root itself, and those children of the root that it has not waited for
/// yet. An error if that can't be seen.
pub(crate) fn below(root: Root) -> io::Result<Vec<Member>> {
    if !is_visible() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut children: HashMap<i32, Vec<Stat>> = HashMap::new();
    for stat in everything()? {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found = Vec::new();
    let mut parents = vec![root.pid.as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        for stat in children.remove(&parent).unwrap_or_default() {
            parents.push(stat.pid);
            // A zombie is done, but for one thing: its threads may still run if only the first has ended. Who its parent is knows, and
            // root waits for its own children.
            let done =
                stat.state == b'X' || (stat.state == b'Z' && parent != root.pid.as_raw_nonzero().get());
            if let Some(pid) = Pid::from_raw(stat.pid).filter(|_| !done && root.counts(&stat)) {
                found.push(Member { pid, group: stat.group });
            }
        }
    }
    Ok(found)
}

/// Whether trees can be seen here at all, if perhaps not at this moment (no more files may be opened). A /proc of
/// another container than ours has the ids of other processes.
pub(crate) fn is_visible() -> bool {
    match std::fs::read_link("/proc/self") {
        Ok(own) => own.to_str().and_then(|id| id.parse().ok()) == Some(getpid().as_raw_nonzero().get()),
        Err(e) => !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied),
    }
}

/// Whether a process descends from `root`.
pub(crate) fn is_below(process: i32, root: Pid) -> bool {
    let mut at = if is_visible() { process } else { 0 };
    while at > 1 {
        match read(at) {
            Ok(Some(stat)) if stat.parent == root.as_raw_nonzero().get() => return true,
            Ok(Some(stat)) => at = stat.parent,
            Ok(None) | Err(_) => return false,
        }
    }
    false
}

/// What came of a signal to many.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// How many got it.
    pub(crate) told: usize,
    /// Why one could not be sent it: it belongs to another user.
    pub(crate) refused: Option<Errno>,
}

/// Sends a signal to all of the tree that `choose` wants, also to those that were forked while the others were told.
/// Where the tree can't be seen, to the command itself.
pub(crate) fn signal(root: Root, signal: Signal, choose: impl Fn(&Member) -> bool) -> Told {
    let (mut seen, mut result) = (Vec::new(), Told::default());
    // One round finds them all, unless they fork right now.
    for _ in 0..3 {
        let blindly = || {
            let group = |pid| getpgid(Some(pid)).map_or(0, |group| group.as_raw_nonzero().get());
            root.living_command().map(|pid| Member { pid, group: group(pid) }).into_iter().collect()
        };
        let mut missed: Vec<Member> =
            if is_visible() { below(root).unwrap_or_else(|_| blindly()) } else { blindly() };
        missed.retain(|member| choose(member) && !seen.contains(&member.pid));
        if missed.is_empty() {
            break;
        }
        for member in missed {
            seen.push(member.pid);
            match kill_process(member.pid, signal) {
                Ok(()) => result.told += 1,
                Err(Errno::SRCH) => {}
                Err(e) => result.refused = Some(e),
            }
        }
    }
    result
}

fn everything() -> io::Result<Vec<Stat>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            found.extend(read(pid)?);
        }
    }
    Ok(found)
}

/// `None` if there is no such process, or none that we may see (`hidepid`).
fn read(pid: i32) -> io::Result<Option<Stat>> {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse(pid, &stat)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Ok(None),
        Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(e) => Err(e),
    }
}

/// `17 (a name) S 1 17 17 …`: the name may hold anything, a parenthesis too.
fn parse(pid: i32, stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Stat { pid, state, parent: number()?, group: number()?, session: number()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_anything() {
        let stat = parse(17, "17 (a) S 1 (b)) R 16 15 14 0 -1").expect("a stat");
        assert_eq!(stat, Stat { pid: 17, state: b'R', parent: 16, group: 15, session: 14 });
        assert_eq!(parse(17, "17 (a"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn children_of_children_are_found_until_they_are_waited_for() {
        use std::process::{Command, Stdio};
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped());
        let mut child = shell.spawn().expect("a shell");
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(child.stdout.take().expect("a pipe")),
            &mut line,
        )
        .expect("a line");
        let inner = Pid::from_raw(line.trim().parse().expect("a number")).expect("a process id");
        let outer = Pid::from_child(&child);
        let found = |root| {
            let members = below(Root::at(root)).expect("/proc");
            members.iter().map(|member| member.pid).collect::<Vec<_>>()
        };
        assert_eq!(found(outer), [inner]);
        assert!(is_below(inner.as_raw_nonzero().get(), getpid()));
        assert!(!is_below(outer.as_raw_nonzero().get(), inner));
        let told = signal(Root::at(getpid()), Signal::KILL, |m| [inner, outer].contains(&m.pid));
        assert_eq!(told, Told { told: 2, refused: None });
        assert!(found(getpid()).contains(&outer), "it was not waited for");
        child.wait().expect("it ends");
        assert!(!found(getpid()).contains(&outer));
    }
}
