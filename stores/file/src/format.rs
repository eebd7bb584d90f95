//! The bytes of a queue file.
//!
//! A file is two slots of the same capacity (half of the file each). A change writes the slot that does not hold the
//! current state, with the next number, in one write. Whoever reads takes the intact slot with the higher number. So a
//! process that is killed in the middle of a write leaves the former state behind, whatever part of the write was done.
//!
//! ```text
//! slot    = magic u32, length u32, number u64, checksum u64, payload
//! payload = name, last token, limit, entries, bargers
//! ```
//!
//! Nothing is ever synced to disk: what a power failure could destroy are the places of processes that it killed as well.

use std::time::Duration;

use leasehold_core::queue::{Entry, Granted, Queue};
use leasehold_core::{EntryId, Lease, SessionId, Tick, Token, TokenBlock};

use crate::bytes::{Bytes, put_maybe_u64, put_text, put_want};

/// The smallest slot: both in one page, so one read gets everything.
pub(crate) const MIN_SLOT: usize = 2048;

/// The largest slot. Some 100,000 entries fit.
pub(crate) const MAX_SLOT: usize = 16 << 20;

/// What stands before the payload of a slot.
pub(crate) const HEADER: usize = 24;

/// `LHQ1`: the last digit is the version of the format.
const MAGIC: u32 = u32::from_le_bytes(*b"LHQ1");

/// The beginning of a slot that may be intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Which of the two.
    pub(crate) slot: usize,
    /// The higher one is the newer.
    pub(crate) number: u64,
    /// How long the payload is.
    pub(crate) len: usize,
    sum: u64,
}

impl Header {
    /// Reads the beginning of a slot with this capacity.
    pub(crate) fn read(slot: usize, bytes: &[u8], capacity: usize) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        let magic = bytes.u32()?;
        let len = bytes.u32()? as usize;
        let (number, sum) = (bytes.u64()?, bytes.u64()?);
        (magic == MAGIC && len <= capacity - HEADER).then_some(Header { slot, number, len, sum })
    }

    /// Whether this is the payload that was written with it.
    pub(crate) fn seals(&self, payload: &[u8]) -> bool {
        payload.len() == self.len && checksum(self.number, payload) == self.sum
    }
}

/// The two beginnings, the newer first.
pub(crate) fn newest_first(a: Option<Header>, b: Option<Header>) -> [Option<Header>; 2] {
    if b.map(|h| h.number) > a.map(|h| h.number) { [b, a] } else { [a, b] }
}

/// Writes a slot: beginning and payload.
pub(crate) fn encode_slot(name: &str, queue: &Queue, number: u64, out: &mut Vec<u8>) {
    out.clear();
    out.resize(HEADER, 0);
    encode(name, queue, out);
    let (header, payload) = out.split_at_mut(HEADER);
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header[16..].copy_from_slice(&checksum(number, payload).to_le_bytes());
}

/// Whether this is what the end of the host leaves of a queue file: nothing, zeros, or the beginning of a slot.
pub(crate) fn is_torn(file: &[u8]) -> bool {
    let magic = MAGIC.to_le_bytes();
    file.starts_with(&magic)
        || file[file.len() / 2..].starts_with(&magic)
        || file.iter().all(|byte| *byte == 0)
}

/// The capacity of the slots of a file of this size, if a queue file can have this size.
pub(crate) fn capacity(size: u64) -> Option<usize> {
    let slot = usize::try_from(size / 2).ok()?;
    (size.is_multiple_of(2) && slot.is_power_of_two() && (MIN_SLOT..=MAX_SLOT).contains(&slot))
        .then_some(slot)
}

/// The capacity for a slot of this length, with room to grow; `None` if it is too much.
pub(crate) fn capacity_for(len: usize) -> Option<usize> {
    let slot = len.checked_mul(2)?.next_power_of_two().max(MIN_SLOT);
    if slot <= MAX_SLOT { Some(slot) } else { (len <= MAX_SLOT).then_some(MAX_SLOT) }
}

