//! From a lock's name to its key, and back.
//!
//! All keys of a lock share a hash tag, so that a cluster keeps them together:
//!
//! - `leasehold:n:{NAME}` for most names, unchanged;
//! - `leasehold:h:{BEGINNING#HASH}` for names with braces in them, which would end the tag too early, and for very long
//!   ones. The whole name is in the record of each entry.

use leasehold_core::Name;

use crate::wire::Slot;

/// Longer names are written as their beginning and a hash: keys are repeated in every command.
const LONGEST_PLAIN: usize = 200;

/// How much of a hashed name people can read.
const READABLE: usize = 48;

/// The keys of one store.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
}

/// The key of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its text.
    pub text: String,
    /// Where a cluster keeps it.
    pub slot: Slot,
}

impl Key {
    /// All keys that the lock may have.
    pub fn all(&self) -> [String; 5] {
        ["", ":e", ":o", ":b", ":x"].map(|suffix| format!("{}{suffix}", self.text))
    }
}

impl Keys {
    /// Keys with this prefix.
    pub fn new(prefix: &str) -> Self {
        Keys { prefix: prefix.to_owned() }
    }

    /// The key of a lock.
    pub fn of(&self, name: &Name) -> Key {
        let prefix = self.prefix.as_str();
        let text = if is_plain(name) {
            // In pieces: it is a part of every request, and formatting it took longer than the rest of this.
            [prefix, "n:{", name.as_str(), "}"].concat()
        } else {
            let clean: String =
                name.as_str().chars().filter(|c| !matches!(c, '{' | '}')).take(READABLE).collect();
            format!("{prefix}h:{{{clean}#{:032x}}}", name.stable_hash())
        };
        let slot = Slot::of(text.as_bytes());
        Key { text, slot }
    }

    /// The name that a key stands for. `None` if it is not the key of a lock, or the name is not in it.
    pub fn name(&self, key: &str) -> Option<Name> {
        let name = key.strip_prefix(self.prefix.as_str())?.strip_prefix("n:{")?.strip_suffix('}')?;
        Name::new(name).ok()
    }

    /// Patterns that match the keys of all locks whose names may start with this.
    pub fn patterns(&self, start: &str) -> [String; 2] {
        let escape = |text: &str| {
            text.chars()
                .flat_map(|c| {
                    matches!(c, '*' | '?' | '[' | ']' | '^' | '-' | '\\')
                        .then_some('\\')
                        .into_iter()
                        .chain([c])
                })
                .collect::<String>()
        };
        let prefix = escape(&self.prefix);
        [format!("{prefix}n:{{{}*}}", escape(start)), format!("{prefix}h:{{*}}")]
    }
}

/// Whether the name stands in the key as it is.
pub fn is_plain(name: &Name) -> bool {
    name.as_str().len() <= LONGEST_PLAIN && !name.as_str().contains(['{', '}'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn most_names_are_their_own_key() {
        let keys = Keys::new("leasehold:");
        let key = keys.of(&name("orders/42: ünï *"));
        assert_eq!(key.text, "leasehold:n:{orders/42: ünï *}");
        assert_eq!(keys.name(&key.text), Some(name("orders/42: ünï *")));
        assert_eq!(key.slot, Slot::of(b"{orders/42: \xc3\xbcn\xc3\xaf *}"));
    }

    #[test]
    fn a_name_with_braces_or_a_long_one_keeps_one_tag() {
        let keys = Keys::new("leasehold:");
        for text in ["}", "{}", "a{b", "a}b", &"x".repeat(1024)] {
            let key = keys.of(&name(text));
            assert!(key.text.starts_with("leasehold:h:{"), "{key:?}");
            assert!(key.text.len() < 300);
            assert_eq!(Slot::of(format!("{}:e", key.text).as_bytes()), key.slot);
            assert_eq!(keys.name(&key.text), None);
        }
        assert_ne!(keys.of(&name("a{b")).text, keys.of(&name("a}b")).text);
    }

    #[test]
    fn patterns_take_special_characters_as_they_are() {
        assert_eq!(Keys::new("l:").patterns("a*[")[0], "l:n:{a\\*\\[*}");
    }
}
