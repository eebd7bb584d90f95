//! The rows of the matrix: every public async operation of the client, with what has to be there before it begins.
//!
//! A test reads the client's source and fails if a public async function is in no row (`tests/meta.rs`).

use std::time::Duration;

use futures_util::FutureExt;
use leasehold_client::{Backoff, Client, Multi, Mutex, Order, Owner, OwnerScope, Part, RwLock, Semaphore};
use leasehold_core::{Result, Want};
use tokio::time::sleep;

use super::sweep::PATIENCE;
use super::{Boxed, Cell};
use crate::registry::Hold;

/// How long a claim with a limit waits: longer than any cell takes.
const LONG: Duration = Duration::from_secs(60);

/// How many permits the semaphores here have.
const PERMITS: u32 = 2;

/// A row.
pub struct Operation {
    /// The public function.
    pub api: &'static str,
    /// How it is called, where that matters.
    pub case: String,
    /// What the cells of the row look like.
    pub shape: Shape,
    /// Whether the store must keep shared claims and permits.
    pub shared: bool,
    /// Whether it opens a client: for how long a store may take for that is the store's own business.
    pub opens: bool,
    /// Whether it goes the way of another row, so that a few situations are enough.
    pub brief: bool,
    begin: Box<dyn Fn(Cell) -> Prepared + Send + Sync>,
}

/// What leads to the call, and then the call itself.
type Prepared = Boxed<Result<Boxed<Result<Vec<Hold>>>>>;

/// What the cells of a row look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// It asks for the lock: somebody else may hold it.
    Claim,
    /// It asks for the lock and answers at once, whoever holds it.
    Try,
    /// It has to do with a lock that it took itself.
    Holder,
    /// The same, and it never ends by itself.
    HolderForEver,
    /// It has to do with a lock that somebody else may hold.
    Look,
    /// The same, and it never ends by itself.
    LookForEver,
    /// It takes a lock away from whoever holds it.
    Revoke,
    /// It ends the client.
    Close,
}

impl Operation {
    /// Does what has to be done before, and gives the future that is to be cut.
    pub async fn begin(&self, cell: &Cell) -> Result<Boxed<Result<Vec<Hold>>>> {
        (self.begin)(cell.clone()).await
    }

    /// Whether it never ends by itself.
    pub fn endless(&self) -> bool {
        matches!(self.shape, Shape::HolderForEver | Shape::LookForEver)
    }

    fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    fn opens(mut self) -> Self {
        self.opens = true;
        self
    }

    fn brief(mut self) -> Self {
        self.brief = true;
        self
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (comma, case) = (if self.case.is_empty() { "" } else { ", " }, &self.case);
        write!(f, "{}{comma}{case}", self.api)
    }
}

/// A row that needs nothing before it begins.
fn row<Fut>(
    api: &'static str,
    case: &str,
    shape: Shape,
    body: impl Fn(Cell) -> Fut + Send + Sync + Clone + 'static,
) -> Operation
where
    Fut: Future<Output = Result<Vec<Hold>>> + Send + 'static,
{
    let begin = move |cell: Cell| -> Boxed<Result<Boxed<Result<Vec<Hold>>>>> {
        let future = body(cell);
        Box::pin(async move { Ok(Box::pin(future) as Boxed<_>) })
    };
    Operation {
        api,
        case: case.to_owned(),
        shape,
        shared: false,
        opens: false,
        brief: false,
        begin: Box::new(begin),
    }
}

/// A row about something that is prepared first.
fn after<T, Prepared, Fut>(
    api: &'static str,
    case: &str,
    shape: Shape,
    prepare: impl Fn(Cell) -> Prepared + Send + Sync + Clone + 'static,
    body: impl Fn(T) -> Fut + Send + Sync + Clone + 'static,
) -> Operation
where
    T: Send + 'static,
    Prepared: Future<Output = Result<T>> + Send + 'static,
    Fut: Future<Output = Result<Vec<Hold>>> + Send + 'static,
{
    let begin = move |cell: Cell| -> Boxed<Result<Boxed<Result<Vec<Hold>>>>> {
        let (prepared, body) = (prepare(cell), body.clone());
        Box::pin(async move { Ok(Box::pin(body(prepared.await?)) as Boxed<_>) })
    };
    Operation {
        api,
        case: case.to_owned(),
        shape,
        shared: false,
        opens: false,
        brief: false,
        begin: Box::new(begin),
    }
}

