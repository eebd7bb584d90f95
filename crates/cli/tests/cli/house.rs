//! A store in a temporary folder, and the program run against it. Everything waits for a condition with a deadline.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

/// Far longer than anything here should take, and short enough to fail while somebody looks.
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct House {
    dir: tempfile::TempDir,
}

/// What a finished program left.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    /// The exit code; a death by signal n is -n.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| -self.status.signal().unwrap_or(0))
    }

    /// Fails with everything that was said if the code is another.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self:#?}");
        self
    }

    /// Fails unless there is one line of ours on stderr (the command may have its own), and it has all of these in it.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        let ours: Vec<&str> =
            self.stderr.lines().filter(|line| line.starts_with("leasehold: error: ")).collect();
        assert_eq!(ours.len(), 1, "one line is wanted: {self:#?}");
        for word in words {
            assert!(ours[0].contains(word), "{word:?} is missing: {self:#?}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

impl House {
    pub(crate) fn new() -> Self {
        House { dir: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub(crate) fn store(&self) -> String {
        format!("file:{}", self.path("locks").display())
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap_or_default()
    }

    /// The program with these arguments, in this house: its store, and the folder as the current one.
    pub(crate) fn leasehold<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(args)
            .env("LEASEHOLD_STORE", self.store())
            .env_remove("NO_COLOR")
            .current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Done {
        self.start(args).done()
    }

    /// Starts it.
    #[track_caller]
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running(Some(self.leasehold(args).spawn().expect("the program starts")))
    }

    /// Starts a holder of the name that runs until the file `done` appears or the holder is stopped.
    #[track_caller]
    pub(crate) fn hold(&self, options: &[&str], done: &str) -> Running {
        let script = format!("echo > {done}.held; until [ -e {done} ]; do sleep 0.01; done");
        let mut args: Vec<&str> = vec!["run"];
        args.extend(options);
        args.extend(["--", "sh", "-c", &script]);
        let running = self.start(args);
        let held = format!("{done}.held");
        until("the holder runs", || self.path(&held).exists());
        running
    }

    pub(crate) fn touch(&self, file: &str) {
        fs::write(self.path(file), "").expect("a file can be written");
    }

    /// The lock as `show --format json` tells it.
    #[track_caller]
    pub(crate) fn show(&self, name: &str) -> Value {
        self.run(["--format", "json", "show", name]).expect(0).json()
    }

    #[track_caller]
    pub(crate) fn holders(&self, name: &str) -> usize {
        self.show(name)["holders"].as_array().expect("an array").len()
    }

    #[track_caller]
    pub(crate) fn waiters(&self, name: &str) -> usize {
        self.show(name)["waiters"].as_array().expect("an array").len()
    }
}

/// A program that runs. Dropping it kills it.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn of(child: Child) -> Self {
        Running(Some(child))
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().expect("it runs"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a signal can be sent");
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it runs")
    }

    #[track_caller]
    pub(crate) fn is_running(&mut self) -> bool {
        self.child().try_wait().expect("a child can be waited for").is_none()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn done(mut self) -> Done {
        let mut child = self.0.take().expect("it runs");
        let read = |from: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                if let Some(mut from) = from {
                    let _ = from.read_to_end(&mut text);
                }
                String::from_utf8_lossy(&text).into_owned()
            })
        };
        let stdout = read(child.stdout.take().map(|s| Box::new(s) as _));
        let stderr = read(child.stderr.take().map(|s| Box::new(s) as _));
        let limit = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if Instant::now() > limit {
                let _ = child.kill();
                let _ = child.wait();
                panic!("it did not end in time: {:?} {:?}", stdout.join(), stderr.join());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        Done { status, stdout: stdout.join().expect("read"), stderr: stderr.join().expect("read") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until this is so.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let limit = Instant::now() + DEADLINE;
    while !so() {
        assert!(Instant::now() < limit, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process with this id, read from a file, is alive (a zombie is not).
pub(crate) fn is_alive(pid: &str) -> bool {
    let pid: i32 = pid.trim().parse().unwrap_or_else(|_| panic!("{pid:?} is not a process id"));
    let pid = Pid::from_raw(pid).expect("a process id");
    if test_kill_process(pid).is_err() {
        return false;
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| !rest.trim_start().starts_with('Z'))
}
