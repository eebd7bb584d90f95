//! The same words for threads: every verb blocks until it is done.
//!
//! ```
//! # fn main() -> leasehold::Result<()> {
//! let client = leasehold::blocking::connect("memory:")?;
//! let guard = client.mutex("orders/42").lock()?;
//! println!("mine, with token {}", guard.token());
//! guard.release()?;
//! client.close()
//! # }
//! ```
//!
//! The owner of a claim is the calling thread unless another is given: a thread that locks what it holds gets an error
//! instead of waiting for itself for ever, or, with `reentrant()`, the same lock once more.
//!
//! Each client brings a small runtime of its own (one thread) for its background work. Calling these functions inside an async
//! task is refused with an error: use the async API there.
//!
//! # Layout
//!
//! - `runtime`: the thread behind a blocking client.
//! - `client`: [`Client`] and its streams as iterators.
//! - `guards`: [`Guard`], [`WriteGuard`], [`MultiGuard`], [`Leadership`].
//! - `recipes`: [`Mutex`], [`RwLock`], [`Semaphore`], [`Multi`], [`Striped`], [`Leader`].

mod client;
mod guards;
mod recipes;
mod runtime;

pub use client::{Client, Listing, Observe, Watch, connect, connect_with};
pub use guards::{Guard, Leadership, MultiGuard, WriteGuard};
pub use recipes::{Leader, Multi, Mutex, RwLock, Semaphore, Striped};