fn alone(guard: leasehold_client::Guard) -> Vec<Hold> {
    vec![Hold::Guard(guard, Want::Exclusive)]
}

fn shared(guard: leasehold_client::Guard) -> Vec<Hold> {
    vec![Hold::Guard(guard, Want::Shared)]
}

fn permit(guard: leasehold_client::Guard) -> Vec<Hold> {
    vec![Hold::Guard(guard, Want::Permits { n: 1, of: PERMITS })]
}

/// All rows.
pub fn all() -> Vec<Operation> {
    let mut rows = Vec::new();
    let spin = Order::Spin(Backoff { first: Duration::from_millis(1), most: Duration::from_millis(4) });
    rows.extend(rwlock("queue", |lock| lock));
    rows.extend(rwlock("barge", |lock| lock.order(Order::Barge)));
    rows.extend(rwlock("spin", move |lock| lock.order(spin)).map(Operation::brief));
    rows.extend(rwlock("fixed lease", |lock| lock.lease(LONG)).map(Operation::brief));
    for order in [Order::Queue, Order::Barge, spin] {
        rows.extend(mutex(order.as_str(), move |lock| lock.order(order)).map(Operation::brief));
        rows.extend(semaphore(order.as_str(), move |lock| lock.order(order)).map(Operation::brief));
        rows.extend(multi(order.as_str(), move |lock| lock.order(order)).map(Operation::brief));
        rows.extend(striped(order).map(Operation::brief));
        rows.extend(leader(order).map(Operation::brief));
    }
    rows.extend(semaphore("fixed lease", |lock| lock.lease(LONG)).map(Operation::brief));
    rows.extend(multi("fixed lease", |lock| lock.lease(LONG)).map(Operation::brief));
    rows.extend(mutex("fixed lease", |lock| lock.lease(LONG)).map(Operation::brief));
    rows.extend(leadership().map(Operation::brief));
    rows.extend(reentrance());
    rows.extend(downgrade());
    rows.extend(release());
    rows.extend(guards());
    rows.extend(views());
    rows.extend(revocation());
    rows.extend(clients());
    rows
}

fn mutex(
    case: &str,
    options: impl Fn(Mutex) -> Mutex + Send + Sync + Copy + 'static,
) -> impl Iterator<Item = Operation> {
    let lock = move |cell: Cell| options(cell.actor.mutex(&cell.name));
    [
        row("Mutex::lock", case, Shape::Claim, move |cell| async move { lock(cell).lock().await.map(alone) }),
        row("Mutex::try_lock", case, Shape::Try, move |cell| async move {
            Ok(lock(cell).try_lock().await?.map(alone).unwrap_or_default())
        }),
        row("Mutex::lock_within", case, Shape::Claim, move |cell| async move {
            Ok(lock(cell).lock_within(LONG).await?.map(alone).unwrap_or_default())
        }),
        row("Mutex::lock_within", &format!("{case}, 0 s"), Shape::Try, move |cell| async move {
            Ok(lock(cell).lock_within(Duration::ZERO).await?.map(alone).unwrap_or_default())
        }),
    ]
    .into_iter()
}

