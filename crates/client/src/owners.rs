//! Re-entrance: which owner of this client holds what.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold_core::{Error, Kind, Name, Owner, Result, Want};

use crate::guard::{Again, Guard};
use crate::local::reentrancy::Denied;

tokio::task_local! {
    static SCOPE: Owner;
}

pub(crate) fn scoped_owner() -> Option<Owner> {
    SCOPE.try_with(Owner::clone).ok()
}

/// Lets a future, with everything it awaits, claim locks for an owner without naming it each time.
///
/// Tasks that the future spawns are not inside the scope: they are others.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// use leasehold_client::{Client, Owner, OwnerScope};
/// let client = Client::open(leasehold_memory::Memory::new()).await?;
/// let accounts = client.mutex("accounts").reentrant();
/// Owner::new()
///     .scope(async {
///         let outer = accounts.lock().await?;
///         let inner = accounts.lock().await?; // the same owner: no deadlock
///         assert_eq!((inner.hold_count(), inner.token()), (2, outer.token()));
///         Ok(())
///     })
///     .await
/// # }
/// ```
pub trait OwnerScope {
    /// Runs `future` as this owner.
    fn scope<F: Future + Send>(self, future: F) -> impl Future<Output = F::Output> + Send;
}

impl OwnerScope for Owner {
    fn scope<F: Future + Send>(self, future: F) -> impl Future<Output = F::Output> + Send {
        SCOPE.scope(self, future)
    }
}

/// What the owners of this client hold. Claims without an owner are not in here and cost nothing.
#[derive(Default)]
pub(crate) struct Owners(Mutex<HashMap<(Name, Owner), Weak<Again>>>);

impl Owners {
    /// The owner asks for a lock: `Some` if it holds it and may hold it again, an error if it would wait for itself.
    pub(crate) fn enter(
        &self,
        name: &Name,
        owner: &Owner,
        want: Want,
        reentrant: bool,
    ) -> Result<Option<Guard>> {
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.clone(), owner.clone());
        let Some(held) = holds.get(&key).and_then(Weak::upgrade) else { return Ok(None) };
        if !held.is_good() {
            holds.remove(&key);
            return Ok(None);
        }
        let upgrade = || {
            let what = "this owner reads the lock and asks to write: it would wait for itself";
            Error::new(Kind::Refused, what)
                .on(name)
                .advice("release the read lock first, or take the write lock from the start and downgrade it")
        };
        if held.want() == Want::Shared && want == Want::Exclusive {
            return Err(upgrade());
        }
        if !reentrant {
            let what = "this owner holds the lock already: it would wait for itself";
            return Err(Error::new(Kind::Refused, what)
                .on(name)
                .advice("ask with .reentrant() if that is meant"));
        }
        match held.guard(want == Want::Exclusive) {
            Ok(guard) => Ok(Some(guard)),
            // It was lost or released in this very moment: it is asked for like any other.
            Err(Denied::Over) => Ok(None),
            // A downgrade has begun in this very moment.
            Err(Denied::Reads) => Err(upgrade()),
        }
    }

    pub(crate) fn register(&self, guard: &mut Guard, owner: Owner) {
        let again = guard.share_with(owner);
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        holds.insert((again.name().clone(), again.owner().clone()), Arc::downgrade(again));
    }

    pub(crate) fn forget(&self, again: &Arc<Again>) {
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (again.name().clone(), again.owner().clone());
        if holds.get(&key).is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(again))) {
            holds.remove(&key);
        }
    }
}