/// The number is mixed in, so that the beginning of one write and the rest of another don't fit each other.
fn checksum(number: u64, payload: &[u8]) -> u64 {
    leasehold_core::name::stable_hash(payload) as u64 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn encode(name: &str, queue: &Queue, out: &mut Vec<u8>) {
    put_text(out, name);
    out.extend_from_slice(&queue.last.to_le_bytes());
    put_maybe_u64(out, queue.limit.map(u64::from));
    for list in [&queue.entries, &queue.bargers] {
        out.extend_from_slice(&u32::try_from(list.len()).unwrap_or(u32::MAX).to_le_bytes());
        list.iter().for_each(|entry| encode_entry(entry, out));
    }
}

/// The name and the queue in a payload; `None` if it is none that this version wrote.
pub(crate) fn decode(payload: &[u8]) -> Option<(&str, Queue)> {
    let mut bytes = Bytes(payload);
    let name = bytes.text()?;
    let last = bytes.u64().filter(|last| *last < Token::END)?;
    let limit = match bytes.maybe_u64()? {
        None => None,
        Some(limit) => Some(u32::try_from(limit).ok()?),
    };
    let entries = decode_entries(&mut bytes)?;
    let bargers = decode_entries(&mut bytes)?;
    let queue = Queue { last, limit, entries, bargers };
    let holders = queue.held();
    let sane = queue.entries[holders..].iter().chain(&queue.bargers).all(|e| e.grant.is_none());
    (sane && bytes.0.is_empty()).then_some((name, queue))
}

fn decode_entries(bytes: &mut Bytes<'_>) -> Option<Vec<Entry>> {
    let count = bytes.u32()?;
    // Not reserved: a damaged count must not ask for gigabytes.
    (0..count).map(|_| decode_entry(bytes)).collect()
}

fn encode_entry(entry: &Entry, out: &mut Vec<u8>) {
    out.extend_from_slice(&entry.id.0.to_le_bytes());
    out.extend_from_slice(&entry.session.0.to_le_bytes());
    put_text(out, entry.label.as_str());
    put_want(out, entry.want);
    out.push(u8::from(matches!(entry.lease, Lease::Fixed(_))));
    out.extend_from_slice(&nanos(entry.lease.length()).to_le_bytes());
    out.extend_from_slice(&nanos(entry.place).to_le_bytes());
    out.extend_from_slice(&entry.since.to_le_bytes());
    put_maybe_u64(out, entry.ends.map(|tick| tick.0));
    out.push(u8::from(entry.grant.is_some()));
    if let Some(grant) = entry.grant {
        out.extend_from_slice(&grant.first.0.to_le_bytes());
        out.extend_from_slice(&grant.tokens.first.0.to_le_bytes());
        out.extend_from_slice(&grant.tokens.len.to_le_bytes());
        out.extend_from_slice(&grant.at.to_le_bytes());
        out.push(u8::from(grant.started) | u8::from(grant.release_requested) << 1);
    }
}

fn decode_entry(bytes: &mut Bytes<'_>) -> Option<Entry> {
    Some(Entry {
        id: EntryId(bytes.u128()?),
        session: SessionId(bytes.u128()?),
        label: bytes.label()?,
        want: bytes.want()?,
        lease: if bytes.flag()? { Lease::Fixed(bytes.nanos()?) } else { Lease::Kept(bytes.nanos()?) },
        place: bytes.nanos()?,
        since: bytes.u64()?,
        ends: bytes.maybe_u64()?.map(Tick),
        grant: if bytes.flag()? { Some(decode_grant(bytes)?) } else { None },
    })
}

fn decode_grant(bytes: &mut Bytes<'_>) -> Option<Granted> {
    let mut token = || bytes.u64().filter(|token| *token < Token::END).map(Token);
    let (first, block) = (token()?, token()?);
    let tokens = TokenBlock { first: block, len: bytes.u32()? };
    let (at, flags) = (bytes.u64()?, bytes.u8().filter(|flags| *flags < 4)?);
    Some(Granted { first, tokens, at, started: flags & 1 != 0, release_requested: flags & 2 != 0 })
}

impl Bytes<'_> {
    fn nanos(&mut self) -> Option<Duration> {
        self.u64().map(Duration::from_nanos)
    }
}

