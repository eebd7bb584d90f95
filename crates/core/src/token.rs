//! Fencing tokens.

use std::fmt;

/// The fencing token of a grant: unique and strictly rising in the order of grants of one name, on every store,
/// also after release, expiry, deletion of the key and an empty restart. Below 2^63, so it fits a SQL `BIGINT`.
///
/// Hand it to what the lock guards (see [`Fence`](crate::Fence)), so that a holder that was paused past the end of
/// its lease can do no harm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    /// The first number that is no token.
    pub const END: u64 = 1 << 63;

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

/// The tokens that one grant reserves: `[first, first + len)`. The first is the holder's own; the rest serve local
/// hand-overs inside the client that holds the lease, and what is unused is thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBlock {
    /// The first token.
    pub first: Token,
    /// How many there are, at least 1.
    pub len: u32,
}

impl TokenBlock {
    /// The last token of the block.
    pub fn last(self) -> Token {
        Token(self.first.0 + u64::from(self.len.max(1)) - 1)
    }

    /// Takes the first token off the block. `None` when the block is used up.
    pub fn take(&mut self) -> Option<Token> {
        self.len = self.len.checked_sub(1)?;
        let token = self.first;
        self.first.0 += 1;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_gives_each_token_once() {
        let mut block = TokenBlock { first: Token(7), len: 2 };
        assert_eq!(block.last(), Token(8));
        assert_eq!(block.take(), Some(Token(7)));
        assert_eq!(block.take(), Some(Token(8)));
        assert_eq!(block.take(), None);
    }
}
