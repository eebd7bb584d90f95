//! The heart of Leasehold: one rule, the words around it, and the trait that a store implements.
//!
//! Nothing here does I/O, and nothing reads a clock behind the caller's back: time is an argument.
//!
//! # Layout
//!
//! - [`rule`]: the one sentence that everything rests on, as a pure function: who holds.
//! - [`queue`]: a lock as an ordered queue of entries, and every event that can happen to it.
//! - [`name`], [`id`], [`token`], [`want`], [`lease`], [`order`], [`owner`], [`label`]: the words.
//! - [`fence`]: how a guarded resource refuses a late writer.
//! - [`store`]: the [`Store`](store::Store) and [`Session`](store::Session) traits, and what goes through them.
//! - [`view`]: what people see of a lock: holders, waiters, events.
//! - [`traits`]: what a store promises, as plain data.
//! - [`clock`]: the clock that also runs while the machine sleeps.
//! - [`error`]: one error type: kind, retry advice, context, cause.
//! - [`url`]: what the URLs of all stores share.
#![forbid(unsafe_code)]

pub mod clock;
pub mod doctor;
pub mod error;
pub mod fence;
pub mod id;
pub mod label;
pub mod lease;
pub mod name;
pub mod order;
pub mod owner;
pub mod queue;
pub mod rule;
pub mod store;
pub mod token;
pub mod traits;
pub mod url;
pub mod view;
pub mod want;
pub mod watchers;

pub use clock::{Clock, Tick};
pub use error::{Error, Kind, Result, Retry};
pub use fence::{Fence, Stale};
pub use id::{EntryId, SessionId};
pub use label::Label;
pub use lease::Lease;
pub use name::{IntoName, Name};
pub use order::{Backoff, Order};
pub use owner::Owner;
pub use token::{Token, TokenBlock};
pub use traits::Traits;
pub use want::Want;
