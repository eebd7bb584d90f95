//! A fork without exec, with the blocking API: the child's client is dead, the parent's untouched.
#![cfg(feature = "file")]

use leasehold::blocking;

mod sys {
    //! The calls that need `unsafe`.
    #![allow(unsafe_code)]

    /// Runs `work` in a forked child and returns its answer.
    pub(super) fn in_forked_child(work: impl FnOnce() -> u8) -> u8 {
        // SAFETY: the child of a process with threads may call little. It does what users do all the same, which is what the
        // test is about, and ends with `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let answer = work();
                // SAFETY: it does not return.
                unsafe { libc::_exit(answer.into()) }
            }
            child => {
                assert!(child > 0, "no fork: {}", std::io::Error::last_os_error());
                let mut status = 0;
                // SAFETY: `status` outlives the call.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert!(libc::WIFEXITED(status), "the child did not end by itself");
                libc::WEXITSTATUS(status) as u8
            }
        }
    }
}

#[test]
fn a_forked_child_connects_anew_and_leaves_the_parent_s_lock_alone() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file:{}", folder.path().join("locks").display());
    let client = blocking::connect(&url).unwrap();
    let guard = client.mutex("x").lock().unwrap();
    let mut guard_of_child = None;
    let mut guard_of_parent = Some(guard);
    let said = sys::in_forked_child(|| {
        guard_of_child = guard_of_parent.take();
        let Some(guard) = guard_of_child.take() else { return 1 };
        if guard.is_held() || guard.remaining() != Some(std::time::Duration::ZERO) {
            return 2;
        }
        match client.mutex("y").lock() {
            Err(error) if error.to_string().contains("forked") => {}
            _ => return 3,
        }
        // Gives nothing back.
        drop(guard);
        let Ok(own) = blocking::connect(&url) else { return 4 };
        match own.mutex("x").try_lock() {
            Ok(None) => {}
            _ => return 5,
        }
        match own.mutex("y").lock().and_then(blocking::Guard::release) {
            Ok(()) => 0,
            Err(_) => 6,
        }
    });
    assert_eq!(said, 0, "the number of what went wrong in the child");
    let guard = guard_of_parent.take().expect("the parent's memory is its own");
    assert!(guard.is_held());
    assert_eq!(client.inspect("x").unwrap().holders.len(), 1);
    guard.release().unwrap();
}
