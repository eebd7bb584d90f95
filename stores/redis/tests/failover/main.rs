//! What becomes of locks when another server takes over: sentinels and clusters, under load.

#[path = "../common/mod.rs"]
mod common;

mod cluster;
mod load;
mod migration;
mod sentinel;

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use leasehold_testkit::servers::{Cluster, Sentinels};

static SENTINELS: LazyLock<Mutex<Sentinels>> = LazyLock::new(|| Mutex::new(Sentinels::start()));
static CLUSTER: LazyLock<Mutex<Cluster>> = LazyLock::new(|| Mutex::new(Cluster::start(3, 1)));

/// The sentinels and their servers, for one test at a time: a failover happens to all who are there.
fn sentinels() -> MutexGuard<'static, Sentinels> {
    let set = SENTINELS.lock().unwrap_or_else(PoisonError::into_inner);
    // A test that failed may have left somebody dead.
    for node in set.nodes().iter().filter(|node| !node.is_up()) {
        node.restart();
    }
    set.wait_until_ready();
    set
}

/// The cluster, for one test at a time.
fn cluster() -> MutexGuard<'static, Cluster> {
    let cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    for node in cluster.nodes().iter().filter(|node| !node.is_up()) {
        node.restart();
    }
    cluster.wait_until_ready();
    cluster
}

/// A runtime whose work goes on while this thread waits for servers.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