/// 584 years and more are all the same.
fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use leasehold_core::{Label, Want};
    use proptest::prelude::*;

    use super::*;

    fn wants() -> impl Strategy<Value = Want> {
        let permits = (any::<u32>(), any::<u32>()).prop_map(|(n, of)| Want::Permits { n, of });
        prop_oneof![Just(Want::Exclusive), Just(Want::Shared), permits]
    }

    fn entries(granted: bool) -> impl Strategy<Value = Entry> {
        let words = (any::<[u128; 2]>(), "\\PC{0,300}", wants(), any::<bool>());
        let numbers = (
            any::<[u64; 3]>(),
            any::<Option<u64>>(),
            0..Token::END,
            any::<u32>(),
            any::<u64>(),
            any::<[bool; 2]>(),
        );
        (words, numbers).prop_map(move |((ids, label, want, fixed), (times, ends, first, len, at, flags))| {
            let length = Duration::from_nanos(times[0]);
            let tokens = TokenBlock { first: Token(first), len };
            Entry {
                id: EntryId(ids[0]),
                session: SessionId(ids[1]),
                label: Label::new(label),
                want,
                lease: if fixed { Lease::Fixed(length) } else { Lease::Kept(length) },
                place: Duration::from_nanos(times[1]),
                since: times[2],
                ends: ends.map(Tick),
                grant: granted.then_some(Granted {
                    first: Token(first / 2),
                    tokens,
                    at,
                    started: flags[0],
                    release_requested: flags[1],
                }),
            }
        })
    }

    pub(crate) fn queues() -> impl Strategy<Value = Queue> {
        let list = |granted| proptest::collection::vec(entries(granted), 0..4);
        (0..Token::END, any::<Option<u32>>(), list(true), list(false), list(false)).prop_map(
            |(last, limit, mut entries, waiting, bargers)| {
                entries.extend(waiting);
                Queue { last, limit, entries, bargers }
            },
        )
    }

    fn payload(name: &str, queue: &Queue) -> Vec<u8> {
        let mut out = Vec::new();
        encode(name, queue, &mut out);
        out
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(name in "\\PC{1,300}", queue in queues()) {
            let bytes = payload(&name, &queue);
            prop_assert_eq!(decode(&bytes), Some((name.as_str(), queue)));
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = decode(&bytes);
            let _ = Header::read(0, &bytes, MIN_SLOT);
        }

        #[test]
        fn a_cut_payload_is_refused(queue in queues(), cut in any::<prop::sample::Index>()) {
            let bytes = payload("name", &queue);
            prop_assert_eq!(decode(&bytes[..cut.index(bytes.len())]), None);
        }

        #[test]
        fn a_flipped_bit_is_noticed_anywhere_in_a_slot(queue in queues(), bit in any::<prop::sample::Index>()) {
            let mut slot = Vec::new();
            encode_slot("name", &queue, 7, &mut slot);
            let bit = bit.index(slot.len() * 8);
            slot[bit / 8] ^= 1 << (bit % 8);
            let header = Header::read(0, &slot, MAX_SLOT);
            prop_assert!(!header.is_some_and(|h| slot.get(HEADER..HEADER + h.len).is_some_and(|p| h.seals(p))));
            let _ = decode(&slot[HEADER..]);
        }
    }

    #[test]
    fn a_token_that_is_none_is_refused() {
        let queue = Queue { last: Token::END, ..Queue::default() };
        assert_eq!(decode(&payload("name", &queue)), None);
    }

    #[test]
    fn slots_grow_by_doubling_and_not_for_ever() {
        assert_eq!(capacity_for(10), Some(MIN_SLOT));
        assert_eq!(capacity_for(2000), Some(4096));
        assert_eq!(capacity_for(MAX_SLOT), Some(MAX_SLOT));
        assert_eq!(capacity_for(MAX_SLOT + 1), None);
        assert_eq!(capacity(4096), Some(MIN_SLOT));
        for size in [0, 1, 4095, 4097, 6144, u64::MAX] {
            assert_eq!(capacity(size), None);
        }
    }
}
