//! The guard: a small process between `leasehold run` and its command, which ends the command if the runner can't.
//!
//! ```text
//! shell ─ leasehold run (the runner: holds the lock) ─ lh-guard ─ the command ─ …
//! ```
//!
//! It is forked before the runner does anything else, starts the command when it is told to, and waits for its end and that of all it
//! starts ([`crate::tree`]). Beyond that it acts only
//!
//! - when the runner is dead: it kills the whole tree;
//! - when the time is over until which the runner has said that the lock is good, because the runner was stopped (SIGSTOP) or
//!   hangs: SIGTERM first, SIGKILL in time.
//!
//! So that it is there when it is needed it has a name of its own (`killall leasehold` ends the runner only), a group of its own once
//! the command runs (what is sent to a whole job passes it by) and blocks every signal but SIGKILL and SIGSTOP. If it is killed itself, the kernel
//! kills the command, and the rest of the tree falls to the runner.
//!
//! Where the store can lend its session (`file:`), the guard has it open: the lock then stays taken until the guard has seen the tree's
//! end, so the next holder never meets what is left of this one.
//!
//! - [`messages`]: what runner and guard tell each other.
//! - [`serve`]: the guard's side.

mod messages;
mod serve;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::args::Format;
use crate::child::Environment;
use crate::signals;
use crate::sys;

use messages::Order;
pub(crate) use messages::{Deadlines, Report};

/// What the guard has to know before it is told anything.
pub(crate) struct Job<'a> {
    pub(crate) command: &'a [std::ffi::OsString],
    pub(crate) format: Format,
    /// Whether nothing is said but what is wrong.
    pub(crate) quiet: bool,
}

/// The runner's side, while there is no command yet.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) id: Pid,
    socket: OwnedFd,
    start: Rc<Cell<Option<Start>>>,
}

/// What is known of the moment in which the command was started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    command: Pid,
    missed: u32,
}

impl Start {
    /// Whether a key of the terminal that was pressed around the start is to be passed on to the command. Yes if it
    /// came before, and if the command has no handler for it: had it heard, it would not be alive, and else it does no
    /// harm. A command that has one by now ran for long enough to have heard.
    pub(crate) fn was_before(&self, signal: Signal) -> bool {
        signals::is_in(signal, self.missed.into()) || !signals::is_handled_by(self.command, signal)
    }
}

impl Guard {
    /// Starts it. Must be called while this process has one thread.
    pub(crate) fn fork(job: &Job<'_>) -> io::Result<Guard> {
        // Messages with borders of their own, and an end that is noticed.
        let kind = if cfg!(target_os = "linux") { SocketType::SEQPACKET } else { SocketType::DGRAM };
        let (ours, its) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        become_reaper();
        match sys::fork()? {
            Some(id) => Ok(Guard { id, socket: ours, start: Rc::default() }),
            None => {
                drop(ours);
                serve::serve(job, &its)
            }
        }
    }

    /// Will tell of the start, once there was one.
    pub(crate) fn start(&self) -> Rc<Cell<Option<Start>>> {
        self.start.clone()
    }

    /// Has the command started, in this group or, with `None`, in one of its own; returns its process id.
    pub(crate) fn spawn(
        self,
        env: &Environment,
        group: Option<Pid>,
        lifeline: Option<OwnedFd>,
    ) -> Result<(Link, Pid), NotStarted> {
        for (key, value) in &env.set {
            messages::send(&self.socket, &Order::Set(key.clone(), value.clone()), None)?;
        }
        let lifeline = lifeline.as_ref().map(AsFd::as_fd);
        messages::send(&self.socket, &Order::Spawn { group }, lifeline)?;
        let mut before = 0;
        let command = loop {
            match messages::receive::<Report>(&self.socket)? {
                Some((Report::Starting { missed }, _)) => before = missed,
                Some((Report::Started(command), _)) => break command,
                Some((Report::NotStarted(code), _)) => {
                    return Err(NotStarted::Command(io::Error::from_raw_os_error(code)));
                }
                _ => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
            }
        };
        self.start.set(Some(Start { command, missed: before }));
        let socket = std::os::unix::net::UnixStream::from(self.socket);
        socket.set_nonblocking(true)?;
        Ok((Link { socket: UnixStream::from_std(socket)?, told: Deadlines::default() }, command))
    }
}

/// Why there is no command.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// It could not be started.
    Command(io::Error),
    /// The guard that should have started it does not answer: it was killed.
    Guard(io::Error),
}

impl From<io::Error> for NotStarted {
    fn from(e: io::Error) -> Self {
        NotStarted::Guard(e)
    }
}

/// The runner's side, while the command runs.
#[derive(Debug)]
pub(crate) struct Link {
    socket: UnixStream,
    told: Deadlines,
}

impl Link {
    /// What the guard has to say next; `None` if it is dead. Cancel-safe.
    pub(crate) async fn next(&self) -> Option<Report> {
        let receive = || messages::receive(&self.socket);
        match self.socket.async_io(Interest::READABLE, receive).await {
            Ok(report) => report.map(|(report, _)| report),
            Err(_) => None,
        }
    }

    /// Tells the guard when to act if it hears nothing else until then.
    pub(crate) fn tell(&mut self, deadlines: Deadlines) {
        if deadlines.differ_from(self.told) {
            // A guard that is dead is noticed elsewhere; one that is stopped has room for thousands of these.
            if messages::send(&self.socket, &Order::Watch(deadlines), None).is_ok() {
                self.told = deadlines;
            }
        }
    }
}

/// Orphans of the command become our children instead of init's.
fn become_reaper() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}
