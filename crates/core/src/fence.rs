//! How a guarded resource refuses a late writer.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Token;

/// The memory of a guarded resource: the highest token it has seen. It refuses every lower one.
///
/// Two duties make it work. The resource checks the token of *every* write, and a holder stamps its token on the
/// resource before it reads from it, so that a former holder's write can't slip in between its read and its write.
///
/// This one lives in memory, for a resource that one process serves. The same idea in one statement for other
/// resources is in the documentation (`docs/fencing.md`): SQL, Redis, object stores with conditional writes.
///
/// ```
/// use leasehold_core::{Fence, Token};
/// let fence = Fence::new();
/// assert!(fence.check(Token(7)).is_ok());
/// assert!(fence.check(Token(7)).is_ok()); // the same holder writes again
/// assert!(fence.check(Token(9)).is_ok());
/// assert_eq!(fence.check(Token(7)).unwrap_err().highest, Token(9)); // a paused holder's late write
/// ```
#[derive(Debug, Default)]
pub struct Fence(AtomicU64);

impl Fence {
    /// A fence that has seen nothing yet.
    pub const fn new() -> Self {
        Fence(AtomicU64::new(0))
    }

    /// A fence that goes on from a token it saw before a restart.
    pub const fn from(highest: Token) -> Self {
        Fence(AtomicU64::new(highest.0))
    }

    /// Lets the holder of `token` pass and remembers it, or refuses because a higher one was here already.
    pub fn check(&self, token: Token) -> Result<(), Stale> {
        let highest = Token(self.0.fetch_max(token.0, Ordering::SeqCst));
        if highest > token { Err(Stale { token, highest }) } else { Ok(()) }
    }

    /// The highest token seen.
    pub fn highest(&self) -> Token {
        Token(self.0.load(Ordering::SeqCst))
    }
}

/// The refusal of a [`Fence`]: somebody who got the lock later was here already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// The token that was refused.
    pub token: Token,
    /// The highest token that the fence has seen.
    pub highest: Token,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "token {} is stale: a later holder with token {} was here already",
            self.token, self.highest
        )
    }
}

impl std::error::Error for Stale {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_token_does_not_lower_the_fence() {
        let fence = Fence::from(Token(10));
        assert_eq!(fence.check(Token(3)), Err(Stale { token: Token(3), highest: Token(10) }));
        assert_eq!(fence.highest(), Token(10));
    }
}
