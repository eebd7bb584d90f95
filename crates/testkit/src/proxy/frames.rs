//! A stream of bytes cut into commands and answers of Redis (RESP2 and RESP3).

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// A command, or the answer to one.
    Value,
    /// Something that the server says unasked (RESP3).
    Push,
    /// Some bytes of a stream that is not RESP, or no longer.
    Raw,
}

/// One whole value at the top level, with all that is inside it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) sort: Sort,
    pub(super) bytes: Vec<u8>,
}

/// Collects bytes until a value is whole.
#[derive(Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    /// How much of the buffer was looked at.
    seen: usize,
    /// How many values are missing until the one at the top level is whole. None before it begins.
    missing: Option<u64>,
    raw: bool,
}

impl Frames {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole value, if there is one.
    pub(super) fn next(&mut self) -> Option<Frame> {
        if !self.raw && !self.buffer.is_empty() {
            let push = self.buffer[0] == b'>';
            match self.scan() {
                Ok(true) => return Some(self.take(if push { Sort::Push } else { Sort::Value })),
                Ok(false) => return None,
                Err(NotResp) => (self.raw, self.seen) = (true, self.buffer.len()),
            }
        }
        self.seen = self.buffer.len();
        (self.raw && self.seen > 0).then(|| self.take(Sort::Raw))
    }

    fn take(&mut self, sort: Sort) -> Frame {
        let rest = self.buffer.split_off(self.seen);
        let bytes = std::mem::replace(&mut self.buffer, rest);
        self.seen = 0;
        self.missing = None;
        Frame { sort, bytes }
    }

    /// Goes on as far as it can. True if a value is whole.
    fn scan(&mut self) -> Result<bool, NotResp> {
        loop {
            let missing = self.missing.unwrap_or(1);
            if missing == 0 {
                return Ok(true);
            }
            let Some((length, missing)) = step(&self.buffer[self.seen..], missing)? else { return Ok(false) };
            self.seen += length;
            self.missing = Some(missing);
        }
    }
}

struct NotResp;

/// Reads one head, with the text that belongs to it: how long it is, and how many values are missing after it. None if it is
/// not whole yet.
fn step(bytes: &[u8], missing: u64) -> Result<Option<(usize, u64)>, NotResp> {
    let Some(&sort) = bytes.first() else { return Ok(None) };
    if !b"*$+-:_,#(!=%~>|".contains(&sort) {
        return Err(NotResp);
    }
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let head = end + 2;
    let count = || -> Result<u64, NotResp> {
        let text = std::str::from_utf8(&bytes[1..end]).map_err(|_| NotResp)?;
        // A length of -1 is the null of RESP2: nothing follows.
        text.parse::<i64>().map(|count| count.max(0) as u64).map_err(|_| NotResp)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames of a stream, however its bytes arrive.
    fn cut(stream: &[u8], at_once: usize) -> Vec<(Sort, String)> {
        let mut frames = Frames::default();
        let mut found = Vec::new();
        for bytes in stream.chunks(at_once) {
            frames.feed(bytes);
            while let Some(frame) = frames.next() {
                found.push((frame.sort, String::from_utf8(frame.bytes).expect("text")));
            }
        }
        found
    }

    #[test]
    fn values_are_found_however_their_bytes_arrive() {
        let values = [
            "*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n",
            "+OK\r\n",
            "*0\r\n",
            "*-1\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "*2\r\n*2\r\n:1\r\n$-1\r\n-ERR no\r\n",
            "%1\r\n+a\r\n*1\r\n_\r\n",
            "|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n",
        ];
        let stream = values.concat();
        for at_once in 1..stream.len() {
            let found = cut(stream.as_bytes(), at_once);
            assert_eq!(found, values.map(|value| (Sort::Value, value.to_owned())), "{at_once} bytes at once");
        }
    }

    #[test]
    fn what_the_server_says_unasked_is_told_apart() {
        let found = cut(b">2\r\n+message\r\n+x\r\n+OK\r\n", 100);
        let sorts: Vec<Sort> = found.into_iter().map(|(sort, _)| sort).collect();
        assert_eq!(sorts, [Sort::Push, Sort::Value]);
    }

    #[test]
    fn a_stream_that_is_not_resp_passes_as_it_comes() {
        assert_eq!(
            cut(b"\x16\x03\x01abcdef", 5),
            [(Sort::Raw, "\x16\x03\x01ab".to_owned()), (Sort::Raw, "cdef".to_owned())]
        );
    }
}
