//! Which processes a command consists of: all that descend from it, as far as they stayed in its session.
//!
//! A process group is too small a net: `timeout`, and shells with job control, put what they start into groups of their own. It can
//! also be too large: on a terminal the command shares the group of the shell's job with the rest of a pipeline. Descent is
//! exact, because the runner and its guard are subreapers: an orphan becomes a child of theirs, and stays in the tree.
//! What calls `setsid` is a daemon, and on its own.
//!
//! Read from /proc. Where there is none (not on Linux) the tree is empty, and the process group has to do.

use std::collections::HashMap;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getsid, kill_process};

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

/// The root of a tree, and the session in which a process has to be to belong to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root {
    pub(crate) pid: Pid,
    session: i32,
}

impl Root {
    /// Below this process, in our own session as it is now.
    pub(crate) fn at(pid: Pid) -> Self {
        Root { pid, session: getsid(None).map_or(0, |session| session.as_raw_nonzero().get()) }
    }
}

/// All living processes of the tree, without the root itself, and those children of the root that it has not waited for yet.
pub(crate) fn below(root: Root) -> Vec<Member> {
    let mut children: HashMap<i32, Vec<Stat>> = HashMap::new();
    for stat in everything() {
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
            let counts = !done && stat.session == root.session;
            if let Some(pid) = Pid::from_raw(stat.pid).filter(|_| counts) {
                found.push(Member { pid, group: stat.group });
            }
        }
    }
    found
}

/// Whether trees can be seen here at all.
pub(crate) fn is_visible() -> bool {
    read(getpid().as_raw_nonzero().get()).is_some()
}

/// Whether a process descends from `root`.
pub(crate) fn is_below(process: i32, root: Pid) -> bool {
    let mut at = process;
    while at > 1 {
        match read(at) {
            Some(stat) if stat.parent == root.as_raw_nonzero().get() => return true,
            Some(stat) => at = stat.parent,
            None => return false,
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
pub(crate) fn signal(root: Root, signal: Signal, choose: impl Fn(&Member) -> bool) -> Told {
    let (mut seen, mut result) = (Vec::new(), Told::default());
    // One round finds them all, unless they fork right now.
    for _ in 0..3 {
        let mut missed: Vec<Member> = below(root);
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

fn everything() -> Vec<Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn read(pid: i32) -> Option<Stat> {
    parse(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
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
        let found = |root| below(Root::at(root)).iter().map(|member| member.pid).collect::<Vec<_>>();
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
