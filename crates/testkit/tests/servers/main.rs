//! The testkit's servers and its proxy, shown on real servers.

mod cluster;
mod lives;
mod proxy;
mod redis;
mod sentinel;
mod sql;
mod tls;
mod zookeeper;
mod zookeeper_proxy;
mod zookeeper_tls;
