//! Where servers keep their files: a folder of this process that is gone when the process is.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

/// Waits for the end of its input, which is the end of the process that holds the other end of the pipe, and cleans up. A
/// server may write one last time before it is killed, so the folder may not be empty at first.
const CARETAKER: &str =
    r#"read -r _; for _ in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$0" && exit; sleep 0.1; done 2>/dev/null"#;

struct Home {
    path: PathBuf,
    _caretaker: Child,
}

static HOME: LazyLock<Home> = LazyLock::new(|| {
    let home = tempfile::Builder::new().prefix("leasehold-servers-").tempdir().expect("a temporary folder");
    let caretaker = Command::new("sh")
        .args(["-c", CARETAKER])
        .arg(home.path())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C in a terminal, or whoever kills the group of the tests, must not reach it.
        .process_group(0)
        .spawn()
        .expect("`sh`");
    // Statics are never dropped, so the pipe stays open as long as the process lives.
    Home { path: home.keep(), _caretaker: caretaker }
});

/// A fresh folder. It goes when it is dropped, and at the latest with this process, also if it is killed.
pub(crate) fn fresh(name: &str) -> TempDir {
    tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(home()).expect("a temporary folder")
}

/// The folder of all servers of this process.
pub fn home() -> &'static Path {
    &HOME.path
}
