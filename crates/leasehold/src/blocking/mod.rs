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
//! The work is done on the background thread of the process, which all clients share. Calling these functions on a
//! thread of an async runtime (in a task, or in tokio's `spawn_blocking`) is refused with an error: use the async API
//! there, or a thread from [`std::thread::spawn`]. Dropping a guard waits for its release for up to a second, which all
//! guards and the exit of the process share.
//!
//! # Layout
//!
//! - `runtime`: how a thread waits for the async client.
//! - `client`: [`Client`] and its streams as iterators.
//! - `guards`: [`Guard`], [`WriteGuard`], [`MultiGuard`], [`Leadership`], [`DowngradeError`].
//! - `recipes`: [`Mutex`], [`RwLock`], [`Semaphore`], [`Multi`], [`Striped`], [`Leader`].

mod client;
mod guards;
mod recipes;
mod runtime;

pub use client::{Client, Listing, Observe, Watch, connect, connect_with};
pub use guards::{DowngradeError, Guard, Leadership, MultiGuard, WriteGuard};
pub use recipes::{Leader, Multi, Mutex, RwLock, Semaphore, Striped};