fn rwlock(
    case: &str,
    options: impl Fn(RwLock) -> RwLock + Send + Sync + Copy + 'static,
) -> impl Iterator<Item = Operation> {
    let lock = move |cell: Cell| options(cell.actor.rwlock(&cell.name));
    let nothing = &format!("{case}, 0 s");
    [
        row(
            "RwLock::read",
            case,
            Shape::Claim,
            move |cell| async move { lock(cell).read().await.map(shared) },
        )
        .shared(),
        row("RwLock::try_read", case, Shape::Try, move |cell| async move {
            Ok(lock(cell).try_read().await?.map(shared).unwrap_or_default())
        })
        .shared(),
        row("RwLock::read_within", case, Shape::Claim, move |cell| async move {
            Ok(lock(cell).read_within(LONG).await?.map(shared).unwrap_or_default())
        })
        .shared(),
        row("RwLock::read_within", nothing, Shape::Try, move |cell| async move {
            Ok(lock(cell).read_within(Duration::ZERO).await?.map(shared).unwrap_or_default())
        })
        .shared(),
        row("RwLock::write", case, Shape::Claim, move |cell| async move {
            Ok(vec![Hold::Write(lock(cell).write().await?)])
        }),
        row("RwLock::try_write", case, Shape::Try, move |cell| async move {
            Ok(lock(cell).try_write().await?.map(Hold::Write).into_iter().collect())
        }),
        row("RwLock::write_within", case, Shape::Claim, move |cell| async move {
            Ok(lock(cell).write_within(LONG).await?.map(Hold::Write).into_iter().collect())
        }),
        row("RwLock::write_within", nothing, Shape::Try, move |cell| async move {
            Ok(lock(cell).write_within(Duration::ZERO).await?.map(Hold::Write).into_iter().collect())
        }),
    ]
    .into_iter()
}

fn semaphore(
    case: &str,
    options: impl Fn(Semaphore) -> Semaphore + Send + Sync + Copy + 'static,
) -> impl Iterator<Item = Operation> {
    let lock = move |cell: Cell| options(cell.actor.semaphore(&cell.name, PERMITS));
    [
        row("Semaphore::acquire", case, Shape::Claim, move |cell| async move {
            lock(cell).acquire(1).await.map(permit)
        })
        .shared(),
        row("Semaphore::try_acquire", case, Shape::Try, move |cell| async move {
            Ok(lock(cell).try_acquire(1).await?.map(permit).unwrap_or_default())
        })
        .shared(),
        row("Semaphore::acquire_within", case, Shape::Claim, move |cell| async move {
            Ok(lock(cell).acquire_within(1, LONG).await?.map(permit).unwrap_or_default())
        })
        .shared(),
        row("Semaphore::acquire_within", &format!("{case}, 0 s"), Shape::Try, move |cell| async move {
            Ok(lock(cell).acquire_within(1, Duration::ZERO).await?.map(permit).unwrap_or_default())
        })
        .shared(),
    ]
    .into_iter()
}

/// The lock of the cell, and one after it.
fn both(cell: &Cell) -> [Part; 2] {
    [Part::mutex(&cell.name), Part::mutex(cell.second())]
}

fn multi(
    case: &str,
    options: impl Fn(Multi) -> Multi + Send + Sync + Copy + 'static,
) -> impl Iterator<Item = Operation> {
    let lock = move |cell: Cell| options(cell.actor.multi(both(&cell)));
    let reading =
        move |cell: Cell| options(cell.actor.multi([Part::read(&cell.name), Part::read(cell.second())]));
    let permits = move |cell: Cell| {
        options(cell.actor.multi([Part::mutex(&cell.name), Part::permits(cell.second(), 1, PERMITS)]))
    };
    let hold = |guard| vec![Hold::Multi(guard)];
    [
        row("Multi::lock", case, Shape::Claim, move |cell| async move { lock(cell).lock().await.map(hold) }),
        row("Multi::try_lock", case, Shape::Try, move |cell| async move {
            Ok(lock(cell).try_lock().await?.map(hold).unwrap_or_default())
        }),
        row("Multi::try_lock", &format!("{case}, reading"), Shape::Try, move |cell| async move {
            Ok(reading(cell).try_lock().await?.map(hold).unwrap_or_default())
        })
        .shared(),
        row("Multi::lock", &format!("{case}, with permits"), Shape::Claim, move |cell| async move {
            permits(cell).lock().await.map(hold)
        })
        .shared(),
        row("Multi::lock_within", case, Shape::Claim, move |cell| async move {
            Ok(lock(cell).lock_within(LONG).await?.map(hold).unwrap_or_default())
        }),
    ]
    .into_iter()
}

