//! The connections of the Redis store, on real servers.

mod acl;
mod closing;
mod cluster;
mod common;
mod faults;
mod refusals;
mod replicas;
mod sentinel;
mod single;
#[cfg(feature = "tls")]
mod tls;
