//! Whether every published crate can be packaged.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sh::{self, Cmd, Done};

/// Packages every published crate, and checks what is in the packages: each against the packages of the others, as they may not be
/// on crates.io yet. What cargo itself does to verify a package is a whole build of each; this is one check of all, which finds a file
/// or a dependency that is missing just as well.
pub(crate) fn run() -> Done {
    let target = sh::target_dir().join("packaging");
    let _ = fs::remove_dir_all(&target);
    Cmd::cargo()
        .args(["package", "--workspace", "--exclude", "xtask", "--exclude", "leasehold-bench"])
        .args(["--exclude", "leasehold-verify-model", "--exclude", "leasehold-verify-snippets"])
        // Dirty, so that it can be run before a commit.
        .args(["--allow-dirty", "--quiet", "--no-verify"])
        .env("CARGO_TARGET_DIR", &target)
        .run()?;
    let unpacked = target.join("unpacked");
    let packages = unpack(&target.join("package"), &unpacked)?;
    write(&unpacked.join("Cargo.toml"), &workspace(&packages))?;
    copy(&sh::root().join("Cargo.lock"), &unpacked.join("Cargo.lock"))?;
    Cmd::cargo()
        .args(["check", "--workspace", "--quiet", "--manifest-path"])
        .args([unpacked.join("Cargo.toml")])
        // What other checks made of the dependencies is good here too.
        .env("CARGO_TARGET_DIR", sh::target_dir())
        .run()
}

/// Unpacks all packages, and tells their names with versions, as their folders are called.
fn unpack(packed: &Path, to: &Path) -> Done<Vec<String>> {
    fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    let files = fs::read_dir(packed).map_err(|e| format!("{}: {e}", packed.display()))?;
    let mut names = Vec::new();
    for file in files.filter_map(|file| Some(file.ok()?.path())) {
        let Some(name) = file.file_name().and_then(|name| name.to_str()?.strip_suffix(".crate")) else {
            continue;
        };
        Cmd::new("tar").args([PathBuf::from("-xzf"), file.clone(), "-C".into(), to.to_path_buf()]).run()?;
        names.push(name.to_owned());
    }
    names.sort();
    if names.is_empty() { Err(format!("{}: no package there", packed.display())) } else { Ok(names) }
}

/// A workspace of unpacked packages, which take each other instead of what is on crates.io.
fn workspace(packages: &[String]) -> String {
    let members: Vec<String> = packages.iter().map(|package| format!("{package:?}")).collect();
    let mut text =
        format!("[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[patch.crates-io]\n", members.join(", "));
    for package in packages {
        let name = package.rsplit_once('-').map_or(package.as_str(), |(name, _)| name);
        text += &format!("{name} = {{ path = {package:?} }}\n");
    }
    text
}

fn write(path: &Path, text: &str) -> Done {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Done {
    fs::copy(from, to).map(drop).map_err(|e| format!("{}: {e}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_take_each_other() {
        let made = workspace(&["leasehold-0.1.0".to_owned(), "leasehold-core-0.1.0".to_owned()]);
        assert!(made.contains("members = [\"leasehold-0.1.0\", \"leasehold-core-0.1.0\"]"), "{made}");
        assert!(made.contains("\nleasehold-core = { path = \"leasehold-core-0.1.0\" }\n"), "{made}");
    }
}
