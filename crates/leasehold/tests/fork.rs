//! A fork without exec, with the blocking API: the child's client is dead, the parent's untouched.
#![cfg(all(feature = "file", feature = "memory"))]

use std::time::Duration;

use leasehold::{Kind, Lost, Part, Result, blocking};

mod sys {
    //! The calls that need `unsafe`.
    #![allow(unsafe_code)]

    /// Runs `work` in a forked child and returns its answer.
    pub(super) fn in_forked_child(work: impl FnOnce() -> u8) -> u8 {
        // SAFETY: the child of a process with threads may call little. It does what users do all the same, which is what the
        // test is about, and ends with `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: it only sets a timer, which ends a child that hangs.
                unsafe { libc::alarm(20) };
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

/// Nothing hangs there: a verb is refused, or says at once what is known.
#[test]
#[allow(clippy::print_stderr)] // Seen beside a failed test.
fn every_blocking_verb_ends_at_once_in_a_forked_child() {
    const MOMENT: Duration = Duration::from_millis(200);
    fn refused<T>(answer: Result<T>) -> bool {
        answer.is_err_and(|error| error.kind() == Kind::Refused && error.to_string().contains("forked"))
    }
    let client = blocking::connect("memory:").unwrap();
    let guard = client.mutex("a").lock().unwrap();
    let (writer, both) = (client.rwlock("b").write().unwrap(), [Part::mutex("c"), Part::mutex("d")]);
    let (both, leads) = (client.multi(both).lock().unwrap(), client.leader("e").campaign().unwrap());
    let (mut watch, mut observe) = (client.watch("").unwrap(), client.leader("e").observe().unwrap());
    let mut held = Some((guard, writer, both, leads));
    let said = sys::in_forked_child(|| {
        let Some((guard, writer, both, leads)) = held.take() else { return 1 };
        let gone = |lost: Result<Option<Lost>>| lost.is_ok_and(|why| why == Some(Lost::SessionGone));
        let (x, rw, some) = (client.mutex("x"), client.rwlock("x"), client.semaphore("s", 2));
        let (multi, striped) = (client.multi([Part::mutex("x"), Part::mutex("y")]), client.striped("t", 2));
        let leader = client.leader("l");
        let checks = [
            ("lost", gone(guard.lost_within(MOMENT)) && gone(both.lost_within(MOMENT))),
            ("release_requested", refused(guard.release_requested_within(MOMENT))),
            ("release_requested of a multi-lock", refused(both.release_requested_within(MOMENT))),
            ("mutex", refused(x.lock()) && refused(x.try_lock()) && refused(x.lock_within(MOMENT))),
            ("read", refused(rw.read()) && refused(rw.try_read()) && refused(rw.read_within(MOMENT))),
            ("write", refused(rw.write()) && refused(rw.try_write()) && refused(rw.write_within(MOMENT))),
            ("semaphore", refused(some.acquire(1)) && refused(some.try_acquire(1))),
            (
                "multi",
                refused(multi.lock()) && refused(multi.try_lock()) && refused(multi.lock_within(MOMENT)),
            ),
            ("striped", refused(striped.lock("k")) && refused(striped.lock_all())),
            ("leader", refused(leader.campaign()) && refused(leader.current()) && refused(leader.observe())),
            ("inspect", refused(client.inspect("a")) && refused(client.watch(""))),
            ("list", client.list("").next().is_some_and(refused)),
            ("force", refused(client.force_release("a", None)) && refused(client.request_release("a", None))),
            ("watch", watch.next_within(MOMENT).is_none() && watch.next().is_none()),
            ("observe", observe.next().is_none()),
            ("downgrade", writer.downgrade().is_err_and(|failed| refused::<()>(Err(failed.error().clone())))),
            ("release", refused(guard.release()) && refused(both.release()) && refused(leads.resign())),
            ("close", refused(client.close())),
        ];
        for (what, _) in checks.iter().filter(|(_, right)| !right) {
            eprintln!("wrong in the forked child: {what}");
        }
        u8::from(checks.iter().any(|(_, right)| !right))
    });
    assert_eq!(said, 0);
    assert!(held.is_some_and(|(guard, ..)| guard.is_held()), "the parent's locks are its own");
}
