//! `cargo deny`: licences, sources, bans and advisories.

use std::time::Duration;

use crate::sh::{self, Cmd, Done};

/// Checks the dependencies against `deny.toml`.
pub(crate) fn run() -> Done {
    if sh::find("cargo-deny").is_none() {
        install()?;
    }
    // The advisory database is a git repository. Where its host can't be reached, the rest is still worth checking;
    // that it was left out is said, so that nobody takes silence for a pass.
    match cargo_deny(&["fetch", "db"]).output_within(Duration::from_secs(120)) {
        Ok(_) => check(&["advisories", "bans", "licenses", "sources"]),
        Err(why) => {
            check(&["bans", "licenses", "sources"])?;
            println!("advisories: NOT CHECKED, their database could not be fetched ({why})");
            Ok(())
        }
    }
}

fn check(what: &[&str]) -> Done {
    // Which crates pull in a duplicate is a long tree that hides the verdict; `cargo tree -i` shows it when wanted.
    cargo_deny(&["check", "--hide-inclusion-graph"]).args(what).run()
}

/// Optimising the checker would take longer than its few seconds of work here.
fn install() -> Done {
    println!("installing cargo-deny");
    Cmd::cargo()
        .args(["install", "--locked", "cargo-deny"])
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_TARGET_DIR", sh::target_dir().join("tools"))
        .run()
        .map_err(|e| format!("{e}; please run: cargo install --locked cargo-deny"))
}

fn cargo_deny(args: &[&str]) -> Cmd {
    Cmd::cargo().args(["deny"]).args(args)
}
