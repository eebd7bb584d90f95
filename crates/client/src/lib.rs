//! The client layer of Leasehold: everything between the user's code and a store, the same for all stores.
//!
//! Most programs use it through the `leasehold` crate, which adds `connect(url)` and the list of stores.
//!
//! # Layout
//!
//! A claim goes down this list once and comes back once.
//!
//! - [`recipes`]: mutex, read/write lock, semaphore, multi-lock, striped lock, leader: one file each.
//! - `claim`: what is asked, with its options; `owners`: who may re-enter.
//! - `local`: the local queue: tasks of one client share one entry at the store.
//! - `engine`: carries out what the local queues decide, brings them answers and notes; `keeper`: renews.
//! - [`Guard`]: what the user's code holds.
//! - [`Client`], [`ClientBuilder`], [`Budget`]: the presence and its options; [`Listing`], [`Watch`]: what people see.
//! - `opening`: the session at the store is begun, with patience; [`Outage`]: what is told of a store that is away.
//! - [`docs`]: the table of metrics and events.
#![forbid(unsafe_code)]

mod budget;
mod claim;
mod client;
pub mod docs;
mod engine;
mod guard;
mod keeper;
mod local;
mod opening;
mod outage;
mod owners;
pub mod recipes;
mod sync;
mod telemetry;
mod views;

pub use budget::Budget;
pub use client::{Client, ClientBuilder};
pub use guard::Guard;
pub use leasehold_core::view::{EntryView, Event, Happened, Lost, Snapshot};
pub use leasehold_core::{
    Backoff, Clock, Error, Fence, IntoName, Kind, Label, Name, Order, Owner, Result, Retry, SessionId, Stale,
    Tick, Token, Traits, Want,
};
pub use outage::Outage;
pub use owners::OwnerScope;
pub use recipes::{
    DowngradeError, Leader, Leadership, Multi, MultiGuard, Mutex, Observe, Part, RwLock, Semaphore, Striped,
    WriteGuard,
};
pub use views::{Listing, Watch};
