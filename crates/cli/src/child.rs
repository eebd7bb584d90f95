//! The command and all that it starts: started, told, stopped, and known to be gone.
//!
//! Its parent is the guard ([`crate::guard`]), which tells how it ended and when everything is gone. Signals are sent from here.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, kill_process_group, test_kill_process_group, wait,
};

use crate::exit::{Exit, Failure};
use crate::guard::{Deadlines, Guard, Link, NotStarted, Report};
use crate::sys::{self, Mask};
use crate::terminal;
use crate::tree::{self, Member, Root, Told};

/// A command and everything that it starts and that stays in its session, or in the one that the command itself makes.
#[derive(Debug)]
pub(crate) struct Group {
    /// The command itself.
    id: Pid,
    guard: Pid,
    link: Link,
    /// Whether the command shares our process group, the job of a shell on a terminal. Else it has one of its own.
    pub(crate) in_our_job: bool,
    /// How the command itself ended, once it did.
    pub(crate) ended: Option<Ended>,
    /// Whether all of it is gone.
    gone: bool,
    /// The guard was killed; its part is ours.
    pub(crate) unguarded: bool,
    /// The guard stops the command, as we did not in time.
    pub(crate) stopped_by_guard: bool,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(u8),
    Signalled(i32),
}

impl Ended {
    pub(crate) fn of(status: WaitStatus) -> Option<Self> {
        match status.terminating_signal() {
            Some(signal) => Some(Ended::Signalled(signal)),
            None => status.exit_status().map(|code| Ended::Exited(code as u8)),
        }
    }

    pub(crate) fn exit(self) -> Exit {
        match self {
            Ended::Exited(code) => Exit(code),
            Ended::Signalled(signal) => Exit::of_signal(signal),
        }
    }
}

impl Group {
    /// Starts the command: on a terminal in our own process group, so that the shell's job control and the terminal's keys mean it as
    /// well, else in one of its own.
    pub(crate) fn spawn(
        guard: Guard,
        program: &OsStr,
        env: &Environment,
        lifeline: Option<OwnedFd>,
    ) -> Result<Self, Failure> {
        let in_our_job = terminal::exists();
        let id = guard.id;
        let (link, command) =
            guard.spawn(env, in_our_job.then(getpgrp), lifeline).map_err(|e| not_started(program, &e))?;
        Ok(Group {
            id: command,
            guard: id,
            link,
            in_our_job,
            ended: None,
            gone: false,
            unguarded: false,
            stopped_by_guard: false,
        })
    }

    /// Sends a signal to the command and what is in its process group, but not to us. That it is gone already is no error.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let root = self.root(getpid());
        if self.in_our_job {
            let group = getpgrp().as_raw_nonzero().get();
            let command = root.living_command();
            let wanted = |member: &Member| member.group == group || Some(member.pid) == command;
            return match tree::signal(root, signal, wanted) {
                Told { told: 0, refused: Some(e) } => Err(e.into()),
                _ => Ok(()),
            };
        }
        match signal_group(root, self.id, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// All of the command that is below this process.
    fn root(&self, pid: Pid) -> Root {
        let mut root = Root::at(pid).of(self.id);
        if self.ended.is_some() {
            root.reaped();
        }
        root
    }

    /// Sends a signal to everything, whatever its group.
    pub(crate) fn signal_all(&self, signal: Signal) -> io::Result<()> {
        let group = (!self.in_our_job).then_some(self.id);
        let root = if self.unguarded { getpid() } else { self.guard };
        signal_all(self.root(root), group, signal)
    }

    /// Whether this process is one of those that the command consists of.
    pub(crate) fn contains(&self, process: i32) -> bool {
        tree::is_below(process, self.guard)
    }

    /// Returns when something has happened: the command has ended, all is gone, or the guard is dead. Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        if self.unguarded {
            return std::future::pending().await;
        }
        match self.link.next().await {
            Some(Report::Ended(ended)) => self.ended = Some(ended),
            Some(Report::Gone) => self.gone = true,
            Some(Report::Stopping) => self.stopped_by_guard = true,
            Some(_) => {}
            None => self.unguarded = true,
        }
    }

    /// Tells the guard when to act if it hears nothing else until then.
    pub(crate) fn tell_guard(&mut self, deadlines: Deadlines) {
        if !self.unguarded {
            self.link.tell(deadlines);
        }
    }

    /// Looks for what is left by ourselves, if the guard can't: it was killed, or stopped.
    pub(crate) fn look(&mut self) {
        if self.unguarded {
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                if pid == self.id {
                    self.ended = Ended::of(status);
                }
            }
        }
        let group = (!self.in_our_job).then_some(self.id);
        self.gone |= nothing_left(self.root(getpid()), group, |member| member.pid != self.guard);
    }

    /// The ids of what is left.
    pub(crate) fn left(&self) -> Vec<i32> {
        let members = tree::below(self.root(self.guard)).unwrap_or_default();
        members.iter().map(|member| member.pid.as_raw_nonzero().get()).collect()
    }

    /// Whether the command ended and nothing that it started is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }
}

