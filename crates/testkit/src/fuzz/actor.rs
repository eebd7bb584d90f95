//! What one task does: claims a lock in some way, does something while it holds it, and gives it back in some way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_client::{Backoff, Client, Order, Owner, Part};
use leasehold_core::{Error, Kind, Result, Token, Want};
use tokio::time::{sleep, timeout};

use super::dice::{Cut, Dice, Ended};
use super::{NAMES, Round, SLOTS};
use crate::cancellation_matrix::Boxed;
use crate::registry::{Hold, Stay, Who};
use crate::wait::PATIENCE;

/// The limit of all semaphores.
const PERMITS: u32 = 3;

/// How long a claim is waited for that may have to wait for as long as others come.
const A_WHILE: Duration = Duration::from_secs(3);

/// A task.
pub struct Actor {
    round: Arc<Round>,
    task: usize,
    dice: Dice,
    /// How often it has claimed: with the task, the number of an owner.
    count: u64,
}

/// What a claim asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Mutex,
    Read,
    Write,
    Permits(u32),
    Multi,
    Leader,
    Striped,
}

/// How long a claim waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    AsLongAsItTakes,
    Try,
    Within(Duration),
}

/// One claim, with what is needed to make it again.
#[derive(Clone)]
struct Claim {
    client: Client,
    name: &'static str,
    wanted: Wanted,
    order: Order,
    lease: Option<Duration>,
    owner: Option<Owner>,
    who: Who,
}

impl Claim {
    fn describe(&self, patience: Patience) -> String {
        let Claim { wanted, order, lease, owner, .. } = self;
        let (order, owner) = (order.as_str(), if owner.is_some() { ", owner" } else { "" });
        format!("{} claims {wanted:?}, {order}, lease {lease:?}{owner}, {patience:?}", self.who.label)
    }

    /// Whether it gets in at last, whatever the others do: one that barges or spins may not, and a lease that is over before
    /// the answer comes is never had.
    fn gets_in(&self) -> bool {
        self.order == Order::Queue && self.lease.is_none_or(|lease| lease > Duration::from_secs(1))
    }

    /// The claim as a future.
    fn ask(&self, wanted: Wanted, patience: Patience) -> Boxed<Result<Option<Hold>>> {
        let Claim { client, name, order, lease, owner, .. } = self.clone();
        macro_rules! with_options {
            ($lock:expr) => {{
                let mut lock = $lock.order(order);
                if let Some(lease) = lease {
                    lock = lock.lease(lease);
                }
                if let Some(owner) = owner {
                    lock = lock.owner(owner).reentrant();
                }
                lock
            }};
        }
        macro_rules! by_patience {
            ($waits:expr, $tries:expr, $within:expr, $hold:expr) => {
                match patience {
                    Patience::AsLongAsItTakes => $waits.await.map($hold).map(Some),
                    Patience::Try => $tries.await.map(|got| got.map($hold)),
                    Patience::Within(time) => $within(time).await.map(|got| got.map($hold)),
                }
            };
        }
        Box::pin(async move {
            match wanted {
                Wanted::Mutex => {
                    let lock = with_options!(client.mutex(name));
                    let hold = |guard| Hold::Guard(guard, Want::Exclusive);
                    by_patience!(lock.lock(), lock.try_lock(), |time| lock.lock_within(time), hold)
                }
                Wanted::Read => {
                    let lock = with_options!(client.rwlock(name));
                    let hold = |guard| Hold::Guard(guard, Want::Shared);
                    by_patience!(lock.read(), lock.try_read(), |time| lock.read_within(time), hold)
                }
                Wanted::Write => {
                    let lock = with_options!(client.rwlock(name));
                    by_patience!(lock.write(), lock.try_write(), |time| lock.write_within(time), Hold::Write)
                }
                Wanted::Permits(n) => {
                    let lock = with_options!(client.semaphore(name, PERMITS));
                    let hold = |guard| Hold::Guard(guard, Want::Permits { n, of: PERMITS });
                    by_patience!(
                        lock.acquire(n),
                        lock.try_acquire(n),
                        |time| lock.acquire_within(n, time),
                        hold
                    )
                }
                Wanted::Multi => {
                    let lock = with_options!(client.multi([Part::mutex(NAMES[0]), Part::mutex(NAMES[1])]));
                    by_patience!(lock.lock(), lock.try_lock(), |time| lock.lock_within(time), Hold::Multi)
                }
                Wanted::Leader => {
                    let lock = with_options!(client.leader(name));
                    let hold = Hold::Leadership;
                    by_patience!(
                        lock.campaign(),
                        lock.try_campaign(),
                        |time| lock.campaign_within(time),
                        hold
                    )
                }
                Wanted::Striped => {
                    let lock = with_options!(client.striped("s", 1));
                    let hold = |guard| Hold::Guard(guard, Want::Exclusive);
                    by_patience!(lock.lock("k"), lock.try_lock("k"), |time| lock.lock_within("k", time), hold)
                }
            }
        })
    }
}

