//! The command as a process group: started, told, stopped, and known to be gone.
//!
//! There is one reaper, [`Group::reap`], called on SIGCHLD. On Linux this process is the subreaper of all that the command
//! starts, so an orphan of the group becomes our child, its end is a SIGCHLD, and "the whole group is gone" is exact. Where
//! that does not exist, and for a member whose own parent has left the group, [`Group::is_gone`] is asked again after a
//! short pause.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, wait};

use crate::exit::{Exit, Failure};
use crate::sys;
use crate::terminal::Terminal;

/// A command and everything that it starts and that stays in its process group.
#[derive(Debug)]
pub(crate) struct Group {
    /// The id of the command and of its group.
    pub(crate) id: Pid,
    /// How the command itself ended, once it did.
    pub(crate) ended: Option<Ended>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(u8),
    Signalled(i32),
}

impl Ended {
    pub(crate) fn exit(self) -> Exit {
        match self {
            Ended::Exited(code) => Exit(code),
            Ended::Signalled(signal) => Exit::of_signal(signal),
        }
    }
}

impl Group {
    /// Starts the command in a process group of its own, in the foreground of this terminal if that is ours to give. Must be
    /// called on the main thread, see [`sys::die_with_parent`].
    pub(crate) fn spawn(
        command: &[OsString],
        env: &Environment,
        terminal: Option<&mut Terminal>,
    ) -> Result<Self, Failure> {
        become_reaper();
        let (program, args) = command.split_first().expect("clap requires a command");
        let mut prepared = Command::new(program);
        prepared.args(args).process_group(0);
        for key in &env.remove {
            prepared.env_remove(key);
        }
        prepared.envs(env.set.iter().map(|(key, value)| (key, value)));
        sys::die_with_parent(&mut prepared);
        if let Some(terminal) = terminal.filter(|terminal| terminal.is_for_the_command()) {
            terminal.hand_to_next(&mut prepared);
        }
        let child = prepared.spawn().map_err(|e| not_started(program, &e))?;
        Ok(Group { id: id_of(&child), ended: None })
    }

    /// Sends a signal to every process of the group. That it is gone already is no error.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match kill_process_group(self.id, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Collects every child that ended, orphans that came to us included. Tells if the command itself was stopped
    /// (Ctrl-Z, or reading from a terminal that is not its own), and by which signal.
    pub(crate) fn reap(&mut self) -> Option<Signal> {
        let mut stopped = None;
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.id => {
                    if let Some(signal) = status.stopping_signal() {
                        stopped = Signal::from_named_raw(signal);
                    } else if let Some(signal) = status.terminating_signal() {
                        self.ended = Some(Ended::Signalled(signal));
                    } else if let Some(code) = status.exit_status() {
                        self.ended = Some(Ended::Exited(code as u8));
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return stopped,
            }
        }
    }

    /// Whether the command ended and no process is left in its group.
    pub(crate) fn is_gone(&self) -> bool {
        self.ended.is_some() && test_kill_process_group(self.id) == Err(Errno::SRCH)
    }
}

/// What the command finds in its environment beside what we found in ours.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    pub(crate) set: Vec<(String, String)>,
    pub(crate) remove: Vec<OsString>,
}

fn id_of(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).expect("a process id is not 0")
}

/// Orphans of the command become our children instead of init's.
fn become_reaper() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

fn not_started(program: &OsString, e: &io::Error) -> Failure {
    let program = program.display();
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
