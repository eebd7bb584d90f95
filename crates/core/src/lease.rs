//! How long a grant lasts.

use std::time::Duration;

/// How long a grant lasts without being released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// The client keeps it for as long as the guard lives; if the client dies, it ends within this time (or sooner,
    /// where the store notices a death by other means).
    Kept(Duration),
    /// It ends by itself after this time and is never renewed.
    Fixed(Duration),
}

impl Lease {
    /// The length in either case.
    pub const fn length(self) -> Duration {
        match self {
            Lease::Kept(d) | Lease::Fixed(d) => d,
        }
    }
}
