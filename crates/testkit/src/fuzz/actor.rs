//! What one task does: claims a lock in some way, does something while it holds it, and gives it back in some way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold_client::{Backoff, Client, Order, Owner, Part};
use leasehold_core::{Error, Kind, Result, Token, Want};
use tokio::time::{sleep, timeout};

use super::dice::{Cut, Dice, Ended};
use super::{BUSY, QUIET, Round, SLOTS, STRIPES, names};
use crate::cancellation_matrix::Boxed;
use crate::registry::{Hold, Stay, Usage, Who};
use crate::wait::PATIENCE;

/// The limit of most semaphores, which may be changed to one more.
const PERMITS: u32 = 3;

/// A claim that is answered later than this may have been sent twice: one of the two requests may still be on its way.
const QUICK: Duration = Duration::from_millis(300);

/// How long a claim is waited for that may have to wait for as long as others come.
const A_WHILE: Duration = Duration::from_secs(3);

/// A task.
pub struct Actor {
    round: Arc<Round>,
    task: usize,
    dice: Dice,
    /// How often it has claimed: with the task, the number of an owner.
    count: u64,
    /// Whether all that was done since the claim began is certainly over at the store.
    clean: bool,
}

/// What a claim asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Mutex,
    Read,
    Write,
    Permits(u32),
    Multi(Parts),
    Leader,
    Striped,
    AllStripes,
}

/// What a multi-lock asks for, of the two names that it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    Alone,
    Reading,
    ReadingOne,
    PermitsOfOne,
}

impl Wanted {
    /// Whether it wants permits: others may say another limit.
    fn permits(self) -> bool {
        matches!(self, Wanted::Permits(_) | Wanted::Multi(Parts::PermitsOfOne))
    }

    /// Whether it wants more than one name.
    fn several(self) -> bool {
        matches!(self, Wanted::Multi(_) | Wanted::AllStripes)
    }
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
    /// The striped lock whose stripes the names are.
    base: String,
    name: String,
    /// The limit of its semaphores.
    limit: u32,
    wanted: Wanted,
    order: Order,
    lease: Option<Duration>,
    owner: Option<Owner>,
    who: Who,
}

impl Claim {
    fn describe(&self, patience: Patience) -> String {
        let Claim { name, wanted, order, lease, owner, .. } = self;
        let (order, owner) = (order.as_str(), if owner.is_some() { ", owner" } else { "" });
        format!(
            "{} claims {wanted:?} of {name}, {order}, lease {lease:?}{owner}, {patience:?}",
            self.who.label
        )
    }

    /// Whether it gets in at last, whatever the others do: one that barges or spins may not, and a lease that is over before
    /// the answer comes is never had.
    fn gets_in(&self) -> bool {
        self.order == Order::Queue && self.lease.is_none_or(|lease| lease > Duration::from_secs(1))
    }

    /// The claim as a future.
    fn ask(&self, wanted: Wanted, patience: Patience) -> Boxed<Result<Option<Hold>>> {
        let Claim { client, base, name, limit, order, lease, owner, .. } = self.clone();
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
                    let lock = with_options!(client.mutex(&name));
                    let hold = |guard| Hold::Guard(guard, Want::Exclusive);
                    by_patience!(lock.lock(), lock.try_lock(), |time| lock.lock_within(time), hold)
                }
                Wanted::Read => {
                    let lock = with_options!(client.rwlock(&name));
                    let hold = |guard| Hold::Guard(guard, Want::Shared);
                    by_patience!(lock.read(), lock.try_read(), |time| lock.read_within(time), hold)
                }
                Wanted::Write => {
                    let lock = with_options!(client.rwlock(&name));
                    by_patience!(lock.write(), lock.try_write(), |time| lock.write_within(time), Hold::Write)
                }
                Wanted::Permits(n) => {
                    let lock = with_options!(client.semaphore(&name, limit));
                    let hold = |guard| Hold::Guard(guard, Want::Permits { n, of: limit });
                    by_patience!(
                        lock.acquire(n),
                        lock.try_acquire(n),
                        |time| lock.acquire_within(n, time),
                        hold
                    )
                }
                Wanted::Multi(parts) => {
                    let [first, second] = names(&base);
                    let parts = match parts {
                        Parts::Alone => [Part::mutex(first), Part::mutex(second)],
                        Parts::Reading => [Part::read(first), Part::read(second)],
                        Parts::ReadingOne => [Part::read(first), Part::write(second)],
                        Parts::PermitsOfOne => [Part::mutex(first), Part::permits(second, 1, limit)],
                    };
                    let lock = with_options!(client.multi(parts));
                    by_patience!(lock.lock(), lock.try_lock(), |time| lock.lock_within(time), Hold::Multi)
                }
                Wanted::Leader => {
                    let lock = with_options!(client.leader(&name));
                    let hold = Hold::Leadership;
                    by_patience!(
                        lock.campaign(),
                        lock.try_campaign(),
                        |time| lock.campaign_within(time),
                        hold
                    )
                }
                Wanted::Striped => {
                    let lock = with_options!(client.striped(&base, STRIPES));
                    let hold = |guard| Hold::Guard(guard, Want::Exclusive);
                    let stripe = u32::from(names(&base)[1] == name);
                    let key =
                        (0..u32::MAX).map(|key| key.to_string()).find(|key| lock.stripe_of(key) == stripe);
                    let key = key.expect("each stripe has keys");
                    by_patience!(
                        lock.lock(&key),
                        lock.try_lock(&key),
                        |time| lock.lock_within(&key, time),
                        hold
                    )
                }
                Wanted::AllStripes => {
                    let lock = with_options!(client.striped(&base, STRIPES));
                    by_patience!(
                        lock.lock_all(),
                        lock.lock_all_within(Duration::ZERO),
                        |time| lock.lock_all_within(time),
                        Hold::Multi
                    )
                }
            }
        })
    }
}

