//! Test programs, several at a time: most of what they do is to wait, for a server or for the end of a lease.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sh::{Cmd, Done};

/// A test program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    file: PathBuf,
    /// The folder of its package, in which it runs.
    package: PathBuf,
    /// What it was made of: `tests/conformance.rs of leasehold-redis`.
    name: String,
}

/// Builds the test programs that this `cargo test …` would run, in its order.
pub(crate) fn build(cargo: Cmd) -> Done<Vec<Program>> {
    let messages = cargo.args(["--no-run", "--message-format=json-render-diagnostics"]).output()?;
    Ok(messages.lines().filter_map(built).collect())
}

/// What a message of cargo says of a test program.
fn built(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let text = |value: &Value| value.as_str().map(PathBuf::from);
    let (file, manifest) = (text(&message["executable"])?, text(&message["manifest_path"])?);
    let package = manifest.parent()?.to_path_buf();
    let source = text(&message["target"]["src_path"])?;
    let source = source.strip_prefix(&package).unwrap_or(&source).display().to_string();
    let name = format!("{source} of {}", package.file_name()?.to_string_lossy());
    Some(Program { file, package, name })
}

/// Runs all of them, so many at a time, and prints what each has said when it has ended. One that prints nothing for as long as
/// `silence` hangs: it is killed, and the others run.
pub(crate) fn run(
    programs: &[Program],
    at_once: usize,
    silence: Duration,
    prepare: impl Fn(Cmd) -> Cmd + Sync,
    see: &mut (impl FnMut(&str) + Send),
) -> Done {
    let next = Mutex::new(programs.iter());
    let ended = Mutex::new((see, Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some(program) = next.lock().ok().and_then(|mut programs| programs.next()) else {
                        return;
                    };
                    let began = Instant::now();
                    let cmd = prepare(Cmd::new_with_all_signals(&program.file)).within(&program.package);
                    let (said, done) = cmd.run_quietly(silence);
                    let Ok(mut ended) = ended.lock() else { return };
                    tell(&program.name, began.elapsed(), &said);
                    let (see, failures) = &mut *ended;
                    String::from_utf8_lossy(&said).lines().for_each(&mut **see);
                    failures.extend(done.err().map(|why| format!("{}: {why}", program.name)));
                }
            });
        }
    });
    let failures = ended.into_inner().map_err(|_| "a test program could not be watched".to_owned())?.1;
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\nxtask: ")) }
}

fn tell(name: &str, took: Duration, said: &[u8]) {
    let mut out = std::io::stdout().lock();
    // The reader of our output may have gone away; the tests go on all the same.
    let _ = writeln!(out, "\n-- {name}, {:.1} s", took.as_secs_f64())
        .and_then(|()| out.write_all(said))
        .and_then(|()| out.flush());
}

impl Cmd {
    fn within(self, folder: &Path) -> Self {
        self.env("CARGO_MANIFEST_DIR", folder).folder(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_programs_are_run() {
        let of = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/p/redis/Cargo.toml","target":{{"src_path":"/p/redis/tests/a.rs"}},
                "profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let program = Program {
            file: "/t/a".into(),
            package: "/p/redis".into(),
            name: "tests/a.rs of redis".to_owned(),
        };
        assert_eq!(built(&of(true, r#""/t/a""#)), Some(program));
        assert_eq!(built(&of(false, r#""/t/a""#)), None);
        assert_eq!(built(&of(true, "null")), None);
        assert_eq!(built("Compiling"), None);
    }

    #[test]
    fn all_run_and_each_failure_is_told() {
        let program =
            |script: &str| Program { file: "/bin/sh".into(), package: "/".into(), name: script.to_owned() };
        let programs = ["echo a", "echo b; exit 3", "echo c"].map(program);
        let mut seen = Vec::new();
        // `sh` reads what it should do from the environment.
        let scripts = Mutex::new(["echo a", "echo b; exit 3", "echo c"].into_iter());
        let prepare = |cmd: Cmd| cmd.args(["-c", scripts.lock().unwrap().next().unwrap()]);
        let told =
            run(&programs, 1, Duration::from_secs(60), prepare, &mut |line: &str| seen.push(line.to_owned()));
        assert_eq!(seen, ["a", "b", "c"]);
        let told = told.unwrap_err();
        assert!(told.starts_with("echo b; exit 3: ") && told.lines().count() == 1, "{told}");
    }
}
