//! How commands are run and how their failure is told.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What a task returns: nothing, or a sentence that says what went wrong and what to do.
pub(crate) type Done<T = ()> = Result<T, String>;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or(xtask.clone(), PathBuf::from)
}

/// Where cargo builds, so that builds with other flags get a folder of their own below it.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Whether a program can be found. Also looks where servers are installed, which a user's `PATH` often leaves out.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// A command that runs in the root of the workspace, shown before it starts.
pub(crate) struct Cmd(Command);

impl Cmd {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.current_dir(root());
        Cmd(command)
    }

    /// The cargo that runs this program.
    pub(crate) fn cargo() -> Self {
        Self::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// The same, for tests that send signals. What was started in the background (`… &`, nohup, some CI systems) ignores
    /// Ctrl-C, and hands that on to everything it starts; `env` of coreutils can undo it.
    pub(crate) fn cargo_with_all_signals() -> Self {
        Self::new_with_all_signals(Cmd::cargo().0.get_program())
    }

    /// A test program by itself, in the same way.
    pub(crate) fn new_with_all_signals(program: impl AsRef<OsStr>) -> Self {
        let undo = "--default-signal";
        match Cmd::new("env").args([undo, "true"]).output_within(Duration::from_secs(10)) {
            Ok(_) => Cmd::new("env").arg(undo).arg(program),
            Err(_) => Cmd::new(program),
        }
    }

    /// Runs it in another folder.
    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.0.current_dir(folder);
        self
    }

    fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.0.args(args);
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(key, value);
        self
    }

    /// Forgets a variable that cargo or rustup set for this program and that must not reach the command.
    pub(crate) fn without_env(mut self, key: &str) -> Self {
        self.0.env_remove(key);
        self
    }

    /// Runs it with our standard streams.
    pub(crate) fn run(mut self) -> Done {
        let shown = self.show();
        let status = self.0.status().map_err(|e| format!("`{shown}` could not be started: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
    }

    /// Runs it, and gives its standard output.
    pub(crate) fn output(mut self) -> Done<String> {
        let shown = self.show();
        let output = self.0.stderr(Stdio::inherit()).output();
        let output = output.map_err(|e| format!("`{shown}` could not be started: {e}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("`{shown}` failed ({})", output.status)) }
    }

    /// Runs it, and gives what it said on its standard output. If there is no line for as long as `silence`, it hangs and is killed.
    pub(crate) fn run_quietly(mut self, silence: Duration) -> (Vec<u8>, Done) {
        let mut said = Vec::new();
        let done = self.collect(silence, &mut said);
        (said, done)
    }

    fn collect(&mut self, silence: Duration, said: &mut Vec<u8>) -> Done {
        let mut child = self
            .0
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("could not be started: {e}"))?;
        let lines = lines_of(child.stdout.take().expect("it is piped"));
        let hung = loop {
            match lines.recv_timeout(silence) {
                Ok(line) => said.extend(line),
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) => {
                    // It may be gone, and a process that it left behind has its output.
                    break !matches!(child.try_wait(), Ok(Some(_)));
                }
            }
        };
        if hung {
            let _ = child.kill();
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        match (hung, status.success()) {
            (true, _) => Err(format!("no line for {} s, killed", silence.as_secs())),
            (false, true) => Ok(()),
            (false, false) => Err(format!("failed ({status})")),
        }
    }

    /// Runs it, passes its standard output on line by line, and lets `see` look at each line. If there is no line for as
    /// long as `silence`, whatever it has started then hangs, and is killed: the command goes on with the rest, and has failed.
    /// If it has started nothing, it hangs itself, or is gone and somebody else has its output: then it is over.
    pub(crate) fn run_seeing(mut self, silence: Duration, mut see: impl FnMut(&str)) -> Done {
        let shown = self.show();
        let start = |e: std::io::Error| format!("`{shown}` could not be started: {e}");
        let mut child = self.0.stdout(Stdio::piped()).spawn().map_err(start)?;
        let lines = lines_of(child.stdout.take().expect("it is piped"));
        let mut hung = Vec::new();
        loop {
            match lines.recv_timeout(silence) {
                Ok(line) => {
                    // The reader of our output may have gone away; the tests go on all the same.
                    let mut out = std::io::stdout();
                    let _ = out.write_all(&line).and_then(|()| out.flush());
                    see(&String::from_utf8_lossy(&line));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let killed = kill_what_it_started(child.id());
                    if killed.is_empty() {
                        let _ = child.kill();
                        hung.push("the command itself".to_owned());
                        break;
                    }
                    eprintln!("xtask: no line for {} s, killed: {}", silence.as_secs(), killed.join(", "));
                    hung.extend(killed);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait().map_err(|e| format!("`{shown}`: {e}"))?;
        if !hung.is_empty() {
            return Err(format!("`{shown}` hung and was killed: {}", hung.join(", ")));
        }
        if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
    }

    /// Runs it in silence and gives its standard output, or its last line of standard error if it fails or takes
    /// longer than `most`.
    pub(crate) fn output_within(mut self, most: Duration) -> Done<String> {
        let quiet = self.0.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = quiet.spawn().map_err(|e| e.to_string())?;
        let began = Instant::now();
        while child.try_wait().map_err(|e| e.to_string())?.is_none() {
            if began.elapsed() > most {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} s", most.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it gave no reason");
        Err(last.trim().to_owned())
    }

    fn show(&self) -> String {
        let words = std::iter::once(self.0.get_program()).chain(self.0.get_args());
        let mut text: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        if let Some(name) = std::path::Path::new(&text[0]).file_name() {
            text[0] = name.to_string_lossy().into_owned();
        }
        let text = text.join(" ");
        eprintln!("+ {text}");
        text
    }
}

/// The lines of a stream, as they come.
fn lines_of(stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (put, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            if put.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    lines
}

/// Kills the children of a process, and gives their names. Their own children are left: a test's servers end with the test.
fn kill_what_it_started(parent: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<String> =
        children.flat_map(|ids| ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    let name = |id: &String| {
        let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
        format!("{} ({id})", String::from_utf8_lossy(program))
    };
    let names = children.iter().map(name).collect();
    if !children.is_empty() {
        let _ = Command::new("kill").arg("-KILL").args(&children).status();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_or_not() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }

    #[test]
    fn a_failing_command_is_told_with_its_words() {
        let told = Cmd::new("sh").args(["-c", "exit 3"]).run().unwrap_err();
        assert!(told.contains("sh -c exit 3") && told.contains('3'), "{told}");
    }

    #[test]
    fn lines_are_passed_on_and_seen() {
        let mut seen = String::new();
        let long = Duration::from_secs(30);
        Cmd::new("sh")
            .args(["-c", "echo one; echo two"])
            .run_seeing(long, |line| seen.push_str(line))
            .unwrap();
        assert_eq!(seen, "one\ntwo\n");
    }

    #[test]
    fn a_quiet_command_that_hangs_is_killed_and_what_it_said_is_there() {
        let cmd = |script: &str| Cmd::new("sh").args(["-c", script]);
        let (said, done) = cmd("echo one; exit 3").run_quietly(Duration::from_secs(30));
        assert!(said == b"one\n" && done.as_ref().is_err_and(|why| why.contains('3')), "{said:?}, {done:?}");
        let (said, done) = cmd("echo one; exec sleep 3600").run_quietly(Duration::from_millis(300));
        assert!(said == b"one\n" && done.as_ref().is_err_and(|why| why.contains("killed")), "{done:?}");
    }

    #[test]
    fn what_hangs_is_killed_and_named_and_the_rest_goes_on() {
        let mut seen = String::new();
        let hangs = Cmd::new("sh").args(["-c", "echo one; sleep 3600; echo two"]);
        let told = hangs.run_seeing(Duration::from_millis(300), |line| seen.push_str(line)).unwrap_err();
        assert!(told.contains("hung and was killed: sleep ("), "{told}");
        assert_eq!(seen, "one\ntwo\n");
    }

    #[test]
    fn a_command_that_hangs_itself_is_over_and_so_is_one_whose_output_somebody_else_has() {
        for script in ["echo one; exec sleep 3600", "sleep 5 & echo one"] {
            let mut seen = String::new();
            let hangs = Cmd::new("sh").args(["-c", script]);
            let told = hangs.run_seeing(Duration::from_millis(300), |line| seen.push_str(line)).unwrap_err();
            assert!(told.contains("hung and was killed: the command itself"), "{told}");
            assert_eq!(seen, "one\n");
        }
    }

    #[test]
    fn a_silent_command_gives_its_output_or_its_last_words() {
        let long = Duration::from_secs(30);
        assert_eq!(Cmd::new("echo").args(["hi"]).output_within(long).unwrap(), "hi\n");
        let told = Cmd::new("sh").args(["-c", "echo first >&2; echo last >&2; exit 1"]).output_within(long);
        assert_eq!(told.unwrap_err(), "last");
        let told = Cmd::new("sleep").args(["60"]).output_within(Duration::from_millis(50));
        assert!(told.unwrap_err().contains("no answer"));
    }
}
