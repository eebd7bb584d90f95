//! One error type for the whole project: what kind it is, whether trying again can help, where it
//! happened, what to do about it, and what caused it.
//!
//! Contention is never an error: a busy lock is `None` or `Busy`.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Name;

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, worded as a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The store could not be reached or did not answer in time. What was asked may or may not have happened.
    Unavailable,
    /// The lease had ended before this call: somebody else may hold the lock now.
    Lost,
    /// The caller never held what it tried to change, or gave it back before.
    NotHeld,
    /// The lock exists with other parameters: another limit, another kind of resource under this name.
    Mismatch,
    /// The request can never work as it was made: a bad name, URL, number or combination.
    Invalid,
    /// The request is well formed, but this store, this owner or this state does not allow it.
    Refused,
    /// The store answered with something that it should never answer: damaged data, an unknown format.
    Store,
}

impl Kind {
    /// The word that people read in messages and that programs read in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Unavailable => "unavailable",
            Kind::Lost => "lost",
            Kind::NotHeld => "not held",
            Kind::Mismatch => "mismatch",
            Kind::Invalid => "invalid",
            Kind::Refused => "refused",
            Kind::Store => "store",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether the same call can succeed if it is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// It can't, until something about the call or the store is changed.
    Never,
    /// It can: nothing of the call took effect.
    Later,
    /// It can, and it must be made with the same entry id, because this one may have taken effect.
    SameId,
}

/// Something that failed. Cheap to clone, so that every task that waited on one request can be told.
///
/// ```
/// use leasehold_core::{Error, Kind};
/// let e = Error::new(Kind::Invalid, "the name is empty").advice("give 1 to 1024 bytes of text");
/// assert_eq!(e.to_string(), "invalid: the name is empty: give 1 to 1024 bytes of text");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: Kind,
    retry: Retry,
    what: String,
    tried_for: Option<Duration>,
    advice: Option<String>,
    store: Option<String>,
    name: Option<Name>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind. `what` is a clause without a full stop: "the queue file is damaged".
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        let retry = match kind {
            Kind::Unavailable => Retry::SameId,
            _ => Retry::Never,
        };
        Error(Arc::new(Inner {
            kind,
            retry,
            what: what.into(),
            tried_for: None,
            advice: None,
            store: None,
            name: None,
            source: None,
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Adds what the reader can do about it.
    pub fn advice(self, advice: impl Into<String>) -> Self {
        self.with(|e| e.advice = Some(advice.into()))
    }

    /// Says whether trying again can help, where the kind alone does not.
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|e| e.retry = retry)
    }

    /// Adds for how long it was tried in vain: all tries together, if it is said again. What was wrong is what the last try said.
    pub fn tried_for(self, time: Duration) -> Self {
        self.with(|e| e.tried_for = Some(time))
    }

    /// Adds the store it happened at (never with a password).
    pub fn at(self, store: impl Into<String>) -> Self {
        self.with(|e| e.store = Some(store.into()))
    }

    /// Adds the lock it happened to.
    pub fn on(self, name: &Name) -> Self {
        self.with(|e| e.name = Some(name.clone()))
    }

    /// Adds the cause.
    pub fn because(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.with(|e| e.source = Some(Arc::from(source.into())))
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether trying again can help.
    pub fn retry_advice(&self) -> Retry {
        self.0.retry
    }

    /// What was wrong, without kind, place and advice.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// What the reader can do about it.
    pub fn advice_text(&self) -> Option<&str> {
        self.0.advice.as_deref()
    }

    /// The cause in words, and what caused that, each once: some errors repeat their cause, and others leave it to
    /// the reader.
    pub fn cause_text(&self) -> Option<String> {
        let source = self.0.source.as_ref()?;
        let (mut text, mut cause) = (source.to_string(), source.source());
        while let Some(why) = cause {
            let more = why.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = why.source();
        }
        Some(text)
    }

    /// The store it happened at.
    pub fn store(&self) -> Option<&str> {
        self.0.store.as_deref()
    }

    /// The lock it happened to.
    pub fn name(&self) -> Option<&Name> {
        self.0.name.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, what, tried_for, advice, store, name, .. } = &*self.0;
        write!(f, "{kind}: {what}")?;
        if let Some(time) = tried_for {
            write!(f, "; tried for {time:.1?}")?;
        }
        match (name, store) {
            (Some(name), Some(store)) => write!(f, " (lock {name:?} at {store})")?,
            (Some(name), None) => write!(f, " (lock {name:?})")?,
            (None, Some(store)) => write!(f, " (at {store})")?,
            (None, None) => {}
        }
        if let Some(cause) = self.cause_text() {
            write!(f, ": {cause}")?;
        }
        if let Some(advice) = advice {
            write!(f, ": {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("retry", &self.0.retry)
            .field("what", &self.0.what)
            .field("tried_for", &self.0.tried_for)
            .field("store", &self.0.store)
            .field("name", &self.0.name)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|e| &**e as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Why(&'static str, Option<Box<Why>>);

    impl fmt::Display for Why {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl StdError for Why {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.1.as_ref().map(|why| &**why as &(dyn StdError + 'static))
        }
    }

    #[test]
    fn every_cause_is_named_once() {
        let why = |text, cause: Option<Why>| Why(text, cause.map(Box::new));
        let error = |cause| Error::new(Kind::Unavailable, "no connection").because(cause).to_string();
        let refused = || Some(why("refused", None));
        assert_eq!(error(why("connecting", refused())), "unavailable: no connection: connecting: refused");
        assert_eq!(error(why("it was refused", refused())), "unavailable: no connection: it was refused");
        let deep = why("connecting", Some(why("by TCP", refused())));
        assert_eq!(error(deep), "unavailable: no connection: connecting: by TCP: refused");
    }
}