impl Actor {
    /// A task that makes these choices.
    pub fn new(round: Arc<Round>, task: usize, dice: Dice) -> Self {
        Actor { round, task, dice, count: 0 }
    }

    /// Makes one claim, and does what follows from it.
    pub async fn claim(&mut self) {
        self.count += 1;
        self.round.claims.fetch_add(1, Ordering::Relaxed);
        if self.dice.one_in(150) {
            return self.close_and_reopen().await;
        }
        if self.round.revokes && self.dice.one_in(12) {
            return self.revoke_any().await;
        }
        let claim = self.choose();
        let patience = match self.dice.below(8) {
            0 | 1 => Patience::Try,
            2 => Patience::Within(Duration::ZERO),
            3 => Patience::Within(self.dice.micros(20_000)),
            _ => Patience::AsLongAsItTakes,
        };
        // A try is always waited for: it has to answer.
        let tries = matches!(patience, Patience::Try | Patience::Within(_)) && !self.dice.one_in(3);
        let cut = match if tries { Cut::Never } else { self.dice.cut() } {
            Cut::Never if !tries && !claim.gets_in() => Cut::Time(A_WHILE),
            cut => cut,
        };
        self.say(&claim, format!("{}, {cut:?}", claim.describe(patience)));
        let ended = cut.run(claim.ask(claim.wanted, patience)).await;
        let Some(hold) = self.got(&claim, patience, ended) else { return };
        let stay = self.round.registry.enter(&claim.who, hold);
        if self.dice.one_in(4) {
            self.compare(&claim, &stay).await;
        }
        self.hold(&claim, stay).await;
    }

    /// What is claimed, by which client, for whom.
    fn choose(&mut self) -> Claim {
        let slot =
            if self.dice.one_in(3) { self.dice.below(SLOTS as u64) as usize } else { self.task % SLOTS };
        let client = self.round.client(slot);
        let traits = client.traits();
        let wanted = match self.dice.below(if traits.shared { 13 } else { 6 }) {
            0 | 1 => Wanted::Mutex,
            2 => Wanted::Write,
            3 => Wanted::Multi,
            4 => Wanted::Leader,
            5 => Wanted::Striped,
            6 | 7 => Wanted::Write,
            8..=10 => Wanted::Read,
            n => Wanted::Permits(1 + (n as u32 % 2)),
        };
        let name = match wanted {
            Wanted::Multi => NAMES[0],
            Wanted::Striped => NAMES[1],
            _ => NAMES[self.dice.below(NAMES.len() as u64) as usize],
        };
        let spin = Backoff { first: Duration::from_millis(1), most: Duration::from_millis(8) };
        let order = match self.dice.below(6) {
            0 => Order::Barge,
            1 => Order::Spin(spin),
            _ => Order::Queue,
        };
        let lease = match self.dice.below(8) {
            // One that ends while it is held.
            0 => Some(traits.shortest_lease.max(Duration::from_millis(20)) + self.dice.micros(30_000)),
            1 => Some(Duration::from_secs(60)),
            _ => None,
        };
        let number = self.task as u64 * 1_000_000 + self.count;
        let owner = self.dice.one_in(3).then(Owner::new);
        let label = format!("task {} claim {} of client {slot}", self.task, self.count);
        let who = Who { label, session: client.session(), owner: owner.as_ref().map(|_| number) };
        Claim { client, name, wanted, order, lease, owner, who }
    }

