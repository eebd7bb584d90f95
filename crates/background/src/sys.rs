//! The few calls that the operating system offers only through `unsafe`, each with its reason. Everything else in this
//! crate is safe code.
#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;

/// Asks to be told of forks and of the exit. Done once a process image: a forked child inherits both.
pub(crate) fn prepare_process() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    // SAFETY: both handlers are plain functions of this program, which is never unloaded before its exit. The one for forks
    // stores atomics and closes files, which may be done in the child of a process with threads.
    let prepare =
        || match unsafe { (libc::pthread_atfork(None, None, Some(in_child)), libc::atexit(at_exit)) } {
            (0, 0) => Ok(()),
            (0, _) => Err(libc::ENOMEM),
            (code, _) => Err(code),
        };
    (*DONE.get_or_init(prepare)).map_err(io::Error::from_raw_os_error)
}

unsafe extern "C" fn in_child() {
    crate::in_forked_child();
}

extern "C" fn at_exit() {
    crate::at_exit();
}

/// Closes a file of the parent in a forked child.
pub(crate) fn close_copy(fd: i32) {
    // SAFETY: the number was registered by the owner of the file, who keeps it open while it is registered and whose copy in
    // this process is never used or dropped. `close` may be called in the child of a process with threads.
    unsafe { libc::close(fd) };
}

/// What this pointer points to, which is null or came from a `Box` that is never freed.
pub(crate) fn leaked<T>(pointer: *mut T) -> Option<&'static T> {
    // SAFETY: the only pointers that are ever passed are null and those of `Box::into_raw` in `Background::get` and
    // `fork::Slots::next`, which are never freed and never written to again.
    unsafe { pointer.as_ref() }
}

/// Leaves the signals of the process to the threads of the user, who may wait for them or count on being interrupted.
pub(crate) fn block_signals() {
    // SAFETY: `sigfillset` initialises the set, and the mask concerns only the calling thread, which has no handlers.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// Runs `check` in a forked child. `false` also if it takes longer than two seconds.
#[cfg(test)]
pub(crate) fn is_true_in_forked_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child does what users do, which is what the tests are about, and ends with `_exit` or by the alarm.
    match unsafe { libc::fork() } {
        0 => unsafe {
            libc::alarm(2);
            libc::_exit(i32::from(!check()))
        },
        child => {
            assert!(child > 0, "no fork: {}", io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status == 0
        }
    }
}

#[cfg(test)]
pub(crate) fn is_open(fd: i32) -> bool {
    // SAFETY: it only asks for the flags of a number.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}
