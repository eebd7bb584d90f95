//! What the stores of Leasehold that have a server share.
//!
//! # Layout
//!
//! - [`login`]: a user and a password, which may be in a file that is replaced now and then.
//! - [`probe`]: what kind of server answers at an address, where it is not the one that was expected.
#![forbid(unsafe_code)]

pub mod login;
pub mod probe;

pub use login::{Login, Password, Secret};
pub use probe::Protocol;