impl Actor {
    /// A task that makes these choices.
    pub fn new(round: Arc<Round>, task: usize, dice: Dice) -> Self {
        Actor { round, task, dice, count: 0, clean: false }
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
        self.clean = true;
        let usage = self.usage(&claim);
        if let Some(hold) = self.ask(&claim, claim.wanted, patience, cut, &usage).await {
            let stay = self.round.registry.enter(&claim.who, hold);
            if self.dice.one_in(4) {
                self.compare(&claim, &stay).await;
            }
            self.hold(&claim, stay).await;
        }
        self.end(usage);
    }

    /// The names of a claim are in use from now on.
    fn usage(&self, claim: &Claim) -> Usage {
        let [first, second] = names(&claim.base);
        let reads = match claim.wanted {
            Wanted::Read | Wanted::Multi(Parts::Reading) => [true, true],
            Wanted::Multi(Parts::ReadingOne) => [true, false],
            _ => [false, false],
        };
        let all = [(first, reads[0]), (second, reads[1])].into_iter();
        let used = all.filter(|(name, _)| claim.wanted.several() || *name == claim.name);
        self.round.registry.usage(&claim.who, used)
    }

    /// A claim is over, with all that followed from it.
    fn end(&self, usage: Usage) {
        if self.clean {
            usage.nothing_left();
        }
    }