    fn say(&self, claim: &Claim, what: impl std::fmt::Display) {
        self.round.registry.say(claim.name, what);
    }

    fn wrong(&self, claim: &Claim, what: impl std::fmt::Display) {
        self.round.registry.wrong(claim.name, format!("{}: {what}", claim.who.label));
    }

    /// What came of a claim.
    fn got(&self, claim: &Claim, patience: Patience, ended: Ended<Result<Option<Hold>>>) -> Option<Hold> {
        match ended {
            Ended::Done(Ok(got)) => got,
            Ended::Done(Err(error)) => {
                self.failed(claim, &error);
                None
            }
            Ended::Dropped => None,
            Ended::Hangs => {
                self.wrong(claim, format!("{} does not answer", claim.describe(patience)));
                None
            }
        }
    }

    /// Which errors are all right on a store that is well.
    fn failed(&self, claim: &Claim, error: &Error) {
        match error.kind() {
            Kind::Unavailable => super::lock(&self.round.unavailable).push(error.to_string()),
            // Closed by another task; or the owner asked for what it has.
            Kind::Refused => {}
            // A lease that ended while the other parts of a multi-lock were waited for.
            Kind::Lost if claim.wanted == Wanted::Multi => {}
            _ => self.wrong(claim, format!("an error: {error}")),
        }
    }

    /// What is believed, against what the store shows.
    async fn compare(&mut self, claim: &Claim, stay: &Stay) {
        if let Err(error) = stay.compare(&self.round.observer).await {
            self.failed(claim, &error);
        }
    }

    /// Does something while the lock is held, and gives it back.
    async fn hold(&mut self, claim: &Claim, mut stay: Stay) {
        if matches!(stay.hold(), Hold::Write(_)) && self.dice.one_in(3) {
            let Some(still) = self.downgrade(claim, stay).await else { return };
            stay = still;
        }
        for _ in 0..self.dice.below(3) {
            let Some(still) = self.act(claim, stay).await else { return };
            stay = still;
        }
        if claim.lease.is_some_and(|lease| lease < Duration::from_secs(1)) && self.dice.one_in(2) {
            self.overstay(claim, &stay).await;
        }
        self.leave(claim, stay).await;
    }

    async fn act(&mut self, claim: &Claim, stay: Stay) -> Option<Stay> {
        match self.dice.below(12) {
            0 | 1 => sleep(self.dice.micros(3000)).await,
            2 => self.compare(claim, &stay).await,
            3 => self.try_beside(claim).await,
            4 => self.request(claim).await,
            5 if self.round.revokes => {
                let guard = &stay.hold().guards()[0];
                let token = self.dice.one_in(2).then(|| guard.token());
                self.revoke(guard.name().to_owned(), token).await;
            }
            6 if claim.owner.is_some() => return self.re_enter(claim, stay).await,
            7 => return self.downgrade(claim, stay).await,
            8 | 9 => self.await_something(claim, &stay).await,
            10 => self.look(claim).await,
            _ => tokio::task::yield_now().await,
        }
        Some(stay)
    }

    /// A try of the same or of another client, while the lock is held.
    async fn try_beside(&mut self, claim: &Claim) {
        let client = self.round.client(self.dice.below(SLOTS as u64) as usize);
        let wanted = match self.dice.below(3) {
            0 if client.traits().shared => Wanted::Read,
            1 => Wanted::Multi,
            _ => Wanted::Mutex,
        };
        let label = format!("{} trying", claim.who.label);
        let who = Who { label, session: client.session(), owner: None };
        let beside = Claim { client, wanted, owner: None, lease: None, who, ..claim.clone() };
        let patience = if self.dice.one_in(2) { Patience::Try } else { Patience::Within(Duration::ZERO) };
        self.say(&beside, beside.describe(patience));
        let ended = Cut::Never.run(beside.ask(wanted, patience)).await;
        if let Some(hold) = self.got(&beside, patience, ended) {
            let stay = self.round.registry.enter(&beside.who, hold);
            self.leave(&beside, stay).await;
        }
    }

