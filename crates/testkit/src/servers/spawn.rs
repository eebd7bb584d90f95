//! Starting programs that die with this process, whatever it dies of.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{LazyLock, mpsc};
use std::thread;

/// Asks the kernel for SIGKILL when the parent is gone (a stopped program dies of it too), then makes sure that the parent
/// was still there when it asked, then becomes the program, under the same process id.
const WITH_PARENT: [&str; 5] =
    ["--pdeathsig", "KILL", "sh", "-c", r#"[ "$PPID" = "$0" ] || exit 1; exec "$@""#];

/// A program and its arguments, and a caller who waits for the child.
struct Job {
    command: Command,
    done: mpsc::Sender<io::Result<Child>>,
}

/// The kernel counts the *thread* that started a program as its parent, and the thread of a test ends with the test. This
/// one ends with the process.
static SPAWNER: LazyLock<mpsc::Sender<Job>> = LazyLock::new(|| {
    let (jobs, inbox) = mpsc::channel::<Job>();
    let work = move || {
        for mut job in inbox {
            let _ = job.done.send(job.command.spawn());
        }
    };
    thread::Builder::new().name("server-spawner".into()).spawn(work).expect("a thread");
    jobs
});

/// Starts a program that is killed when this process ends. `prepare` sets its streams and folder.
///
/// Only Linux has such a promise. Elsewhere a program outlives a test process that is killed.
pub(crate) fn spawn(
    program: &Path,
    args: &[OsString],
    prepare: impl FnOnce(&mut Command),
) -> io::Result<Child> {
    let mut command = if cfg!(target_os = "linux") {
        let mut command = Command::new(find("setpriv", "util-linux"));
        command.args(WITH_PARENT).arg(std::process::id().to_string()).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.args(args);
    prepare(&mut command);
    let (done, answer) = mpsc::channel();
    SPAWNER.send(Job { command, done }).expect("the thread that spawns");
    answer.recv().expect("an answer of the thread that spawns")
}

/// Where a program is, by `PATH`. If it is missing, the test fails and says what to install: a skipped test shows nothing.
pub(crate) fn find(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("`{program}` is not installed. Please run: apt-get install {package}"))
}
