//! The terminal's foreground: whose keys and signals it sends to whom.
//!
//! The command is a process group of its own. On a terminal it must be the foreground group, or it is stopped as soon as
//! it reads a key, and Ctrl-C would not reach it. So the foreground is handed to it, and taken back when it is done.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::Command;

use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use crate::sys;

/// Our controlling terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    handed_over: bool,
}

impl Terminal {
    /// Finds the terminal. `None` if there is none, as under cron.
    pub(crate) fn find() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Terminal { tty, handed_over: false })
    }

    /// Whether we are its foreground job.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(getpgrp())
    }

    /// Whether the command should have the terminal from the start. One that reads a pipe and asks the terminal for it
    /// later (a pager, a password prompt) gets it then, see [`wanted_by`](Terminal::wanted_by).
    pub(crate) fn is_for_the_command(&self) -> bool {
        io::stdin().is_terminal()
    }

    /// The command that is spawned next will be the foreground job, if that is ours to give.
    pub(crate) fn hand_to_next(&mut self, command: &mut Command) {
        if self.is_ours() {
            sys::start_in_foreground(command, self.tty.as_fd());
            self.handed_over = true;
        }
    }

    /// Makes the group the foreground job, if that is ours to give.
    pub(crate) fn hand_to(&mut self, group: Pid) {
        if self.is_ours() && tcsetpgrp(&self.tty, group).is_ok() {
            self.handed_over = true;
        }
    }

    /// The group was stopped by this signal: is that because it wants the terminal, and can it have it?
    pub(crate) fn wanted_by(&mut self, group: Pid, stopped_by: Signal) -> bool {
        if stopped_by != Signal::TTIN && stopped_by != Signal::TTOU {
            return false;
        }
        self.hand_to(group);
        tcgetpgrp(&self.tty) == Ok(group)
    }

    /// Becomes the foreground job again.
    pub(crate) fn take_back(&mut self) {
        if std::mem::take(&mut self.handed_over) {
            // One that is not in the foreground is stopped for this, unless it ignores the signal.
            let _ = sys::ignoring(Signal::TTOU, || tcsetpgrp(&self.tty, getpgrp()));
        }
    }

    /// Whether the command has the terminal.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// Ctrl-Z reached only the command, because only that was in the foreground; or it wants a terminal that another job has.
    /// Our own job (a script around us, the rest of a pipeline) stops as well, so that the user's shell comes back. Returns when
    /// the job is continued, or at once if there is no shell that could continue it.
    pub(crate) fn stop_our_job(&mut self) {
        self.take_back();
        let _ = sys::with_default(Signal::TSTP, || kill_current_process_group(Signal::TSTP));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
