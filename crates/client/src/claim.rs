//! What is asked: a name, a want, and the options given before the verb.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::{Pending, Session};
use leasehold_core::{Backoff, Error, Kind, Lease, Name, Order, Owner, Result, Traits, Want};

use crate::engine::Engine;
use crate::owners::scoped_owner;

/// A claim as the recipes build it.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// The name with its namespace, or what is wrong with it.
    pub(crate) name: Result<Name>,
    pub(crate) want: Result<Want>,
    /// A fixed lease, if one was asked for.
    pub(crate) lease: Option<Duration>,
    pub(crate) order: Order,
    pub(crate) owner: Option<Owner>,
    pub(crate) reentrant: bool,
    /// How long it bears a store that is not available, if that is not the client's.
    pub(crate) retry_for: Option<Duration>,
    /// Whether the store has answered the caller before, for another part of a set, say. Then it gets the time of a
    /// request to answer this one, also where the limit ends meanwhile.
    pub(crate) answered: bool,
}

impl Claim {
    pub(crate) fn new(name: Result<Name>, want: Result<Want>) -> Self {
        let (lease, order, owner, retry_for) = (None, Order::Queue, None, None);
        Claim { name, want, lease, order, owner, reentrant: false, retry_for, answered: false }
    }

    pub(crate) fn wanting(&self, want: Result<Want>) -> Self {
        Claim { want, ..self.clone() }
    }

    pub(crate) fn checked_name(&self, engine: &Engine) -> Result<&Name> {
        self.name.as_ref().map_err(|e| e.clone().at(engine.about.url.clone()))
    }

    /// Asks the store about it.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        engine: &Engine,
        request: impl Fn(Arc<dyn Session>) -> Pending<T>,
    ) -> Result<T> {
        engine.ask_for(self.retry_for.unwrap_or(engine.table.rules.retry_for), request).await
    }

    /// The owner it was given, or the one whose scope this task runs in.
    pub(crate) fn owner_now(&self) -> Option<Owner> {
        self.owner.clone().or_else(scoped_owner)
    }

    pub(crate) fn lease_or(&self, usual: Duration) -> Lease {
        self.lease.map_or(Lease::Kept(usual), Lease::Fixed)
    }

    pub(crate) fn barges(&self) -> bool {
        self.order == Order::Barge
    }

    pub(crate) fn backoff(&self) -> Option<Backoff> {
        if let Order::Spin(backoff) = self.order { Some(backoff) } else { None }
    }

    /// Refuses what the store can't keep.
    pub(crate) fn check(&self, want: Want, traits: &Traits) -> Result<()> {
        if want != Want::Exclusive && !traits.shared {
            let what = format!("the {} store keeps neither shared claims nor permits", traits.store);
            return Err(Error::new(Kind::Refused, what).advice("use a mutex, or another store"));
        }
        self.lease.map_or(Ok(()), |lease| check_lease(lease, traits))
    }
}

/// Refuses a lease that the store can't keep.
pub(crate) fn check_lease(lease: Duration, traits: &Traits) -> Result<()> {
    let Traits { store, shortest_lease, longest_lease, .. } = traits;
    if lease >= *shortest_lease && lease <= *longest_lease {
        return Ok(());
    }
    let what = format!("a lease of {lease:?} can't be kept by the {store} store");
    Err(Error::new(Kind::Invalid, what)
        .advice(format!("choose one from {shortest_lease:?} to {longest_lease:?}")))
}

/// The options that every lock takes before its verb.
macro_rules! claim_options {
    () => {
        /// A fixed lease: the lock ends by itself after this time and is never renewed. Such a claim is an entry of its own at
        /// the store, never handed on locally. One that is shorter than the store's answers take can't be had: the claim fails, or is
        /// told that the lock is busy because of what is left of its own first request.
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.claim.lease = Some(lease);
            self
        }

        /// In which order claims get in: first come, first served unless said otherwise.
        pub fn order(mut self, order: leasehold_core::Order) -> Self {
            self.claim.order = order;
            self
        }

        /// For whom the claim is made. The same owner asking for what it holds gets an error instead of a deadlock, or,
        /// if the claim is [reentrant](Self::reentrant), the same lock once more.
        ///
        /// An owner is known from its first grant on: two first claims of one owner at the same moment (in `join!`) wait for
        /// each other.
        pub fn owner(mut self, owner: leasehold_core::Owner) -> Self {
            self.claim.owner = Some(owner);
            self
        }

        /// Lets the [owner](Self::owner) that holds the lock take it again: the guards count, the last one releases, all have
        /// the same token. An inner claim changes nothing about the outer one's lease.
        pub fn reentrant(mut self) -> Self {
            self.claim.reentrant = true;
            self
        }

        /// How long a store that is not available is asked again before a verb fails, where the verb has no limit of its own:
        /// instead of what the [client](crate::ClientBuilder::retry_for) has for those that wait, and for those that
        /// [try](crate::ClientBuilder::try_for).
        pub fn retry_for(mut self, time: std::time::Duration) -> Self {
            self.claim.retry_for = Some(time);
            self
        }
    };
}

pub(crate) use claim_options;
