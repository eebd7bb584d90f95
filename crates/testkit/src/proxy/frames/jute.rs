//! Where a request or an answer of ZooKeeper ends (Jute): four bytes say how long it is.

use super::{Extent, Head, NotSpoken, Side, Sort};

/// No server takes more than a megabyte by default. A four letter word, or the first bytes of TLS, would be far longer.
const LONGEST: usize = 64 << 20;

/// The number of what a server says unasked.
const NOTIFICATION: i32 = -1;

/// One side of a connection.
pub(super) struct Jute {
    side: Side,
    /// The first message of each side has no head: it makes the session.
    begun: bool,
}

impl Jute {
    pub(super) fn new(side: Side) -> Jute {
        Jute { side, begun: false }
    }

    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<Option<Extent>, NotSpoken> {
        let Some(length) = number(bytes, 0) else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST).ok_or(NotSpoken)?;
        let Some(message) = bytes.get(4..4 + length) else { return Ok(None) };
        let head = match (self.begun, self.side) {
            (false, _) => Head { number: 0, op: 0 },
            (true, Side::Client) => Head { number: part(message, 0)?, op: part(message, 4)? },
            (true, Side::Server) => Head { number: part(message, 0)?, op: 0 },
        };
        let unasked = self.begun && self.side == Side::Server && head.number == NOTIFICATION;
        self.begun = true;
        let sort = if unasked { Sort::Push } else { Sort::Value };
        Ok(Some(Extent { length: 4 + length, sort, head: Some(head) }))
    }
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn part(message: &[u8], at: usize) -> Result<i32, NotSpoken> {
    number(message, at).ok_or(NotSpoken)
}
