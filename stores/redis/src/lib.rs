//! The Redis store: a server, a master with replicas behind sentinels, or a cluster.
//!
//! A lock is one string key while one client holds it alone, and a few more keys while others wait. Every request is one Lua
//! script on these keys, by the server's clock: lock and unlock are one command each, and the script that releases also
//! gives the lock to the next in line and tells that session, which enters without asking.
//!
//! # Runtimes
//!
//! Locks can be taken on any runtime and on none. On a single server a Tokio runtime gets a connection of its own for it,
//! unless it is without timers or without an I/O driver. Tokio can't be asked whether it is, and panics: that is caught,
//! and the program's panic hook sees it once for each such runtime. Where panics abort (`panic = "abort"`, or a hook that
//! does it), the program ends with the first lock: there, build runtimes with `enable_all`.
//!
//! # Layout
//!
//! - [`config`]: URLs and options.
//! - [`traits`]: what this store promises.
//! - [`store`]: [`Redis`], the store.
//! - `session`: one client's presence: each call is one script. `listing` finds locks in use, `watching` tells events.
//! - `foreground`: connections on the runtimes of those who lock.
//! - `together`: requests that are ready at the same moment share a call.
//! - [`scripts`]: the Lua scripts (`scripts/*.lua`), put together.
//! - `state`: how the state of a lock is written, and how answers are read.
//! - [`keys`]: from a name to a key.
//! - `wake`: how sessions and watchers are told.
//! - [`doctor`]: what the store can find out about its servers.
//! - [`wire`]: connections: one server, sentinels, clusters, replicas.
#![forbid(unsafe_code)]

#[cfg(test)]
mod against_the_rule;
pub mod config;
pub mod doctor;
mod foreground;
pub mod keys;
mod listing;
pub mod scripts;
mod session;
mod state;
pub mod store;
mod together;
pub mod traits;
mod wake;
mod watching;
pub mod wire;

pub use config::Config;
pub use store::{Redis, SCHEMES, open};
pub use traits::TRAITS;
