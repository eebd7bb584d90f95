//! Where a command or an answer of Redis ends (RESP2 and RESP3).

use super::{Extent, NotSpoken, Sort};

/// How far the value at the top level was looked at.
#[derive(Default)]
pub(super) struct Resp {
    seen: usize,
    /// How many values are missing until the one at the top level is whole. None before it begins.
    missing: Option<u64>,
}

impl Resp {
    /// Goes on as far as it can.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<Option<Extent>, NotSpoken> {
        loop {
            let missing = self.missing.unwrap_or(1);
            if missing == 0 {
                let sort = if bytes[0] == b'>' { Sort::Push } else { Sort::Value };
                let length = std::mem::take(self).seen;
                return Ok(Some(Extent { length, sort, head: None }));
            }
            let Some((length, missing)) = step(&bytes[self.seen..], missing)? else { return Ok(None) };
            self.seen += length;
            self.missing = Some(missing);
        }
    }
}

/// Reads one head, with the text that belongs to it: how long it is, and how many values are missing after it. None if it is
/// not whole yet.
fn step(bytes: &[u8], missing: u64) -> Result<Option<(usize, u64)>, NotSpoken> {
    let Some(&sort) = bytes.first() else { return Ok(None) };
    if !b"*$+-:_,#(!=%~>|".contains(&sort) {
        return Err(NotSpoken);
    }
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let head = end + 2;
    let count = || -> Result<u64, NotSpoken> {
        let text = std::str::from_utf8(&bytes[1..end]).map_err(|_| NotSpoken)?;
        // A length of -1 is the null of RESP2: nothing follows.
        text.parse::<i64>().map(|count| count.max(0) as u64).map_err(|_| NotSpoken)
    };
    Ok(match sort {
        b'*' | b'~' | b'>' => Some((head, missing - 1 + count()?)),
        b'%' => Some((head, missing - 1 + 2 * count()?)),
        // An attribute stands before the value that it belongs to.
        b'|' => Some((head, missing + 2 * count()?)),
        b'$' | b'!' | b'=' if &bytes[1..end] == b"-1" => Some((head, missing - 1)),
        b'$' | b'!' | b'=' => {
            let whole = head + count()? as usize + 2;
            (bytes.len() >= whole).then_some((whole, missing - 1))
        }
        _ => Some((head, missing - 1)),
    })
}
