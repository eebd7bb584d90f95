//! The few things that the operating system offers only through `unsafe`, each with its reason. Everything else in
//! this program is safe code.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// Makes a copy of this process. `None` in the copy. Must be called while this process has one thread.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller has one thread, so no lock can be held by a thread that the copy does not have, and the copy
    // may go on with any code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Makes the kernel kill the command (SIGKILL) when the thread that spawns it dies, so that a killed keeper does not leave it running
/// without the lock. Linux only. It is not inherited by what the command starts, and programs that run as another user (setuid)
/// lose it.
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

/// Which signals were blocked before [`block_all`].
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::sigset_t);

/// Blocks every signal that can be blocked, but for this one.
pub(crate) fn block_all_but(signal: Signal) -> Mask {
    // SAFETY: a `sigset_t` of zeros is valid storage for `sigfillset` and for the old mask; the calls touch nothing else.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigdelset(&mut all, signal.as_raw());
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        Mask(before)
    }
}

/// Starts the command with this mask instead of that of this process.
pub(crate) fn start_with_mask(command: &mut Command, mask: Mask) {
    let in_child = move || {
        // SAFETY: the mask is one that `pthread_sigmask` has filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask.0, std::ptr::null_mut()) };
        Ok(())
    };
    // SAFETY: as in `die_with_parent`: one plain system call, no allocation, no lock.
    unsafe { command.pre_exec(in_child) };
}

/// A signal that was caught, as it goes through the pipe.
pub(crate) const NOTE: usize = 8;

/// Where the handler writes. One for the process: it is never closed.
static NOTES: AtomicI32 = AtomicI32::new(-1);

/// Makes these signals write a note of [`NOTE`] bytes to `notes`, which must not block: the number of the signal, whether the kernel itself
/// sent it (the terminal), and the id of the process that did otherwise. Whoever calls this again takes the notes over.
pub(crate) fn note_signals(signals: impl IntoIterator<Item = Signal>, notes: OwnedFd) -> io::Result<()> {
    NOTES.store(notes.into_raw_fd(), Ordering::SeqCst);
    for signal in signals {
        // SAFETY: a `sigaction` of zeros is a valid one. The handler is async-signal-safe, see there.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal.as_raw(), &action, std::ptr::null_mut())
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Async-signal-safe: it loads an atomic and makes one system call, by rustix, which leaves `errno` alone (on Linux).
extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `siginfo_t`. The pid in it means something only if a process sent the signal.
    let (code, sender) = unsafe { ((*info).si_code, (*info).si_pid()) };
    let kernel = cfg!(any(target_os = "linux", target_os = "android")) && code > 0;
    let mut note = [0; NOTE];
    note[0] = signal as u8;
    note[1] = kernel.into();
    note[4..].copy_from_slice(&if kernel { 0 } else { sender }.to_ne_bytes());
    // SAFETY: the descriptor was taken over by `note_signals` and is never closed.
    let notes = unsafe { BorrowedFd::borrow_raw(NOTES.load(Ordering::SeqCst)) };
    let _ = rustix::io::write(notes, &note);
}

/// Runs `action` while this signal has its default effect.
pub(crate) fn with_default<T>(signal: Signal, action: impl FnOnce() -> T) -> T {
    // SAFETY: a `sigaction` of zeros is a valid one (no flags, an empty mask). SIG_DFL runs no code of ours, and what was there
    // before, our handler perhaps, is put back as it was.
    unsafe {
        let mut meanwhile: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        meanwhile.sa_sigaction = libc::SIG_DFL;
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
