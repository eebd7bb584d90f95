//! The bytes of a wake-up. A message is one write of at most `PIPE_BUF` bytes, which the kernel never mixes with others.
//!
//! ```text
//! message = length u16, version u8, kind u8, body
//! ```

use leasehold_core::store::{Grant, News, Note, Term};
use leasehold_core::view::{Event, Happened, Lost};
use leasehold_core::{EntryId, Name, SessionId, Tick, Token, TokenBlock};

use crate::bytes::{Bytes, put_maybe_u64, put_text, put_want};

/// What one process writes into another's FIFO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Something about an entry of the receiver.
    Note(Note),
    /// The queue changed around an entry of the receiver that goes on waiting: it must look whom it watches now.
    Look(Name),
    /// Something happened to a lock; before it the sender had to drop this many.
    Event {
        /// What.
        event: Event,
        /// How many events did not fit before.
        missed: u32,
    },
}

/// A pipe takes writes of up to this many bytes whole.
pub(crate) const LONGEST: usize = 4096;

const VERSION: u8 = 1;
const GRANTED: u8 = 1;
const RETRY: u8 = 2;
const GONE: u8 = 3;
const LOOK: u8 = 4;
const EVENT: u8 = 5;
const RELEASE_REQUESTED: u8 = 6;

impl Message {
    /// The bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0, 0, VERSION, 0];
        out[3] = match self {
            Message::Note(note) => encode_note(note, &mut out),
            Message::Look(name) => {
                put_text(&mut out, name.as_str());
                LOOK
            }
            Message::Event { event, missed } => {
                out.extend_from_slice(&missed.to_le_bytes());
                encode_event(event, &mut out);
                EVENT
            }
        };
        let len = u16::try_from(out.len()).expect("a name and a label are short");
        debug_assert!(out.len() <= LONGEST);
        out[..2].copy_from_slice(&len.to_le_bytes());
        out
    }

    fn decode(kind: u8, body: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(body);
        let message = match kind {
            GRANTED | RETRY | GONE | RELEASE_REQUESTED => Message::Note(decode_note(kind, &mut bytes)?),
            LOOK => Message::Look(bytes.name()?),
            EVENT => Message::Event { missed: bytes.u32()?, event: decode_event(&mut bytes)? },
            _ => return None,
        };
        bytes.0.is_empty().then_some(message)
    }
}

/// Bytes that came out of a FIFO, cut into messages.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    bytes: Vec<u8>,
    read: usize,
}

impl Inbound {
    /// Takes what was read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.read));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message. What can't be a message is thrown away with all that is behind it: a lost message does no
    /// harm, and the next write starts a new one.
    pub(crate) fn next(&mut self) -> Option<Message> {
        let rest = &self.bytes[self.read..];
        let [a, b, version, kind] = *rest.first_chunk()?;
        let len = usize::from(u16::from_le_bytes([a, b]));
        if version != VERSION || !(4..=LONGEST).contains(&len) {
            self.read = self.bytes.len();
            return None;
        }
        let body = rest.get(4..len)?;
        let message = Message::decode(kind, body);
        self.read = if message.is_some() { self.read + len } else { self.bytes.len() };
        message
    }
}

