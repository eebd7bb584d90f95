//! The terminal: is there one, and are we in its foreground.
//!
//! On a terminal the command runs in our own process group, which is that of the shell's job: it has the foreground whenever the job has
//! it, and keys, Ctrl-C, Ctrl-Z and `fg` reach it as if it had been started directly, in a pipeline too. So the foreground is never ours
//! to hand over. Without a terminal the command gets a group of its own.

use std::fs::File;

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

/// Our controlling terminal. `None` if there is none, as under cron.
fn find() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}

/// Whether we belong to a job of a terminal.
pub(crate) fn exists() -> bool {
    find().is_some()
}

/// Whether we are the terminal's foreground job.
pub(crate) fn is_ours() -> bool {
    find().is_some_and(|tty| tcgetpgrp(&tty) == Ok(getpgrp()))
}
