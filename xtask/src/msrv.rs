//! The oldest Rust that `Cargo.toml` promises.

use std::fs;
use std::time::Duration;

use crate::sh::{self, Cmd, Done};

/// Builds every crate with the oldest promised Rust.
pub(crate) fn run() -> Done {
    let manifest =
        fs::read_to_string(sh::root().join("Cargo.toml")).map_err(|e| format!("Cargo.toml: {e}"))?;
    let promised = promised(&manifest).ok_or("Cargo.toml has no rust-version")?;
    let toolchain = toolchain(&promised)?;
    Cmd::new("rustup")
        .args(["run", &toolchain, "cargo", "check", "--workspace", "--locked"])
        // Another compiler would throw away what the usual one built.
        .env("CARGO_TARGET_DIR", sh::target_dir().join("msrv"))
        // Set by the cargo that runs us, and meant for its own toolchain.
        .without_env("RUSTUP_TOOLCHAIN")
        .without_env("CARGO")
        .without_env("RUSTC")
        .run()
}

/// The `rust-version` of the workspace, with all three numbers: `1.88` → `1.88.0`.
fn promised(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version"))?;
    let version = line.split('"').nth(1)?;
    Some(if version.split('.').count() == 2 { format!("{version}.0") } else { version.to_owned() })
}

/// The installed toolchain of that version; installs it if it is missing.
fn toolchain(version: &str) -> Done<String> {
    let soon = Duration::from_secs(60);
    let installed = Cmd::new("rustup").args(["toolchain", "list"]).output_within(soon).map_err(|why| {
        format!("the oldest promised Rust, {version}, can only be checked with rustup ({why}): see https://rustup.rs")
    })?;
    let found = installed.split_whitespace().find(|name| name.starts_with(&format!("{version}-")));
    if let Some(found) = found {
        return Ok(found.to_owned());
    }
    Cmd::new("rustup")
        .args(["toolchain", "install", version, "--profile", "minimal", "--no-self-update"])
        .run()?;
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_promised_version_is_read_from_the_manifest() {
        let manifest = "[workspace.package]\nedition = \"2024\"\nrust-version = \"1.88\"\n";
        assert_eq!(promised(manifest).as_deref(), Some("1.88.0"));
        assert_eq!(promised("rust-version = \"1.90.1\"").as_deref(), Some("1.90.1"));
        assert_eq!(promised("[workspace]"), None);
    }
}