fn encode_note(note: &Note, out: &mut Vec<u8>) -> u8 {
    out.extend_from_slice(&note.id.0.to_le_bytes());
    put_text(out, note.name.as_str());
    match &note.news {
        News::Granted(grant) => {
            let (term, number) = match grant.term {
                Term::Open => (0, 0),
                Term::Until(tick) | Term::Session { until: tick, .. } => (1, tick.0),
                Term::For(d) => (2, u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            };
            out.extend_from_slice(&grant.tokens.first.0.to_le_bytes());
            out.extend_from_slice(&grant.tokens.len.to_le_bytes());
            out.push(term);
            out.extend_from_slice(&number.to_le_bytes());
            // Nobody has been asked to release what is granted only now.
            out.extend_from_slice(&[u8::from(grant.started), u8::from(grant.contended)]);
            GRANTED
        }
        News::Retry => RETRY,
        News::Gone(lost) => {
            out.push(lost_to_byte(*lost));
            GONE
        }
        News::ReleaseRequested => RELEASE_REQUESTED,
    }
}

fn decode_note(kind: u8, bytes: &mut Bytes<'_>) -> Option<Note> {
    let id = EntryId(bytes.u128()?);
    let name = bytes.name()?;
    let news = match kind {
        GRANTED => News::Granted(Grant {
            tokens: TokenBlock { first: Token(bytes.u64()?), len: bytes.u32()? },
            term: match (bytes.u8()?, bytes.u64()?) {
                (0, _) => Term::Open,
                (1, tick) => Term::Until(Tick(tick)),
                (2, nanos) => Term::For(std::time::Duration::from_nanos(nanos)),
                _ => return None,
            },
            started: bytes.flag()?,
            contended: bytes.flag()?,
            release_requested: false,
        }),
        RETRY => News::Retry,
        RELEASE_REQUESTED => News::ReleaseRequested,
        _ => News::Gone(lost_from_byte(bytes.u8()?)?),
    };
    Some(Note { name, id, news })
}

fn encode_event(event: &Event, out: &mut Vec<u8>) {
    out.extend_from_slice(&event.at.to_le_bytes());
    put_text(out, event.name.as_str());
    out.extend_from_slice(&match event.what {
        Happened::Queued => [0, 0],
        Happened::Acquired => [1, 0],
        Happened::Released => [2, 0],
        Happened::Left => [3, 0],
        Happened::Lost(lost) => [4, lost_to_byte(lost)],
        Happened::ReleaseRequested => [6, 0],
        // `Expired`, and whatever is added to the list before this store learns to write it.
        _ => [5, 0],
    });
    put_text(out, event.label.as_str());
    out.extend_from_slice(&event.session.0.to_le_bytes());
    put_want(out, event.want);
    put_maybe_u64(out, event.token.map(|t| t.0));
}

fn decode_event(bytes: &mut Bytes<'_>) -> Option<Event> {
    Some(Event {
        at: bytes.u64()?,
        name: bytes.name()?,
        what: match (bytes.u8()?, bytes.u8()?) {
            (0, _) => Happened::Queued,
            (1, _) => Happened::Acquired,
            (2, _) => Happened::Released,
            (3, _) => Happened::Left,
            (4, lost) => Happened::Lost(lost_from_byte(lost)?),
            (5, _) => Happened::Expired,
            (6, _) => Happened::ReleaseRequested,
            _ => return None,
        },
        label: bytes.label()?,
        session: SessionId(bytes.u128()?),
        want: bytes.want()?,
        token: bytes.maybe_u64()?.map(Token),
    })
}

fn lost_to_byte(lost: Lost) -> u8 {
    match lost {
        Lost::Expired => 0,
        Lost::Revoked => 1,
        Lost::SessionGone => 2,
        // `Wiped`, and whatever is added to the list before this store learns to write it.
        _ => 3,
    }
}

fn lost_from_byte(byte: u8) -> Option<Lost> {
    [Lost::Expired, Lost::Revoked, Lost::SessionGone, Lost::Wiped].get(usize::from(byte)).copied()
}

impl Bytes<'_> {
    fn name(&mut self) -> Option<Name> {
        self.text().and_then(|text| Name::new(text).ok())
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Label, Want};
    use proptest::prelude::*;

    use super::*;

    fn samples() -> Vec<Message> {
        let name = Name::new("n".repeat(Name::MAX_BYTES)).unwrap();
        let grant = |term| Grant {
            tokens: TokenBlock { first: Token(9), len: 4 },
            term,
            started: true,
            contended: false,
            release_requested: false,
        };
        let granted = |term| News::Granted(grant(term));
        let notes = [
            granted(Term::Open),
            granted(Term::Until(Tick(77))),
            granted(Term::For(std::time::Duration::from_nanos(5))),
            News::Retry,
            News::Gone(Lost::Expired),
            News::Gone(Lost::Revoked),
            News::Gone(Lost::SessionGone),
            News::Gone(Lost::Wiped),
            News::ReleaseRequested,
        ];
        let event = |what| Event {
            at: 5,
            name: name.clone(),
            what,
            label: Label::new("é".repeat(100)),
            session: SessionId(3),
            want: Want::Permits { n: 1, of: 2 },
            token: Some(Token(4)),
        };
        let happened = [
            Happened::Queued,
            Happened::Acquired,
            Happened::Released,
            Happened::Left,
            Happened::Lost(Lost::Revoked),
            Happened::Expired,
            Happened::ReleaseRequested,
        ];
        let notes = notes.map(|news| Message::Note(Note { name: name.clone(), id: EntryId(8), news }));
        let events = happened.map(|what| Message::Event { event: event(what), missed: 2 });
        notes.into_iter().chain(events).chain([Message::Look(name.clone())]).collect()
    }

    #[test]
    fn messages_survive_any_cut_of_the_stream() {
        let all: Vec<u8> = samples().iter().flat_map(Message::encode).collect();
        for step in [1, 7, 100, 4096, all.len()] {
            let mut inbound = Inbound::default();
            let mut read = Vec::new();
            for part in all.chunks(step) {
                inbound.push(part);
                read.extend(std::iter::from_fn(|| inbound.next()));
            }
            assert_eq!(read, samples());
        }
    }

    #[test]
    fn every_message_is_short_enough_to_be_written_whole() {
        assert!(samples().iter().all(|m| m.encode().len() <= LONGEST));
    }

    proptest! {
        #[test]
        fn garbage_is_thrown_away_and_the_next_message_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut inbound = Inbound::default();
            inbound.push(&bytes);
            while inbound.next().is_some() {}
        }
    }

    #[test]
    fn after_garbage_the_next_message_is_read() {
        let mut inbound = Inbound::default();
        inbound.push(b"hello, is this a log file?\n");
        assert_eq!(inbound.next(), None);
        let look = Message::Look(Name::new("a").unwrap());
        inbound.push(&look.encode());
        assert_eq!(inbound.next(), Some(look));
    }
}