fn striped(order: Order) -> impl Iterator<Item = Operation> {
    let case = order.as_str();
    // The lock of the cell is its only stripe.
    let lock = move |cell: Cell| cell.actor.striped(&cell.base, 1).order(order);
    let hold = |guard| vec![Hold::Multi(guard)];
    [
        row("Striped::lock", case, Shape::Claim, move |cell| async move {
            lock(cell).lock("key").await.map(alone)
        }),
        row("Striped::try_lock", case, Shape::Try, move |cell| async move {
            Ok(lock(cell).try_lock("key").await?.map(alone).unwrap_or_default())
        }),
        row("Striped::lock_within", case, Shape::Claim, move |cell| async move {
            Ok(lock(cell).lock_within("key", LONG).await?.map(alone).unwrap_or_default())
        }),
        row("Striped::lock_all", case, Shape::Claim, move |cell| async move {
            lock(cell).lock_all().await.map(hold)
        }),
        row("Striped::lock_all_within", case, Shape::Claim, move |cell| async move {
            Ok(lock(cell).lock_all_within(LONG).await?.map(hold).unwrap_or_default())
        }),
    ]
    .into_iter()
}

fn leader(order: Order) -> impl Iterator<Item = Operation> {
    let case = order.as_str();
    let election = move |cell: Cell| cell.actor.leader(&cell.name).order(order);
    let hold = |leadership| vec![Hold::Leadership(leadership)];
    [
        row("Leader::campaign", case, Shape::Claim, move |cell| async move {
            election(cell).campaign().await.map(hold)
        }),
        row("Leader::try_campaign", case, Shape::Try, move |cell| async move {
            Ok(election(cell).try_campaign().await?.map(hold).unwrap_or_default())
        }),
        row("Leader::campaign_within", case, Shape::Claim, move |cell| async move {
            Ok(election(cell).campaign_within(LONG).await?.map(hold).unwrap_or_default())
        }),
    ]
    .into_iter()
}

/// What else an election offers.
fn leadership() -> impl Iterator<Item = Operation> {
    let election = |cell: Cell| cell.actor.leader(&cell.name);
    [
        row("Leader::current", "", Shape::Look, move |cell| async move {
            election(cell).current().await.map(|_| Vec::new())
        }),
        row("Leader::observe", "", Shape::Look, move |cell| async move {
            election(cell).observe().await.map(|_| Vec::new())
        }),
        after(
            "Observe::next",
            "",
            Shape::LookForEver,
            move |cell| async move { election(cell).observe().await },
            |mut observe| async move {
                while let Some(seen) = observe.next().await {
                    seen?;
                }
                Ok(Vec::new())
            },
        ),
        after(
            "Leadership::resign",
            "",
            Shape::Holder,
            move |cell| async move { election(cell).campaign().await },
            |leadership| async move { leadership.resign().await.map(|()| Vec::new()) },
        ),
    ]
    .into_iter()
}

/// The same owner again, while it holds.
fn reentrance() -> impl Iterator<Item = Operation> {
    let mutex = |cell: &Cell, owner: &Owner| cell.actor.mutex(&cell.name).owner(owner.clone()).reentrant();
    let rwlock = |cell: &Cell, owner: &Owner| cell.actor.rwlock(&cell.name).owner(owner.clone()).reentrant();
    [
        after(
            "Mutex::lock",
            "re-entry",
            Shape::Holder,
            move |cell| async move {
                let lock = mutex(&cell, &Owner::new());
                Ok((lock.lock().await?, lock))
            },
            |(outer, lock)| async move {
                let inner = lock.lock().await?;
                drop(outer);
                Ok(alone(inner))
            },
        ),
        after(
            "RwLock::read",
            "re-entry of a writer",
            Shape::Holder,
            move |cell| async move {
                let lock = rwlock(&cell, &Owner::new());
                Ok((lock.write().await?, lock))
            },
            |(outer, lock)| async move {
                let inner = lock.read().await?;
                drop(outer);
                Ok(shared(inner))
            },
        )
        .shared(),
        after(
            "Mutex::try_lock",
            "re-entry",
            Shape::Holder,
            move |cell| async move {
                let lock = mutex(&cell, &Owner::new());
                Ok((lock.lock().await?, lock))
            },
            |(outer, lock)| async move {
                let inner = lock.try_lock().await?;
                drop(outer);
                Ok(inner.map(alone).unwrap_or_default())
            },
        ),
        after(
            "Multi::lock",
            "re-entry",
            Shape::Holder,
            move |cell| async move {
                let owner = Owner::new();
                let lock = cell.actor.multi(both(&cell)).owner(owner.clone()).reentrant();
                Ok((mutex(&cell, &owner).lock().await?, lock))
            },
            |(outer, lock)| async move {
                let inner = lock.lock().await?;
                drop(outer);
                Ok(vec![Hold::Multi(inner)])
            },
        ),
        after(
            "Leader::campaign",
            "re-entry",
            Shape::Holder,
            move |cell| async move {
                let lock = cell.actor.leader(&cell.name).owner(Owner::new()).reentrant();
                Ok((lock.campaign().await?, lock))
            },
            |(outer, lock)| async move {
                let inner = lock.campaign().await?;
                drop(outer);
                Ok(vec![Hold::Leadership(inner)])
            },
        ),
        row("OwnerScope::scope", "two claims inside", Shape::Claim, move |cell| async move {
            let lock = cell.actor.mutex(&cell.name).reentrant();
            let claims = async move {
                let outer = lock.lock().await?;
                let inner = lock.lock().await?;
                outer.release().await?;
                Ok(alone(inner))
            };
            Owner::new().scope(claims).await
        }),
    ]
    .into_iter()
}

