//! The testkit's servers and its proxy, shown on real servers.

mod cluster;
mod lives;
mod proxy;
mod redis;
mod sentinel;
mod tls;
