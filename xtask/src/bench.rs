//! Benchmarks, in release.

use std::fs;

use crate::sh::{self, Cmd, Done};
use crate::tools;

/// The stores that need no server, against what a user would write without Leasehold.
pub(crate) fn embedded(args: &[&str]) -> Done {
    tools::ensure(tools::FOR_BENCHES)?;
    // The bench starts the `leasehold` program too, which it finds beside itself.
    Cmd::cargo().args(["build", "--release", "-p", "leasehold-cli", "-p", "leasehold-bench"]).run()?;
    bench("embedded", args)
}

/// Redis, against redis-benchmark's bare commands.
pub(crate) fn redis(args: &[&str]) -> Done {
    tools::ensure(tools::FOR_TESTS)?;
    tools::ensure(tools::FOR_REDIS_BENCH)?;
    bench("redis", args)
}

/// ZooKeeper, against bare requests of the same client crate.
pub(crate) fn zookeeper(args: &[&str]) -> Done {
    tools::ensure(tools::FOR_TESTS)?;
    bench("zookeeper", args)
}

/// MariaDB or PostgreSQL, against bare statements of the same driver.
pub(crate) fn sql(which: &str, args: &[&str]) -> Done {
    tools::ensure(tools::FOR_TESTS)?;
    bench(which, args)
}

/// The library as it is at `rev` against the one in the work tree, on the same servers. Both build the measuring program of the work
/// tree, which uses only the public API.
pub(crate) fn against(rev: &str, args: &[&str]) -> Done {
    const MEASURE: &str = "bench/src/bin/leasehold-pairs.rs";
    tools::ensure(tools::FOR_TESTS)?;
    let tree = sh::target_dir().join("against");
    let path = tree.to_string_lossy().into_owned();
    if tree.exists() {
        Cmd::new("git").args(["-C", &path, "checkout", "--quiet", "--force", "--detach", rev]).run()?;
    } else {
        Cmd::new("git").args(["worktree", "prune"]).run()?;
        Cmd::new("git").args(["worktree", "add", "--quiet", "--force", "--detach", &path, rev]).run()?;
    }
    let copy = tree.join(MEASURE);
    let copied = fs::create_dir_all(copy.parent().unwrap_or(&tree))
        .and_then(|()| fs::copy(sh::root().join(MEASURE), &copy));
    copied.map_err(|e| format!("{} can't be written: {e}", copy.display()))?;
    let build = ["build", "--release", "-p", "leasehold-bench"];
    let (manifest, target) = (format!("{path}/Cargo.toml"), format!("{path}/target"));
    let other = ["--bin", "leasehold-pairs", "--manifest-path", &manifest, "--target-dir", &target];
    // The benchmarks of another revision may not have asked for all stores.
    let stores = ["--features", "leasehold/redlock"];
    Cmd::cargo().args(build).args(other).args(stores).run()?;
    Cmd::cargo().args(build).run()?;
    let program = format!("{target}/release/leasehold-pairs");
    bench("against", &[&[program.as_str()], args].concat())
}

fn bench(which: &str, args: &[&str]) -> Done {
    let run = ["run", "--quiet", "--release", "-p", "leasehold-bench", "--bin", "leasehold-bench", "--"];
    Cmd::cargo().args(run).args([which]).args(args).run()
}
