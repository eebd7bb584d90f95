//! A process that runs out of descriptors or threads gets errors, and no panics.
#![cfg(all(feature = "file", feature = "memory"))]

use std::process::{Command, Output};

/// What the child process lacks, and the URL that it connects to.
const CHILD: &str = "LEASEHOLD_TEST_STARVED";

mod sys {
    //! The calls that need `unsafe`.
    #![allow(unsafe_code)]

    fn limit(what: libc::__rlimit_resource_t, most: u64) {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the limit outlives the call.
        assert_eq!(unsafe { libc::setrlimit(what, &limit) }, 0, "{}", std::io::Error::last_os_error());
    }

    pub(super) fn limit_descriptors(most: u64) {
        limit(libc::RLIMIT_NOFILE, most);
    }

    /// No more threads for this process. The limit does not hold for root, so it becomes another user.
    pub(super) fn forbid_threads() {
        limit(libc::RLIMIT_NPROC, 0);
        const NOBODY: u32 = 65_534;
        // SAFETY: plain system calls. That it is not allowed to change its user means that it is not root.
        unsafe {
            libc::setgid(NOBODY);
            libc::setuid(NOBODY);
        }
    }
}

/// Not a test: what the child processes of the others do. It prints what came of the connection.
#[test]
#[allow(clippy::print_stdout)] // It is how a child talks to its parent.
fn child_process() {
    let Ok(part) = std::env::var(CHILD) else { return };
    let (lacks, url) = part.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match lacks.parse::<u64>() {
        Ok(most) => sys::limit_descriptors(most),
        Err(_) => sys::forbid_threads(),
    }
    // What passes by itself is tried again; this does not.
    let options = leasehold::Client::builder().open_for(std::time::Duration::from_millis(100));
    let came = runtime.block_on(async { leasehold::connect_with(options, url).await.map(drop) });
    println!("@@{}", if came.is_ok() { "connected" } else { "an error" });
}

fn connect_with(lacks: &str, url: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["child_process", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{lacks} {url}"))
        .output()
        .unwrap()
}

#[test]
fn connecting_fails_without_a_panic_when_descriptors_run_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("file:{}", folder.path().join("locks").display());
    for url in ["memory:", &file] {
        let mut came = Vec::new();
        // Numbers that are in use stay so: only what is opened later needs a number below the limit.
        for most in 3..40 {
            let ended = connect_with(&most.to_string(), url);
            let (out, said) =
                (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
            assert!(ended.status.success() && !said.contains("panicked"), "{url}, {most}: {out}{said}");
            came.push(out.contains("@@connected"));
        }
        assert!(came.first() == Some(&false) && came.last() == Some(&true), "{url}: {came:?}");
    }
}

#[test]
fn connecting_fails_without_a_panic_when_no_thread_can_be_started() {
    let ended = connect_with("threads", "memory:");
    let (out, said) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && !said.contains("panicked"), "{out}{said}");
    assert!(out.contains("@@an error"), "{out}{said}");
}
