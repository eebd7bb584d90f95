//! What is locked.

use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::{Error, Kind, Result};

/// The name of a lock: any UTF-8 text of 1 to 1024 bytes, compared byte by byte.
///
/// Cloning is cheap, and the hash is computed once, when the name is made: a program that locks the
/// same name often should make the `Name` (or the lock handle) once.
///
/// ```
/// use leasehold_core::Name;
/// let name = Name::new("orders/{42}: nächtlich 🌙")?;
/// assert_eq!(name.as_str(), "orders/{42}: nächtlich 🌙");
/// assert!(Name::new("").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Name {
    text: Arc<str>,
    hash: u128,
}

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Checks and keeps a name.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        let limits = || format!("a name is 1 to {} bytes of UTF-8 text", Self::MAX_BYTES);
        if text.is_empty() {
            return Err(Error::new(Kind::Invalid, "the lock name is empty").advice(limits()));
        }
        if text.len() > Self::MAX_BYTES {
            let what = format!("the lock name has {} bytes", text.len());
            return Err(Error::new(Kind::Invalid, what).advice(limits()));
        }
        let hash = stable_hash(text.as_bytes());
        Ok(Name { text: text.into(), hash })
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A 128-bit hash of the text that is the same on every machine and in every version: stores use it for
    /// the keys of names that they can't write down unchanged.
    pub fn stable_hash(&self) -> u128 {
        self.hash
    }
}

/// SipHash-1-3 with a zero key, 128 bits: stable for ever, so it may be written into a store.
pub fn stable_hash(bytes: &[u8]) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish128().as_u128()
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash as u64);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// Whatever a lock can be named with: `&str`, `String`, [`Name`].
///
/// The check happens here, and its error comes out of the verb (`lock`, `try_lock`, …) that follows.
pub trait IntoName {
    /// The name, or what is wrong with it.
    fn into_name(self) -> Result<Name>;
}

impl IntoName for Name {
    fn into_name(self) -> Result<Name> {
        Ok(self)
    }
}

impl IntoName for &Name {
    fn into_name(self) -> Result<Name> {
        Ok(self.clone())
    }
}

impl IntoName for &str {
    fn into_name(self) -> Result<Name> {
        Name::new(self)
    }
}

impl IntoName for String {
    fn into_name(self) -> Result<Name> {
        Name::new(self)
    }
}

impl IntoName for &String {
    fn into_name(self) -> Result<Name> {
        Name::new(self)
    }
}

/// A map from names that uses the hash a [`Name`] already carries.
pub type NameMap<V> = std::collections::HashMap<Name, V, BuildHasherDefault<NameHasher>>;

/// The hasher of a [`NameMap`]: passes a name's own hash through.
#[derive(Default)]
pub struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        // Only reached if the key is not a `Name`.
        self.0 = stable_hash(bytes) as u64;
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_1_to_1024_bytes() {
        assert!(Name::new("x".repeat(1024)).is_ok());
        for bad in [String::new(), "x".repeat(1025), "🌙".repeat(257)] {
            let e = Name::new(&bad).unwrap_err();
            assert_eq!(e.kind(), Kind::Invalid);
            assert!(e.to_string().contains("1 to 1024 bytes"), "{e}");
        }
    }

    #[test]
    fn the_hash_is_stable_for_ever() {
        // Stores write this hash into keys: a change of it would make two versions lock past each other.
        assert_eq!(
            Name::new("leasehold").unwrap().stable_hash(),
            281_882_304_527_255_691_550_046_741_473_609_465_112
        );
    }

    #[test]
    fn names_that_differ_only_in_case_are_two() {
        assert_ne!(Name::new("a").unwrap(), Name::new("A").unwrap());
    }
}