fn downgrade() -> impl Iterator<Item = Operation> {
    let write = |case: &'static str, order: Order, lease: Option<Duration>| {
        after(
            "WriteGuard::downgrade",
            case,
            Shape::Holder,
            move |cell| async move {
                let lock = cell.actor.rwlock(&cell.name).order(order);
                let lock = lease.map_or(lock.clone(), |lease| lock.lease(lease));
                Ok((lock.write().await?, cell.faulty))
            },
            |(writer, faulty)| async move {
                match Hold::downgraded(writer.downgrade().await) {
                    (_, Some(error)) if !faulty => Err(error),
                    (hold, _) => Ok(vec![hold]),
                }
            },
        )
        .shared()
    };
    [
        write("queue", Order::Queue, None),
        write("barge", Order::Barge, None),
        write("fixed lease", Order::Queue, Some(LONG)),
        after(
            "WriteGuard::downgrade_within",
            "",
            Shape::Holder,
            |cell| async move { Ok((cell.actor.rwlock(&cell.name).write().await?, cell.faulty)) },
            |(writer, faulty)| async move {
                let limit = if faulty { PATIENCE } else { LONG };
                match Hold::downgraded(writer.downgrade_within(limit).await) {
                    (_, Some(error)) if !faulty => Err(error),
                    (hold, _) => Ok(vec![hold]),
                }
            },
        )
        .shared()
        .brief(),
        // Both at once: whoever is second must find what the first one made of it.
        after(
            "WriteGuard::downgrade",
            "beside a re-entry as a writer",
            Shape::Holder,
            |cell| async move {
                let lock = cell.actor.rwlock(&cell.name).owner(Owner::new()).reentrant();
                Ok((lock.write().await?, lock))
            },
            |(writer, lock)| async move {
                let (first, again) = tokio::join!(writer.downgrade(), lock.try_write());
                let (first, _) = Hold::downgraded(first);
                // Both are one hold, and one of them is checked.
                Ok(vec![again.ok().flatten().map_or(first, Hold::Write)])
            },
        )
        .shared(),
    ]
    .into_iter()
}

