//! What an entry wants of a lock.

use crate::{Error, Kind, Result};

/// What an entry wants. See [`rule`](crate::rule) for which wants can hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Want {
    /// To be alone: a mutex, a write lock, a leader.
    Exclusive,
    /// To share with others that share: a read lock.
    Shared,
    /// `n` of the permits of a semaphore that has `of` in all.
    Permits {
        /// How many this entry takes.
        n: u32,
        /// How many the asker believes there are in all. A store refuses a belief that differs from the others'.
        of: u32,
    },
}

impl Want {
    /// `n` of `of` permits, checked: at least one, and no more than there are.
    pub fn permits(n: u32, of: u32) -> Result<Self> {
        if of == 0 {
            return Err(Error::new(
                Kind::Invalid,
                "a semaphore with a limit of 0 permits can never be acquired",
            )
            .advice("give a limit of at least 1"));
        }
        if n == 0 {
            return Err(Error::new(Kind::Invalid, "0 permits were asked for").advice("ask for at least 1"));
        }
        if n > of {
            let what = format!("{n} permits were asked for, and the semaphore has only {of}");
            return Err(Error::new(Kind::Invalid, what).advice("ask for fewer permits or raise the limit"));
        }
        Ok(Want::Permits { n, of })
    }

    /// The word that people read: `exclusive`, `shared`, `permits`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Want::Exclusive => "exclusive",
            Want::Shared => "shared",
            Want::Permits { .. } => "permits",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_at_least_one_and_at_most_the_limit() {
        assert!(Want::permits(3, 3).is_ok());
        for (n, of) in [(0, 3), (4, 3), (1, 0), (0, 0)] {
            assert_eq!(Want::permits(n, of).unwrap_err().kind(), Kind::Invalid, "{n} of {of}");
        }
    }
}
