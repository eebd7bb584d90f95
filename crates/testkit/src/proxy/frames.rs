//! A stream of bytes cut into requests and answers.
//!
//! # Layout
//!
//! - `resp`: the language of Redis.
//! - `jute`: the language of ZooKeeper.

mod jute;
mod resp;

use self::jute::Jute;
use self::resp::Resp;

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Redis,
    ZooKeeper,
}

/// Who sends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// A request, or the answer to one.
    Value,
    /// Something that the server says unasked.
    Push,
    /// Some bytes of a stream in another language, or in one no longer.
    Raw,
}

/// What stands before a request or an answer, in a language that has such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The same in a request and in its answer.
    pub(super) number: i32,
    /// What is asked for; 0 in an answer.
    pub(super) op: i32,
}

/// One whole request or answer, with all that is inside it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) sort: Sort,
    pub(super) head: Option<Head>,
    pub(super) bytes: Vec<u8>,
}

/// How long the next frame is, and what.
struct Extent {
    length: usize,
    sort: Sort,
    head: Option<Head>,
}

/// The stream is in another language.
struct NotSpoken;

/// Collects bytes until a frame is whole.
pub(super) struct Frames {
    buffer: Vec<u8>,
    scanner: Scanner,
}

enum Scanner {
    Resp(Resp),
    Jute(Jute),
    Raw,
}

impl Frames {
    pub(super) fn new(language: Language, side: Side) -> Frames {
        let scanner = match language {
            Language::Redis => Scanner::Resp(Resp::default()),
            Language::ZooKeeper => Scanner::Jute(Jute::new(side)),
        };
        Frames { buffer: Vec::new(), scanner }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    pub(super) fn next(&mut self) -> Option<Frame> {
        if self.buffer.is_empty() {
            return None;
        }
        let found = match &mut self.scanner {
            Scanner::Resp(resp) => resp.scan(&self.buffer),
            Scanner::Jute(jute) => jute.scan(&self.buffer),
            Scanner::Raw => Err(NotSpoken),
        };
        let extent = found.unwrap_or_else(|NotSpoken| {
            self.scanner = Scanner::Raw;
            Some(Extent { length: self.buffer.len(), sort: Sort::Raw, head: None })
        })?;
        let rest = self.buffer.split_off(extent.length);
        let bytes = std::mem::replace(&mut self.buffer, rest);
        Some(Frame { sort: extent.sort, head: extent.head, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames of a stream, however its bytes arrive.
    fn cut(stream: &[u8], at_once: usize) -> Vec<(Sort, String)> {
        let mut frames = Frames::new(Language::Redis, Side::Client);
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

    /// A message as ZooKeeper frames it.
    fn message(parts: &[i32]) -> Vec<u8> {
        let body: Vec<u8> = parts.iter().flat_map(|part| part.to_be_bytes()).collect();
        [&(body.len() as i32).to_be_bytes(), &body[..]].concat()
    }

    #[test]
    fn requests_of_zookeeper_are_found_however_their_bytes_arrive() {
        let messages = [message(&[0, 0, 0]), message(&[1, 15, 7]), message(&[-2, 11]), message(&[2, -11])];
        let stream = messages.concat();
        for at_once in 1..stream.len() {
            let mut frames = Frames::new(Language::ZooKeeper, Side::Client);
            let mut found = Vec::new();
            for bytes in stream.chunks(at_once) {
                frames.feed(bytes);
                found.extend(std::iter::from_fn(|| frames.next()));
            }
            assert!(found.iter().all(|frame| frame.sort == Sort::Value));
            let heads =
                found.iter().map(|frame| frame.head.expect("a head")).map(|head| (head.number, head.op));
            assert_eq!(heads.collect::<Vec<_>>(), [(0, 0), (1, 15), (-2, 11), (2, -11)]);
            assert_eq!(found.into_iter().flat_map(|frame| frame.bytes).collect::<Vec<_>>(), stream);
        }
    }

    #[test]
    fn what_zookeeper_says_unasked_is_told_apart() {
        let mut frames = Frames::new(Language::ZooKeeper, Side::Server);
        frames.feed(&[message(&[-1, 0]), message(&[-1, 0, 5]), message(&[1, 0, 5])].concat());
        let sorts: Vec<Sort> = std::iter::from_fn(|| frames.next()).map(|frame| frame.sort).collect();
        // The first one makes the session, whatever stands in it.
        assert_eq!(sorts, [Sort::Value, Sort::Push, Sort::Value]);
    }

    #[test]
    fn a_four_letter_word_passes_as_it_comes() {
        let mut frames = Frames::new(Language::ZooKeeper, Side::Client);
        frames.feed(b"srvr");
        assert_eq!(frames.next().map(|frame| (frame.sort, frame.bytes)), Some((Sort::Raw, b"srvr".to_vec())));
    }
}