    /// Another client asks for the lock back.
    async fn request(&mut self, claim: &Claim) {
        let client = self.round.client(self.dice.below(SLOTS as u64) as usize);
        let name = claim.name;
        self.say(claim, format!("{} asks for a release", claim.who.label));
        let request: Boxed<Result<()>> =
            Box::pin(async move { client.request_release(name, None).await.map(|_| ()) });
        if let Some(Err(error)) = self.dice.cut().run(request).await.output() {
            self.failed(claim, &error);
        }
    }

    /// Whoever holds a lock loses it.
    async fn revoke_any(&mut self) {
        let name = NAMES[self.dice.below(NAMES.len() as u64) as usize];
        self.revoke(name.to_owned(), None).await;
    }

    /// A client takes a lock away.
    async fn revoke(&mut self, name: String, token: Option<Token>) {
        let client = self.round.client(self.dice.below(SLOTS as u64) as usize);
        let (registry, of) = (self.round.registry.clone(), name.clone());
        let revoke: Boxed<Result<()>> = Box::pin(async move {
            let revocation = registry.revocation(&name);
            if !client.force_release(name, token).await?.is_empty() || token.is_none() {
                revocation.done(token);
            }
            Ok(())
        });
        let revoked = self.dice.cut().run(revoke).await.output();
        if let Some(Err(error)) = revoked
            // Another one has it by now; or the client is closed.
            && !matches!(error.kind(), Kind::Mismatch | Kind::Refused)
        {
            self.round.registry.wrong(&of, format!("a forced release failed: {error}"));
        }
    }

    /// The same owner again.
    async fn re_enter(&mut self, claim: &Claim, stay: Stay) -> Option<Stay> {
        let wanted = match claim.wanted {
            Wanted::Write if self.dice.one_in(2) => Wanted::Read,
            wanted => wanted,
        };
        if matches!(wanted, Wanted::Permits(_)) {
            return Some(stay);
        }
        self.say(claim, format!("{} re-enters as {wanted:?}", claim.who.label));
        let cut = self.dice.cut();
        // It may wait if the hold ended meanwhile, but then not for ever.
        let patience = Patience::Within(Duration::from_millis(20));
        let ended = cut.run(claim.ask(wanted, patience)).await;
        let Some(hold) = self.got(claim, patience, ended) else { return Some(stay) };
        let inner = self.round.registry.enter(&claim.who, hold);
        let (first, second) = if self.dice.one_in(2) { (inner, stay) } else { (stay, inner) };
        self.leave(claim, first).await;
        Some(second)
    }

    /// A writer becomes a reader, perhaps while its owner asks once more.
    async fn downgrade(&mut self, claim: &Claim, stay: Stay) -> Option<Stay> {
        if !claim.client.traits().shared || !matches!(stay.hold(), Hold::Write(_)) {
            return Some(stay);
        }
        let Hold::Write(writer) = stay.leave().await else { return None };
        self.say(claim, format!("{} downgrades", claim.who.label));
        let again = (claim.owner.is_some() && self.dice.one_in(2))
            .then(|| claim.ask(Wanted::Write, Patience::Within(Duration::from_millis(5))));
        let both: Boxed<(Hold, Option<Hold>)> = Box::pin(async move {
            let Some(again) = again else { return (Hold::downgraded(writer.downgrade().await).0, None) };
            let (first, again) = tokio::join!(writer.downgrade(), again);
            (Hold::downgraded(first).0, again.ok().flatten())
        });
        let (first, again) = self.dice.cut().run(both).await.output()?;
        let first = self.round.registry.enter(&claim.who, first);
        if let Some(again) = again {
            let again = self.round.registry.enter(&claim.who, again);
            self.leave(claim, again).await;
        }
        Some(first)
    }

