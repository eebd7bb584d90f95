//! Benchmarks, in release.

use crate::sh::{Cmd, Done};
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

fn bench(which: &str, args: &[&str]) -> Done {
    Cmd::cargo().args(["run", "--quiet", "--release", "-p", "leasehold-bench", "--", which]).args(args).run()
}
