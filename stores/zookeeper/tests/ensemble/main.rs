//! What becomes of locks when servers of an ensemble die, stand still, are cut off and come back; and how many trips
//! a lock costs.

#[path = "../common/mod.rs"]
mod common;

mod load;
mod members;
mod outages;
mod partitions;
mod trips;

/// A runtime whose work goes on while this thread waits for servers.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
