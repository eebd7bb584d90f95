//! The few things that the operating system offers only through `unsafe`, each with its reason. Everything else in
//! this program is safe code.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, kill_process};

/// Makes the kernel kill the command (SIGKILL) when the thread that spawns it dies, so that a killed `leasehold run` does
/// not leave it running without the lock. Linux only; elsewhere [`crate::guard`] alone does this.
///
/// The signal is bound to the spawning *thread*: spawn from the main thread.
pub(crate) fn die_with_parent(command: &mut Command) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let parent = rustix::process::getpid();
        let in_child = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the line above.
            if rustix::process::getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::ErrorKind::Interrupted.into())
            }
        };
        // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes two plain system calls
        // (prctl, getppid), allocates nothing and takes no lock. There is no safe way to set this for a child. The io::Error of
        // the unlikely case is a plain number, too.
        unsafe { command.pre_exec(in_child) };
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = command;
}

/// Makes the command's process group the foreground job of this terminal before the command starts: later, it could have read
/// a key or been missed by a Ctrl-C already. The terminal must stay open until the command is spawned.
pub(crate) fn start_in_foreground(command: &mut Command, terminal: BorrowedFd<'_>) {
    let terminal = terminal.as_raw_fd();
    let in_child = move || {
        // SAFETY: the caller keeps the terminal open while it spawns, and the child has a copy of its descriptor.
        let terminal = unsafe { BorrowedFd::borrow_raw(terminal) };
        // That the terminal refuses is no reason not to run the command.
        let _ = ignoring(Signal::TTOU, || rustix::termios::tcsetpgrp(terminal, rustix::process::getpgrp()));
        Ok(())
    };
    // SAFETY: as in `die_with_parent`: plain system calls (sigaction, ioctl), no allocation, no lock.
    unsafe { command.pre_exec(in_child) };
}

/// Runs `action` while this signal is ignored.
pub(crate) fn ignoring<T>(signal: Signal, action: impl FnOnce() -> T) -> T {
    with_disposition(signal, libc::SIG_IGN, action)
}

/// Runs `action` while this signal has its default effect.
pub(crate) fn with_default<T>(signal: Signal, action: impl FnOnce() -> T) -> T {
    with_disposition(signal, libc::SIG_DFL, action)
}

fn with_disposition<T>(signal: Signal, disposition: libc::sighandler_t, action: impl FnOnce() -> T) -> T {
    // SAFETY: a `sigaction` of zeros is a valid one (no flags, an empty mask). The disposition is SIG_IGN or SIG_DFL, which
    // runs no code of ours, and what was there before, tokio's handler perhaps, is put back as it was.
    unsafe {
        let mut meanwhile: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        meanwhile.sa_sigaction = disposition;
        libc::sigaction(signal.as_raw(), &meanwhile, &mut before);
        let result = action();
        libc::sigaction(signal.as_raw(), &before, std::ptr::null_mut());
        result
    }
}

/// Ends this process by this signal. A shell that runs a script asks *how* its child ended: only if it was the
/// terminal's SIGINT that ended it does Ctrl-C end the script's loop as well. The shell reports 128+n.
pub(crate) fn die_of(signal: Signal) {
    // SAFETY: SIG_DFL installs no code of ours; the handler that it replaces is not needed any more.
    unsafe { libc::signal(signal.as_raw(), libc::SIG_DFL) };
    let _ = kill_process(rustix::process::getpid(), signal);
}
