//! Faults of the server and of the network, and many clients at once.

mod common;
#[path = "shared/faults.rs"]
mod faults;
