//! Whether every published crate can be packaged.

use std::fs;
use std::path::PathBuf;

use crate::sh::{self, Cmd, Done};

/// Packages every published crate and builds it from its package. The crates depend on each other and may not be
/// on crates.io yet; packaged together, each is built against the packages of the others.
pub(crate) fn run() -> Done {
    let target = sh::target_dir().join("packaging");
    forget_earlier_packages(&target);
    Cmd::cargo()
        .args(["package", "--workspace", "--exclude", "xtask", "--exclude", "leasehold-bench"])
        .args(["--exclude", "leasehold-verify-model"])
        // So that it can be run before a commit.
        .args(["--allow-dirty", "--quiet"])
        .env("CARGO_TARGET_DIR", &target)
        .run()
}

/// Cargo believes that a package of one version never changes. Ours do until they are published, so what it unpacked and
/// built in an earlier run must go, or the crates are built against yesterday's.
fn forget_earlier_packages(target: &PathBuf) {
    let _ = fs::remove_dir_all(target);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let Some(cargo) = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home) else { return };
    for registry in fs::read_dir(cargo.join("registry/src")).into_iter().flatten().flatten() {
        // The registry that `cargo package` makes for itself has no host, so its name begins with the hash.
        if !registry.file_name().to_string_lossy().starts_with('-') {
            continue;
        }
        for package in fs::read_dir(registry.path()).into_iter().flatten().flatten() {
            if package.file_name().to_string_lossy().starts_with("leasehold") {
                let _ = fs::remove_dir_all(package.path());
            }
        }
    }
}
