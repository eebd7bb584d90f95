//! From a name to a node, and back.
//!
//! ```text
//! /leasehold/orders%2F42                                             the lock "orders/42": a container node
//! /leasehold/orders%2F42/x-0123456789abcdef0123456789abcdef-0000000007   an entry that wants it alone
//! ```
//!
//! An entry's node is called `KIND-ID-SEQUENCE`. The kind is `x` (exclusive), `s` (shared) or `p2of5` (2 of 5 permits); `bx`,
//! `bs` and `bp2of5` are the notes of those that barge, which stand in no queue. The id is the entry's own, so that the
//! answer to a lost request can be found again. ZooKeeper adds the sequence number.

use std::fmt::Write as _;

use leasehold_core::{EntryId, Name, Want};

/// The longest sequence number: a signed 32-bit number with its sign.
const LONGEST_SEQUENCE: usize = 11;

/// Room for a few characters that are escaped.
pub(crate) const ROOM: usize = 8;

/// Room for the name of nearly every entry's node.
pub(crate) const NODE_ROOM: usize = 48;

/// The name of the node of a lock.
///
/// Unchanged where it can be; what ZooKeeper does not allow in a path, and the percent sign, is written as `%2F`.
pub fn escape(name: &Name) -> String {
    let mut escaped = String::with_capacity(name.as_str().len() + ROOM);
    push_escaped(&mut escaped, name);
    escaped
}

/// As [`escape`], behind what is there.
pub(crate) fn push_escaped(escaped: &mut String, name: &Name) {
    let text = name.as_str();
    let dots = matches!(text, "." | "..");
    let mut buffer = [0; 4];
    for c in text.chars() {
        if is_plain(c) && !dots {
            escaped.push(c);
        } else {
            for byte in c.encode_utf8(&mut buffer).bytes() {
                escaped.push('%');
                for digit in [byte >> 4, byte & 15] {
                    escaped.push(char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase());
                }
            }
        }
    }
}

/// What ZooKeeper's own check of paths lets through (it looks at UTF-16 units, so nothing beyond the first plane).
fn is_plain(c: char) -> bool {
    !matches!(c, '/' | '%' | '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The name that a node stands for. `None` if it is not the node of a lock.
pub fn unescape(node: &str) -> Option<Name> {
    let name = Name::new(leasehold_core::url::percent_decode(node).ok()?).ok()?;
    // One name has one node: what somebody wrote by hand in another way is not ours.
    (escape(&name) == node).then_some(name)
}

/// The node of an entry, as its name tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The entry.
    pub id: EntryId,
    /// What it wanted when it came. A writer may have become a reader since.
    pub want: Want,
    /// Whether it only notes that somebody barges.
    pub barges: bool,
    /// ZooKeeper's number: signed, and it wraps.
    pub sequence: i32,
}

impl Node {
    /// Reads the name of a node. `None` if it is not ours.
    pub fn parse(text: &str) -> Option<Node> {
        let (kind, rest) = text.split_once('-')?;
        let (id, sequence) = (rest.get(..32)?, rest.get(32..)?.strip_prefix('-')?);
        let (barges, kind) = kind.strip_prefix('b').map_or((false, kind), |kind| (true, kind));
        let want = match kind {
            "x" => Want::Exclusive,
            "s" => Want::Shared,
            permits => {
                let (n, of) = permits.strip_prefix('p')?.split_once("of")?;
                Want::permits(n.parse().ok()?, of.parse().ok()?).ok()?
            }
        };
        let sequence = (sequence.len() <= LONGEST_SEQUENCE).then(|| sequence.parse().ok())??;
        Some(Node { id: id.parse().ok()?, want, barges, sequence })
    }

    /// What the name of an entry's node starts with; ZooKeeper adds the number.
    pub(crate) fn push_prefix(text: &mut String, id: EntryId, want: Want, barges: bool) {
        if barges {
            text.push('b');
        }
        // Writing to a string does not fail.
        let _ = match want {
            Want::Exclusive => write!(text, "x-{id}-"),
            Want::Shared => write!(text, "s-{id}-"),
            Want::Permits { n, of } => write!(text, "p{n}of{of}-{id}-"),
        };
    }

    /// What ZooKeeper adds: its number.
    pub(crate) fn push_sequence(text: &mut String, sequence: i32) {
        let _ = write!(text, "{sequence:010}");
    }

    /// The name of the node.
    pub fn name(&self) -> String {
        let mut name = String::with_capacity(NODE_ROOM);
        Node::push_prefix(&mut name, self.id, self.want, self.barges);
        Node::push_sequence(&mut name, self.sequence);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn most_names_are_their_own_node() {
        for text in ["orders", "a:b{c} d", "nächtlich", "漢字", "..a", "x-1"] {
            assert_eq!(escape(&name(text)), text);
        }
    }

    #[test]
    fn what_zookeeper_refuses_is_escaped_and_comes_back() {
        for (text, node) in [
            ("orders/42", "orders%2F42"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("%2F", "%252F"),
            ("a\0b\n", "a%00b%0A"),
            ("🌙", "%F0%9F%8C%99"),
            ("\u{e000}", "%EE%80%80"),
            ("\u{fffd}", "%EF%BF%BD"),
            ("\u{9f}", "%C2%9F"),
        ] {
            assert_eq!(escape(&name(text)), node);
            assert_eq!(unescape(node), Some(name(text)));
        }
    }

    #[test]
    fn a_node_that_is_no_escaped_name_is_not_ours() {
        for node in ["%", "%zz", "%41", "%2f", "", "%FF"] {
            assert_eq!(unescape(node), None, "{node:?}");
        }
    }

    #[test]
    fn nodes_survive_text_also_when_the_number_wraps() {
        let id = EntryId(0xabc);
        for want in [Want::Exclusive, Want::Shared, Want::Permits { n: 2, of: 5 }] {
            for barges in [false, true] {
                for sequence in [0, 7, i32::MAX, i32::MIN, -1] {
                    let node = Node { id, want, barges, sequence };
                    assert_eq!(Node::parse(&node.name()), Some(node));
                }
            }
        }
        // As ZooKeeper writes it: `%010d`, which counts the sign.
        assert!(Node { id, want: Want::Shared, barges: false, sequence: -5 }.name().ends_with("--000000005"));
    }

    #[test]
    fn foreign_nodes_are_not_ours() {
        let id = EntryId(1);
        for text in [
            "",
            "x",
            "lock-0000000001",
            "_c_cb1e-lock-0000000001",
            &format!("x-{id}"),
            &format!("x-{id}-"),
            &format!("x-{id}-12x"),
            &format!("x-{id}-99999999999"),
            &format!("y-{id}-0000000001"),
            &format!("p0of5-{id}-0000000001"),
            &format!("p9of5-{id}-0000000001"),
            &format!("bbx-{id}-0000000001"),
            "x-ééééééééééééééééé-1",
        ] {
            assert_eq!(Node::parse(text), None, "{text:?}");
        }
    }
}