/// What the command finds in its environment beside what we found in ours.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    pub(crate) set: Vec<(String, String)>,
}

impl Environment {
    /// What an outer run has set for its own command is not true of this one.
    fn stale(key: &OsStr) -> bool {
        let key = key.as_encoded_bytes();
        [&b"LEASEHOLD_NAME"[..], b"LEASEHOLD_TOKEN", b"LEASEHOLD_DEADLINE"]
            .iter()
            .any(|prefix| key.starts_with(prefix))
    }
}

/// Starts the command as a child of this process, the guard.
pub(crate) fn spawn(
    command: &[OsString],
    env: &Environment,
    group: Option<Pid>,
    mask: Mask,
) -> io::Result<Pid> {
    let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut prepared = Command::new(program);
    prepared.args(args).process_group(group.map_or(0, |group| group.as_raw_nonzero().get()));
    for (key, _) in std::env::vars_os().filter(|(key, _)| Environment::stale(key)) {
        prepared.env_remove(key);
    }
    prepared.envs(env.set.iter().map(|(key, value)| (key, value)));
    sys::die_with_parent(&mut prepared);
    sys::start_with_mask(&mut prepared, mask);
    Ok(Pid::from_child(&prepared.spawn()?))
}

/// Sends a signal to everything below `root`, and to this group. An error if none of it may be sent a signal, as all of it belongs to
/// another user.
pub(crate) fn signal_all(root: Root, group: Option<Pid>, signal: Signal) -> io::Result<()> {
    let group_told = group.map_or(Err(Errno::SRCH), |group| signal_group(root, group, signal));
    let in_group = |member: &Member| group.is_some_and(|of| of.as_raw_nonzero().get() == member.group);
    let others = tree::signal(root, signal, |member| !in_group(member));
    match (group_told, others) {
        (Ok(()), _) | (_, Told { told: 1.., .. }) => Ok(()),
        (_, Told { refused: Some(e), .. }) => Err(e.into()),
        (Err(Errno::SRCH), _) => Ok(()),
        (Err(e), _) => Err(e.into()),
    }
}

/// Sends a signal to the group of the command. When the command was waited for and none of the group is left, its id
/// may be another one's.
fn signal_group(root: Root, group: Pid, signal: Signal) -> Result<(), Errno> {
    let in_group = |member: &Member| member.group == group.as_raw_nonzero().get();
    let is_left =
        || !tree::is_visible() || tree::below(root).map_or(true, |members| members.iter().any(in_group));
    if root.living_command().is_some() || is_left() {
        kill_process_group(group, signal)
    } else {
        Err(Errno::SRCH)
    }
}

/// Whether nothing that counts lives below `root` any more, or, where trees can't be seen, in this group. What can't be
/// seen at the moment (no more files may be opened) is not gone.
pub(crate) fn nothing_left(root: Root, group: Option<Pid>, counts: impl Fn(&Member) -> bool) -> bool {
    if tree::is_visible() {
        tree::below(root).is_ok_and(|members| !members.iter().any(counts))
    } else {
        group.is_none_or(|group| test_kill_process_group(group) == Err(Errno::SRCH))
    }
}

fn not_started(program: &OsStr, why: &NotStarted) -> Failure {
    let program = program.display();
    let e = match why {
        NotStarted::Command(e) => e,
        NotStarted::Guard(e) => {
            let what = format!("{program} was not started: its guard process was killed ({e})");
            return Failure::new(Exit::UNAVAILABLE, "system", what);
        }
    };
    match e.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(Exit::NOT_FOUND, "command not found", format!("there is no command {program}"))
                .advice("check its name and PATH; for shell syntax run sh -c '…'")
        }
        _ => Failure::new(
            Exit::NOT_EXECUTABLE,
            "not executable",
            format!("{program} could not be started: {e}"),
        )
        .advice("check that it is a program and that you may run it"),
    }
}
