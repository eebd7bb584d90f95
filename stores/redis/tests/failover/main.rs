//! What becomes of locks when another server takes over: sentinels and clusters, under load.

#[path = "../common/mod.rs"]
mod common;

mod cluster;
mod load;
mod migration;
mod pool;
mod sentinel;

/// A runtime whose work goes on while this thread waits for servers.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
