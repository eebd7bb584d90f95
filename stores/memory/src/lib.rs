//! The memory store: the rule behind a mutex.
//!
//! For tests and single programs, and the reference that the other stores are compared with: leases end by time here,
//! as they do on a server.
//!
//! # Layout
//!
//! - [`config`]: `memory:` and `memory:NAME` URLs.
//! - [`traits`]: what this store promises.
//! - [`store`]: [`Memory`], the store.
//! - [`session`]: one client's presence.
//! - [`state`]: where queues live, and how one event is applied atomically.
//! - [`wake`]: how sessions and watchers are told.
#![forbid(unsafe_code)]

pub mod config;
pub mod session;
pub mod state;
pub mod store;
pub mod traits;
pub mod wake;

pub use config::open;
pub use store::Memory;
pub use traits::TRAITS;
