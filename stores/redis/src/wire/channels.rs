//! The names of channels, and the tags that put them on a node of a cluster.
//!
//! Scripts publish to these names, and sessions subscribe to them. A cluster has sharded channels: each lives on the node
//! that owns its slot, so a node's channels carry a tag of one of its slots. All clients must choose the same one: it is
//! the lowest slot that the node owns, and the first tag found for it in a fixed order.

use leasehold_core::SessionId;

use super::slot::Slot;

/// The channel of one session. `tag` is empty without a cluster.
pub fn session(prefix: &str, tag: &str, session: SessionId) -> String {
    if tag.is_empty() { format!("{prefix}s:{session}") } else { format!("{prefix}{{{tag}}}:s:{session}") }
}

/// The channel of events. Channels are shared by all databases of a server, so it has the database in its name.
pub fn events(prefix: &str, tag: &str, db: i64) -> String {
    if tag.is_empty() { format!("{prefix}e:{db}") } else { format!("{prefix}{{{tag}}}:e") }
}

/// The key that says that somebody watches events, and that scripts should tell them.
pub fn watched(prefix: &str, tag: &str) -> String {
    if tag.is_empty() { format!("{prefix}w") } else { format!("{prefix}{{{tag}}}:w") }
}

/// A key on the node, for a write that means nothing.
pub(crate) fn wait_key(prefix: &str, tag: &str) -> String {
    if tag.is_empty() { format!("{prefix}wait") } else { format!("{prefix}{{{tag}}}:wait") }
}

/// The first text in the order of `0, 1, …, z, 10, 11, …` (base 36) that belongs to this slot.
pub fn tag(slot: Slot) -> String {
    // Four digits reach every slot: a test looks at all of them.
    (0..36u32.pow(4)).map(base36).find(|text| Slot::of(text.as_bytes()) == slot).unwrap_or_default()
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::slot::SLOTS;
    use super::*;

    #[test]
    fn names_are_those_of_the_scripts() {
        let id: SessionId = "000000000000000000000000000000ab".parse().unwrap();
        assert_eq!(session("leasehold:", "", id), "leasehold:s:000000000000000000000000000000ab");
        assert_eq!(session("leasehold:", "x", id), "leasehold:{x}:s:000000000000000000000000000000ab");
        assert_eq!(events("leasehold:", "", 3), "leasehold:e:3");
        assert_eq!(events("leasehold:", "x", 0), "leasehold:{x}:e");
    }

    #[test]
    fn a_tag_belongs_to_its_slot() {
        for slot in [0, 1, 5461, 10923, SLOTS - 1].map(Slot) {
            let tag = tag(slot);
            assert_eq!(Slot::of(events("p:", &tag, 0).as_bytes()), slot);
            assert_eq!(Slot::of(wait_key("p:", &tag).as_bytes()), slot);
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        let reached: HashSet<Slot> =
            (0..36u32.pow(4)).map(|number| Slot::of(base36(number).as_bytes())).collect();
        assert_eq!(reached.len(), usize::from(SLOTS));
    }
}
