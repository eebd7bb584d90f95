//! Whether every published crate can be packaged.

use crate::sh::{Cmd, Done};

/// Packages every published crate and builds it from its package. The crates depend on each other and may not be
/// on crates.io yet; packaged together, each is built against the packages of the others.
pub(crate) fn run() -> Done {
    Cmd::cargo()
        .args(["package", "--workspace", "--exclude", "xtask", "--exclude", "leasehold-bench"])
        // So that it can be run before a commit.
        .args(["--allow-dirty", "--quiet"])
        .run()
}