fn release() -> impl Iterator<Item = Operation> {
    [
        after(
            "Guard::release",
            "",
            Shape::Holder,
            |cell| async move { cell.actor.mutex(&cell.name).lock().await },
            |guard| async move { guard.release().await.map(|()| Vec::new()) },
        ),
        after(
            "Guard::release",
            "reader",
            Shape::Holder,
            |cell| async move { cell.actor.rwlock(&cell.name).read().await },
            |guard| async move { guard.release().await.map(|()| Vec::new()) },
        )
        .shared(),
        after(
            "Guard::release",
            "permits",
            Shape::Holder,
            |cell| async move { cell.actor.semaphore(&cell.name, PERMITS).acquire(1).await },
            |guard| async move { guard.release().await.map(|()| Vec::new()) },
        )
        .shared(),
        after(
            "Guard::release",
            "fixed lease",
            Shape::Holder,
            |cell| async move { cell.actor.mutex(&cell.name).lease(LONG).lock().await },
            |guard| async move { guard.release().await.map(|()| Vec::new()) },
        ),
        after(
            "WriteGuard::release",
            "",
            Shape::Holder,
            |cell| async move { cell.actor.rwlock(&cell.name).write().await },
            |guard| async move { guard.release().await.map(|()| Vec::new()) },
        ),
        after(
            "MultiGuard::release",
            "",
            Shape::Holder,
            |cell| async move { cell.actor.multi(both(&cell)).lock().await },
            |guard| async move { guard.release().await.map(|()| Vec::new()) },
        ),
        after(
            "Guard::release_within",
            "",
            Shape::Holder,
            |cell| async move { cell.actor.mutex(&cell.name).lock().await },
            |guard| async move { guard.release_within(LONG).await.map(|()| Vec::new()) },
        ),
        after(
            "Guard::release_within",
            "1 ms",
            Shape::Holder,
            |cell| async move { cell.actor.mutex(&cell.name).lock().await },
            // Whether or not it was long enough, the release goes on.
            |guard| async move {
                let _ = guard.release_within(Duration::from_millis(1)).await;
                Ok(Vec::new())
            },
        ),
        after(
            "WriteGuard::release_within",
            "",
            Shape::Holder,
            |cell| async move { cell.actor.rwlock(&cell.name).write().await },
            |guard| async move { guard.release_within(LONG).await.map(|()| Vec::new()) },
        )
        .brief(),
        after(
            "MultiGuard::release_within",
            "",
            Shape::Holder,
            |cell| async move { cell.actor.multi(both(&cell)).lock().await },
            |guard| async move { guard.release_within(LONG).await.map(|()| Vec::new()) },
        )
        .brief(),
        after(
            "Leadership::resign_within",
            "",
            Shape::Holder,
            |cell| async move { cell.actor.leader(&cell.name).campaign().await },
            |leadership| async move { leadership.resign_within(LONG).await.map(|()| Vec::new()) },
        )
        .brief(),
        after(
            "Semaphore::set_limit",
            "",
            Shape::Holder,
            |cell| async move {
                let semaphore = cell.actor.semaphore(&cell.name, PERMITS);
                Ok((semaphore.acquire(1).await?, semaphore))
            },
            |(guard, mut semaphore)| async move {
                semaphore.set_limit(PERMITS + 1).await?;
                drop(guard);
                Ok(Vec::new())
            },
        )
        .shared(),
    ]
    .into_iter()
}

/// What a guard offers to those who hold it.
fn guards() -> impl Iterator<Item = Operation> {
    let lock = |cell: Cell| async move { cell.actor.mutex(&cell.name).lock().await };
    let both = |cell: Cell| async move { cell.actor.multi(both(&cell)).lock().await };
    [
        after("Guard::lost", "", Shape::HolderForEver, lock, |guard| async move {
            guard.lost().await;
            Ok(Vec::new())
        }),
        after("Guard::release_requested", "", Shape::HolderForEver, lock, |guard| async move {
            guard.release_requested().await;
            Ok(Vec::new())
        }),
        after("Guard::protect", "", Shape::Holder, lock, |guard| async move {
            let _ = guard.protect(sleep(Duration::from_millis(1))).await;
            Ok(alone(guard))
        }),
        after("MultiGuard::lost", "", Shape::HolderForEver, both, |guard| async move {
            guard.lost().await;
            Ok(Vec::new())
        }),
        after("MultiGuard::release_requested", "", Shape::HolderForEver, both, |guard| async move {
            guard.release_requested().await;
            Ok(Vec::new())
        }),
        after("MultiGuard::protect", "", Shape::Holder, both, |guard| async move {
            let _ = guard.protect(sleep(Duration::from_millis(1))).await;
            Ok(vec![Hold::Multi(guard)])
        }),
    ]
    .into_iter()
}

