//! Who is who at a store.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Kind, Result};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u128);

        impl $name {
            /// A fresh one from the system's random source.
            pub fn random() -> Result<Self> {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes)
                    .map_err(|e| Error::new(Kind::Unavailable, "the system gave no random bytes").because(e.to_string()))?;
                Ok(Self(u128::from_le_bytes(bytes)))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let digits = hex(self.0);
                f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:032x})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                match u128::from_str_radix(text, 16) {
                    Ok(id) if text.len() == 32 && text.is_ascii() => Ok(Self(id)),
                    _ => Err(Error::new(Kind::Invalid, format!("{text:?} is not an id of 32 hex digits"))),
                }
            }
        }
    };
}

id! {
    /// One attempt to get a lock. Every attempt has its own, so that acquire, renew and release can be
    /// repeated after a lost answer without a phantom re-entry or the release of a successor.
    EntryId
}

id! {
    /// One client's presence at a store.
    SessionId
}

/// The 32 digits of an id. Every request carries some, and the formatter of the standard library takes several times as long.
fn hex(id: u128) -> [u8; 32] {
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(id.to_be_bytes()) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    digits
}

impl EntryId {
    /// The `count`-th entry of a session. Unique because the session id is random, and far cheaper than
    /// asking the system for random bytes on every lock.
    pub fn of_session(session: SessionId, count: u64) -> Self {
        EntryId((session.0 & !u128::from(u64::MAX)) | u128::from(count ^ session.0 as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_text() {
        let id = EntryId::random().unwrap();
        assert_eq!(id.to_string().parse::<EntryId>().unwrap(), id);
        assert_eq!(id.to_string(), format!("{:032x}", id.0));
        assert!("12".parse::<EntryId>().is_err());
        assert!("é".repeat(16).parse::<EntryId>().is_err());
    }

    #[test]
    fn the_entries_of_a_session_differ() {
        let session = SessionId::random().unwrap();
        assert_ne!(EntryId::of_session(session, 1), EntryId::of_session(session, 2));
    }
}
