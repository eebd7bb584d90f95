//! The Redlock store: a lock is held by whoever a quorum of independent Redis masters has granted it to.
//!
//! No server is special, none knows of another, and any minority of them may be down, slow or empty. Every grant carries a fencing
//! token that rises whatever clocks, networks and pauses do; [`protocol`] says how, and why.
//!
//! # Layout
//!
//! - [`config`]: `redlock://` URLs and options.
//! - [`traits`]: what this store promises.
//! - [`store`]: [`Redlock`], the store, and its builder.
//! - [`protocol`]: Fenced Redlock as pure functions, with the proof.
//! - [`scripts`]: the Lua scripts (`scripts/*.lua`), put together.
//! - `node`: one node: its connection, the scripts on it, its answers.
//! - `session`: one client's presence. `state`: what it knows of its entries; `desk`: what its parts share.
//! - `attempt`, `renewing`, `leaving`: asking all nodes at once, deciding early, looking after late answers.
//! - `tending`: founding a set, quarantine and its end.
//! - [`mod@facts`]: what can be known of the nodes: whether they are independent, their clocks, who is in quarantine.
//! - [`doctor`]: what these facts mean for locks.
//! - `wake`: how sessions are told. `watching`: events. `showing`: inspect, list, revoke.
#![forbid(unsafe_code)]

#[cfg(test)]
mod against_the_protocol;
mod attempt;
pub mod config;
mod desk;
pub mod doctor;
pub mod facts;
mod leaving;
mod node;
pub mod protocol;
mod renewing;
pub mod scripts;
mod session;
mod showing;
mod state;
pub mod store;
mod tending;
pub mod traits;
mod wake;
mod watching;

pub use config::{Config, FirstUse};
pub use facts::{Facts, facts};
pub use store::{Builder, Redlock, SCHEMES, open};
pub use traits::TRAITS;