fn views() -> impl Iterator<Item = Operation> {
    [
        row("Client::inspect", "", Shape::Look, |cell| async move {
            cell.actor.inspect(&cell.name).await.map(|_| Vec::new())
        }),
        row("Client::list", "", Shape::Look, |cell| async move {
            let mut list = cell.actor.list(&cell.name);
            std::future::poll_fn(|cx| futures_util::Stream::poll_next(std::pin::Pin::new(&mut list), cx))
                .await;
            Ok(Vec::new())
        }),
        row("Listing::next", "", Shape::Look, |cell| async move {
            let mut list = cell.actor.list(&cell.name);
            while let Some(found) = list.next().await {
                found?;
            }
            Ok(Vec::new())
        }),
        row("Client::watch", "", Shape::Look, |cell| async move {
            cell.actor.watch(&cell.name).await.map(|_| Vec::new())
        }),
        after(
            "Watch::next",
            "",
            Shape::LookForEver,
            |cell| async move { cell.actor.watch(&cell.name).await },
            |mut watch| async move {
                while watch.next().await.is_some() {}
                Ok(Vec::new())
            },
        ),
        row("Client::request_release", "", Shape::Look, |cell| async move {
            cell.actor.request_release(&cell.name, None).await.map(|_| Vec::new())
        }),
    ]
    .into_iter()
}

fn revocation() -> impl Iterator<Item = Operation> {
    [
        row("Client::force_release", "", Shape::Revoke, |cell| async move {
            let revocation = cell.registry.revocation(&cell.name);
            cell.actor.force_release(&cell.name, None).await?;
            revocation.done(None);
            Ok(Vec::new())
        }),
        row("Client::force_release", "with a token", Shape::Revoke, |cell| async move {
            let holders = cell.observer.inspect(&cell.name).await?.holders;
            let Some(token) = holders.first().and_then(|entry| entry.token) else { return Ok(Vec::new()) };
            let revocation = cell.registry.revocation(&cell.name);
            // It may belong to somebody else by now.
            if cell.actor.force_release(&cell.name, Some(token)).await.is_ok_and(|taken| !taken.is_empty()) {
                revocation.done(Some(token));
            }
            Ok(Vec::new())
        }),
    ]
    .into_iter()
}

fn clients() -> impl Iterator<Item = Operation> {
    [
        row("Client::close", "", Shape::Close, |cell| async move {
            cell.actor.close().await?;
            cell.registry.closed(cell.actor.session());
            Ok(Vec::new())
        }),
        // Requests that are on their way when the client says goodbye.
        row("Client::close", "beside claims", Shape::Close, |cell| async move {
            let lock = cell.actor.mutex(cell.second());
            let barging = lock.clone().order(Order::Barge);
            let closing = async {
                let closed = cell.actor.close().await;
                if closed.is_ok() {
                    cell.registry.closed(cell.actor.session());
                }
                closed
            };
            let (a, b, closed) = tokio::join!(lock.lock(), barging.lock(), closing);
            closed?;
            Ok(a.into_iter().chain(b).flat_map(alone).collect())
        }),
        // The future of a claim lives on, and nothing polls it.
        row("Client::close", "beside a claim that is not polled", Shape::Close, |cell| async move {
            let lock = cell.actor.mutex(cell.second());
            let mut claim = Box::pin(lock.lock());
            let granted = (&mut claim).now_or_never();
            cell.actor.close().await?;
            cell.registry.closed(cell.actor.session());
            let left = cell.observer.inspect(cell.second()).await?;
            if !left.holders.is_empty() || !left.waiters.is_empty() {
                cell.registry.wrong(&cell.name, format!("after the close the store shows {left:#?}"));
            }
            drop(granted);
            Ok(Vec::new())
        }),
        row("Client::open", "", Shape::Look, |cell| async move {
            Client::open(cell.store.clone()).await.map(|_| Vec::new())
        })
        .opens(),
        row("ClientBuilder::open", "and a lock", Shape::Claim, |cell| async move {
            let client = Client::builder().label("new").open(cell.store.clone()).await?;
            let guard = client.mutex(&cell.name).lock().await?;
            guard.release().await.map(|()| Vec::new())
        })
        .opens(),
    ]
    .into_iter()
}
