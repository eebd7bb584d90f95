//! Bad input, readable rows, fencing.

mod common;
#[path = "shared/promises.rs"]
mod promises;
