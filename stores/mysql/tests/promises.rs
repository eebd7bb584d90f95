//! Bad input, readable rows, fencing.

mod common;
#[path = "../../postgres/tests/shared/promises.rs"]
mod promises;
