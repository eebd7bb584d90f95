//! Which node owns which slot, as plain data.

use redis::Value;

use super::super::check::text;
use super::super::slot::{SLOTS, Slot};
use crate::config::Address;

/// The slots that one master owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) address: Address,
    /// First and last of each range.
    pub(super) ranges: Vec<(u16, u16)>,
}

impl Share {
    /// The lowest slot: all clients choose it to name the node's channels.
    pub(super) fn lowest(&self) -> Slot {
        Slot(self.ranges.iter().map(|range| range.0).min().unwrap_or(0))
    }
}

/// Reads an answer to `CLUSTER SLOTS`: a list of `first, last, [host, port, …] of the master, …of the replicas`. What is
/// not as it should be is left out. `asked` stands for a host that a node does not know of itself.
pub(super) fn read(answer: &Value, asked: &Address) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    let Value::Array(lines) = answer else { return shares };
    for line in lines {
        let Some((range, address)) = line_of(line, asked) else { continue };
        match shares.iter_mut().find(|share| share.address == address) {
            Some(share) => share.ranges.push(range),
            None => shares.push(Share { address, ranges: vec![range] }),
        }
    }
    shares
}

fn line_of(line: &Value, asked: &Address) -> Option<((u16, u16), Address)> {
    let Value::Array(parts) = line else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
        return None;
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    if first > last || last >= SLOTS {
        return None;
    }
    let [host, Value::Int(port), ..] = master.as_slice() else { return None };
    let port = u16::try_from(*port).ok()?;
    let address = match text(host).as_str() {
        // It does not know its own address: it is where we asked.
        "" => Address::tcp(asked.host()?, port),
        "?" => return None,
        host => Address::tcp(host, port),
    };
    Some(((first, last), address))
}

/// For each slot, the place of its owner in a list, or [`NOBODY`].
pub(super) fn owners(shares: &[Share]) -> Vec<u16> {
    let mut owners = vec![NOBODY; usize::from(SLOTS)];
    for (at, share) in shares.iter().enumerate().take(usize::from(NOBODY)) {
        for (first, last) in &share.ranges {
            owners[usize::from(*first)..=usize::from(*last)].fill(at as u16);
        }
    }
    owners
}

/// No node owns the slot.
pub(super) const NOBODY: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(first: i64, last: i64, host: Value, port: i64) -> Value {
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]),
            Value::Array(vec![]),
        ])
    }

    fn host(name: &str) -> Value {
        Value::BulkString(name.as_bytes().to_vec())
    }

    #[test]
    fn ranges_of_one_master_are_put_together() {
        let answer = Value::Array(vec![
            line(100, 199, host("a"), 1),
            line(0, 99, host("b"), 1),
            line(300, 16383, host("a"), 1),
        ]);
        let shares = read(&answer, &Address::tcp("x", 9));
        assert_eq!(shares.len(), 2);
        assert_eq!((shares[0].lowest(), shares[1].lowest()), (Slot(100), Slot(0)));
        let owners = owners(&shares);
        assert_eq!([0, 99, 100, 200, 300, 16383].map(|slot| owners[slot]), [1, 1, 0, NOBODY, 0, 0]);
    }

    #[test]
    fn a_host_that_a_node_does_not_know_is_the_one_that_was_asked() {
        let answer =
            Value::Array(vec![line(0, 1, Value::Nil, 7), line(2, 3, host(""), 8), line(4, 5, host("?"), 9)]);
        let shares = read(&answer, &Address::tcp("asked", 1));
        let places: Vec<_> = shares.iter().map(|share| share.address.to_string()).collect();
        assert_eq!(places, ["asked:7", "asked:8"]);
    }

    #[test]
    fn nonsense_is_left_out() {
        let answer = Value::Array(vec![
            Value::Okay,
            line(5, 4, host("a"), 1),
            line(0, 16384, host("a"), 1),
            line(-1, 3, host("a"), 1),
            line(0, 3, host("a"), 70000),
            Value::Array(vec![Value::Int(1)]),
        ]);
        assert_eq!(read(&answer, &Address::tcp("x", 9)), []);
        assert_eq!(read(&Value::Nil, &Address::tcp("x", 9)), []);
    }
}