    /// Makes a claim, or what the cut leaves of it.
    async fn ask(
        &mut self,
        claim: &Claim,
        wanted: Wanted,
        patience: Patience,
        cut: Cut,
        usage: &Usage,
    ) -> Option<Hold> {
        let began = Instant::now();
        let ended = cut.run(claim.ask(wanted, patience)).await;
        if let (Ended::Done(Ok(answer)), Patience::Try | Patience::Within(_)) = (&ended, patience) {
            // A claim whose own lease is over before it is answered may have met what is left of its first request.
            let outlived = claim.lease.is_some_and(|lease| began.elapsed() >= lease);
            if answer.is_some() || !outlived {
                usage.answered(answer.is_some());
            }
        }
        // What leaves nothing behind: a guard, until it is given back, and a try that was answered soon.
        self.clean &= began.elapsed() < QUICK
            && match &ended {
                Ended::Done(Ok(Some(_))) => true,
                // One that wants several may have had some of them.
                Ended::Done(Ok(None)) => {
                    let tries = matches!(patience, Patience::Try | Patience::Within(Duration::ZERO));
                    tries && !wanted.several()
                }
                _ => false,
            };
        self.got(claim, patience, ended)
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
            3 if traits.shared => Wanted::Multi(match self.dice.below(5) {
                0 | 1 => Parts::Alone,
                2 => Parts::Reading,
                3 => Parts::ReadingOne,
                _ => Parts::PermitsOfOne,
            }),
            3 => Wanted::Multi(Parts::Alone),
            4 => Wanted::Leader,
            5 if self.dice.one_in(3) => Wanted::AllStripes,
            5 => Wanted::Striped,
            6 | 7 => Wanted::Write,
            8..=10 => Wanted::Read,
            n => Wanted::Permits(1 + (n as u32 % 2)),
        };
        let base = if self.dice.one_in(3) { self.quiet() } else { BUSY.to_owned() };
        let name = names(&base)[self.dice.below(u64::from(STRIPES)) as usize].clone();
        let limit = PERMITS + u32::from(self.dice.one_in(8));
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
        Claim { client, base, name, limit, wanted, order, lease, owner, who }
    }

    /// Names that few tasks use at a time. If something may be left of the last usage, there are new ones, as a rule.
    fn quiet(&mut self) -> String {
        let pair = self.dice.below(QUIET as u64) as usize;
        let count = &self.round.quiet[pair];
        let base = |count| format!("quiet {pair}.{count}");
        let now = base(count.load(Ordering::Relaxed));
        let traces = names(&now).iter().any(|name| self.round.registry.has_traces(name));
        if !traces || self.dice.one_in(3) {
            return now;
        }
        base(count.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn say(&self, claim: &Claim, what: impl std::fmt::Display) {
        self.round.registry.say(&claim.name, what);
    }

    fn wrong(&self, claim: &Claim, what: impl std::fmt::Display) {
        self.round.registry.wrong(&claim.name, format!("{}: {what}", claim.who.label));
    }

    /// What came of a claim.
    fn got(&self, claim: &Claim, patience: Patience, ended: Ended<Result<Option<Hold>>>) -> Option<Hold> {
        match ended {
            Ended::Done(Ok(got)) => got,
            Ended::Done(Err(error)) => {
                self.failed(claim, patience, &error);
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
    fn failed(&self, claim: &Claim, patience: Patience, error: &Error) {
        match error.kind() {
            // Less than a trip to the store may take: its limit, or its lease.
            Kind::Unavailable if matches!(patience, Patience::Within(time) if time < PATIENCE) => {}
            Kind::Unavailable if claim.lease.is_some_and(|lease| lease < QUICK) => {}
            Kind::Unavailable => super::lock(&self.round.unavailable).push(error.to_string()),
            // Closed by another task; or the owner asked for what it has.
            Kind::Refused => {}
            // A lease that ended while the other parts of a multi-lock were waited for.
            Kind::Lost if claim.wanted.several() => {}
            // Others say another limit.
            Kind::Mismatch if claim.wanted.permits() => {}
            _ => self.wrong(claim, format!("an error: {error}")),
        }
    }

    /// What is believed, against what the store shows.
    async fn compare(&mut self, claim: &Claim, stay: &Stay) {
        if let Err(error) = stay.compare(&self.round.observer).await {
            self.failed(claim, Patience::AsLongAsItTakes, &error);
        }
    }

    /// Does something while the lock is held, and gives it back.
    async fn hold(&mut self, claim: &Claim, mut stay: Stay) {
        if matches!(stay.hold(), Hold::Write(_)) && self.dice.one_in(3) {
            let Some(still) = self.downgrade(claim, stay).await else { return };
            stay = still;
        }
        if matches!(claim.wanted, Wanted::Read | Wanted::Multi(Parts::Reading)) && self.dice.one_in(2) {
            self.try_at_once(claim).await;
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
            1 => Wanted::Multi(Parts::Alone),
            _ => Wanted::Mutex,
        };
        let label = format!("{} trying", claim.who.label);
        let who = Who { label, session: client.session(), owner: None };
        let beside = Claim { client, wanted, owner: None, lease: None, who, ..claim.clone() };
        let patience = if self.dice.one_in(2) { Patience::Try } else { Patience::Within(Duration::ZERO) };
        self.say(&beside, beside.describe(patience));
        let usage = self.usage(&beside);
        if let Some(hold) = self.ask(&beside, wanted, patience, Cut::Never, &usage).await {
            let stay = self.round.registry.enter(&beside.who, hold);
            self.leave(&beside, stay).await;
        }
        self.end(usage);
    }

    /// Several tries at once by one client, beside a reader: more than some clients hand on before they ask the store.
    async fn try_at_once(&mut self, claim: &Claim) {
        let client = match self.dice.below(4) {
            0 => self.round.client(self.dice.below(SLOTS as u64) as usize),
            _ => claim.client.clone(),
        };
        let label = format!("{} trying at once", claim.who.label);
        let who = Who { label, session: client.session(), owner: None };
        let (wanted, patience) = (Wanted::Read, Patience::Try);
        let beside = Claim { client, wanted, owner: None, lease: None, who, ..claim.clone() };
        self.say(&beside, beside.describe(patience));
        let (usage, began) = (self.usage(&beside), Instant::now());
        let tries = join_all((0..6).map(|_| beside.ask(wanted, patience)));
        let Ended::Done(answers) = Cut::Never.run(Box::pin(tries)).await else {
            return self.wrong(&beside, "tries at once don't answer");
        };
        self.clean &= began.elapsed() < QUICK && answers.iter().all(Result::is_ok);
        answers.iter().flatten().for_each(|answer| usage.answered(answer.is_some()));
        for answer in answers {
            match answer {
                Ok(Some(hold)) => {
                    let stay = self.round.registry.enter(&beside.who, hold);
                    self.leave(&beside, stay).await;
                }
                Ok(None) => {}
                Err(error) => self.failed(&beside, patience, &error),
            }
        }
        self.end(usage);
    }

    /// Another client asks for the lock back.
    async fn request(&mut self, claim: &Claim) {
        let client = self.round.client(self.dice.below(SLOTS as u64) as usize);
        let name = claim.name.clone();
        self.round.registry.asked_for(&name);
        self.say(claim, format!("{} asks for a release", claim.who.label));
        let request: Boxed<Result<()>> =
            Box::pin(async move { client.request_release(&name, None).await.map(|_| ()) });
        if let Some(Err(error)) = self.dice.cut().run(request).await.output() {
            self.failed(claim, Patience::AsLongAsItTakes, &error);
        }
    }

    /// Whoever holds a lock loses it.
    async fn revoke_any(&mut self) {
        let name = names(BUSY)[self.dice.below(u64::from(STRIPES)) as usize].clone();
        self.revoke(name, None).await;
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
        let usage = self.usage(claim);
        let Some(hold) = self.ask(claim, wanted, patience, cut, &usage).await else { return Some(stay) };
        // What is left of it is the outer claim's as well.
        usage.nothing_left();
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
        // Its request may go on in the background, as may a claim beside it.
        self.clean = false;
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
        let (client, name, which) = (claim.client.clone(), claim.name.clone(), self.dice.below(7));
        let (limit, registry) = (claim.limit, self.round.registry.clone());
        let look: Boxed<Result<()>> = Box::pin(async move {
            let moment = Duration::from_millis(1);
            match which {
                0 => drop(client.inspect(&name).await?),
                1 => {
                    let mut list = client.list("");
                    while let Some(found) = list.next().await {
                        found?;
                    }
                }
                2 => drop(timeout(moment, client.watch("").await?.next()).await),
                3 => drop(client.leader(&name).current().await?),
                4 => drop(timeout(moment, client.leader(&name).observe().await?.next()).await),
                _ if client.traits().shared => {
                    registry.limit_may_be(&name, limit);
                    let set = client.semaphore(&name, PERMITS).set_limit(limit).await;
                    // Lowered below what another one waits for; or the client is closed.
                    set.or_else(|error| if error.kind() == Kind::Refused { Ok(()) } else { Err(error) })?;
                }
                _ => {}
            }
            Ok(())
        });
        if let Some(Err(error)) = self.dice.cut().run(look).await.output() {
            self.failed(claim, Patience::AsLongAsItTakes, &error);
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
        let was_held = stay.is_held();
        let hold = stay.leave().await;
        if self.dice.one_in(4) {
            self.clean = false;
            return drop(hold);
        }
        let limit = match self.dice.below(6) {
            0 => Some(self.dice.micros(2000)),
            1 => Some(PATIENCE),
            _ => None,
        };
        let release: Boxed<Result<()>> = match limit {
            None => Box::pin(hold.release()),
            Some(limit) => Box::pin(hold.release_within(limit)),
        };
        let cut = if self.dice.one_in(2) { Cut::Never } else { self.dice.cut() };
        let released = cut.run(release).await;
        self.clean &= was_held && matches!(released, Ended::Done(Ok(())));
        if let Ended::Hangs = released {
            self.wrong(claim, "a release does not answer");
        }
        if let Some(result) = released.output() {
            self.round.registry.released(&claim.who.label, &result);
            match result {
                // Less than a trip to the store may take.
                Err(error)
                    if error.kind() == Kind::Unavailable && limit.is_some_and(|time| time < PATIENCE) => {}
                Err(error) if error.kind() != Kind::Lost => {
                    self.failed(claim, Patience::AsLongAsItTakes, &error)
                }
                _ => {}
            }
        }
    }

    /// Closes a client under the hands of its tasks.
    async fn close_and_reopen(&mut self) {
        let slot = self.dice.below(SLOTS as u64) as usize;
        let client = self.round.client(slot);
        let (session, closing) = (client.session(), client.clone());
        for name in names(BUSY) {
            self.round.registry.say(&name, format!("task {} closes client {slot}", self.task));
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