    /// Futures of a guard that never end while nothing happens to it.
    async fn await_something(&mut self, claim: &Claim, stay: &Stay) {
        let guard = &stay.hold().guards()[0];
        let pause = self.dice.micros(2000);
        match self.dice.below(3) {
            0 => {
                if let Ok(why) = timeout(pause, guard.lost()).await {
                    self.round.registry.lost(guard.name(), &claim.who.label, why);
                }
            }
            1 => drop(timeout(pause, guard.release_requested()).await),
            _ => {
                if let Err(why) = guard.protect(sleep(pause)).await {
                    self.round.registry.lost(guard.name(), &claim.who.label, why);
                }
            }
        }
    }

    /// Everything that only looks.
    async fn look(&mut self, claim: &Claim) {
        let (client, name, which) = (claim.client.clone(), claim.name, self.dice.below(6));
        let look: Boxed<Result<()>> = Box::pin(async move {
            let moment = Duration::from_millis(1);
            match which {
                0 => drop(client.inspect(name).await?),
                1 => {
                    let mut list = client.list("");
                    while let Some(found) = list.next().await {
                        found?;
                    }
                }
                2 => drop(timeout(moment, client.watch("").await?.next()).await),
                3 => drop(client.leader(name).current().await?),
                4 => drop(timeout(moment, client.leader(name).observe().await?.next()).await),
                // Every handle has this limit: nothing changes.
                _ if client.traits().shared => client.semaphore(name, PERMITS).set_limit(PERMITS).await?,
                _ => {}
            }
            Ok(())
        });
        if let Some(Err(error)) = self.dice.cut().run(look).await.output() {
            self.failed(claim, &error);
        }
    }

    /// Holds until the lease has ended.
    async fn overstay(&mut self, claim: &Claim, stay: &Stay) {
        for guard in stay.hold().guards() {
            match timeout(PATIENCE, guard.lost()).await {
                Ok(why) => {
                    self.round.registry.lost(guard.name(), &claim.who.label, why);
                    if guard.is_held() {
                        self.wrong(claim, "a guard that said it is lost is held");
                    }
                }
                // A re-entry has the lease of the hold that it joined.
                Err(_) if claim.owner.is_some() => {}
                Err(_) => self.wrong(claim, "a fixed lease does not end"),
            }
        }
    }

    /// Gives a lock back in some way.
    async fn leave(&mut self, claim: &Claim, stay: Stay) {
        let hold = stay.leave().await;
        if self.dice.one_in(3) {
            return drop(hold);
        }
        let released = self.dice.cut().run(Box::pin(hold.release())).await;
        if let Ended::Hangs = released {
            self.wrong(claim, "a release does not answer");
        }
        if let Some(result) = released.output() {
            self.round.registry.released(&claim.who.label, &result);
            match result {
                Err(error) if error.kind() != Kind::Lost => self.failed(claim, &error),
                _ => {}
            }
        }
    }

    /// Closes a client under the hands of its tasks.
    async fn close_and_reopen(&mut self) {
        let slot = self.dice.below(SLOTS as u64) as usize;
        let client = self.round.client(slot);
        let (session, closing) = (client.session(), client.clone());
        for name in NAMES {
            self.round.registry.say(name, format!("task {} closes client {slot}", self.task));
        }
        let closed = self.dice.cut().run(Box::pin(async move { closing.close().await })).await;
        match closed {
            // Another task may have begun it before; then it is closed when that one is.
            Ended::Done(Ok(())) => self.round.registry.closed(session),
            Ended::Done(Err(error)) => {
                self.round.registry.wrong("", format!("a client could not be closed: {error}"));
            }
            Ended::Dropped => {}
            Ended::Hangs => self.round.registry.wrong("", "close does not answer"),
        }
        self.round.reopen(slot).await;
    }
}
