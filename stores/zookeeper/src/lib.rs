//! The ZooKeeper store: locks for teams that want consensus behind them.
//!
//! A lock is a container node; an entry of its queue is an ephemeral sequential node in it. One request that creates and one
//! that lists travel together, so one round trip tells whether the lock is held; a waiter watches only the entry that it
//! must wait for, and if that was all there was before it, its deletion is the grant. Tokens come from the `czxid` of the
//! entry's node.
//!
//! # Layout
//!
//! - [`config`]: URLs and options.
//! - [`traits`]: what this store promises.
//! - [`store`]: [`ZooKeeper`], the store.
//! - `session`: one client's presence: what the trait asks for, and the book of its entries.
//!   `joining`, `renewing`, `leaving` and `tending` are what happens to an entry in its life.
//! - `state`: a queue as its nodes tell it: order, who holds, whom one waits for, tokens.
//! - [`path`]: from a name to a node, and back. `data`: what is written in nodes, in text that people read.
//! - `wake`: how an entry that waits, or holds, learns what concerns it: one task with its watches.
//! - `looking`: inspection, lists, revocation, requests. `watching`: events.
//! - `link`: one ZooKeeper session after the other. `nodelay`: its requests leave at once. `together`: those of
//!   many tasks in one. `trouble`: what its errors mean for locks. `reach`: why a server can't be reached.
//! - `doctor`: what the store can find out about its servers.
#![forbid(unsafe_code)]

pub mod config;
mod data;
mod doctor;
mod joining;
mod leaving;
mod link;
mod looking;
mod nodelay;
pub mod path;
mod reach;
mod renewing;
mod session;
mod state;
pub mod store;
mod tending;
mod together;
pub mod traits;
mod trouble;
mod wake;
mod watching;

pub use config::Config;
pub use store::{SCHEMES, ZooKeeper, open};
pub use traits::TRAITS;
