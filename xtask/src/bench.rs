//! Benchmarks, in release.

use crate::sh::{Cmd, Done};
use crate::tools;

/// The stores that need no server, against what a user would write without Leasehold.
pub(crate) fn embedded(args: &[&str]) -> Done {
    tools::ensure(tools::FOR_BENCHES)?;
    // The bench starts the `leasehold` program too, which it finds beside itself.
    Cmd::cargo().args(["build", "--release", "-p", "leasehold-cli", "-p", "leasehold-bench"]).run()?;
    Cmd::cargo()
        .args(["run", "--quiet", "--release", "-p", "leasehold-bench", "--", "embedded"])
        .args(args)
        .run()
}
