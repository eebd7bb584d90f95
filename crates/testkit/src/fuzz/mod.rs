//! Random sequences of public calls: several clients of one store, few names, every future polled a few times and dropped, timed
//! out, or run to its end; leases that end, requests and forced releases, re-entry, downgrades, clients that are closed and
//! opened again.
//!
//! The [`Registry`] checks each grant: exclusion by mode, tokens, agreement with the store, reasons; and each `None`: a try is busy
//! only because of another claim. Besides, every try answers, every claim that waits gets in, and nothing is left in the end while
//! the clients live.
//!
//! Most claims want the same two names. The others go to *quiet* names, which are used by one task at a time, mostly: a try of a
//! name that nothing else uses has to get in.
//!
//! A run is a number of rounds, each with clients of its own and a seed that decides what every task does (not how the tasks
//! interleave). A failure prints the seed of its round:
//!
//! | variable | what it sets |
//! | --- | --- |
//! | `LEASEHOLD_FUZZ_SEED` | the seed of the first round; random unless given |
//! | `LEASEHOLD_FUZZ_CLAIMS` | how many claims are made; as many as fit into five seconds unless given |
//!
//! `cargo xtask fuzz STORE --claims N --seed S` sets both.
//!
//! # Layout
//!
//! - [`actor`]: what one task does.
//! - [`dice`]: random choices, and how a future is cut.
//! - this file: rounds.

pub mod actor;
pub mod dice;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_client::{Budget, Client, ClientBuilder};
use leasehold_core::clock::wall_micros;
use leasehold_core::store::Store;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bed::Bed;
use crate::panics;
use crate::registry::Registry;
use crate::stage::open;
use actor::Actor;
use dice::Dice;

/// How long a run takes that is told nothing else.
const USUAL: Duration = Duration::from_secs(5);

/// How many clients a round has.
const SLOTS: usize = 4;

/// How many tasks each client has.
const TASKS: usize = 4;

/// How many claims a task makes in a round.
const CLAIMS: u64 = 30;

/// How many that makes.
const CLAIMS_OF_A_ROUND: u64 = (SLOTS * TASKS) as u64 * CLAIMS;

/// How many rounds run at the same time: most of what their tasks do is waiting.
const AT_ONCE: usize = 3;

/// How long a round may take before it counts as hung.
const TOO_LONG: Duration = Duration::from_secs(180);

/// Within which time a holder is told of a forced release. The store's notification comes at once; this is as long as a loaded
/// machine may stand still, and less than the ten seconds after which a client asks the store by itself.
const TOLD_WITHIN: Duration = Duration::from_secs(6);

/// A lease that no round outlives: what is left behind stays.
const LONG: Duration = Duration::from_secs(600);

/// After which time something counts as left behind.
const LEFT: Duration = Duration::from_secs(45);

/// How many violations are shown.
const SHOWN: usize = 5;

/// What most claims want: the two stripes of a striped lock, also by their names.
const BUSY: &str = "busy";

/// How many stripes each striped lock has, and how many names that makes.
const STRIPES: u32 = 2;

/// How many pairs of names there are that few tasks use at a time.
const QUIET: usize = 12;

/// The names of a striped lock.
fn names(base: &str) -> [String; STRIPES as usize] {
    std::array::from_fn(|stripe| format!("{base}[{stripe}/{STRIPES}]"))
}

/// What all tasks of a round share.
pub struct Round {
    seed: u64,
    store: Arc<dyn Store>,
    /// The clients as they are now: each may be closed and replaced.
    clients: Vec<Mutex<Client>>,
    observer: Client,
    registry: Registry,
    /// Whether locks are taken away by force in this round. If not, exclusion holds at every moment.
    revokes: bool,
    claims: AtomicU64,
    /// How often each quiet pair of names got new names, because something may have been left of the old ones.
    quiet: [AtomicU64; QUIET],
    /// What failed because the store could not be reached, though it is well: a machine that stands still.
    unavailable: Mutex<Vec<String>>,
}

/// Runs as many rounds as the environment asks for.
pub fn run(bed: impl Bed) {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = threads.expect("a runtime");
    let panics = panics::watch();
    runtime.block_on(async {
        let place = bed.fresh().await.expect("a fresh store");
        let mut seed = number("LEASEHOLD_FUZZ_SEED").unwrap_or_else(wall_micros);
        let claims = number("LEASEHOLD_FUZZ_CLAIMS");
        let (mut sum, mut rounds) = (Sum::new(seed), JoinSet::new());
        loop {
            let begun = sum.claims + rounds.len() as u64 * CLAIMS_OF_A_ROUND;
            let more = claims.map_or(sum.start.elapsed() < USUAL, |claims| begun < claims);
            if more && rounds.len() < AT_ONCE {
                rounds.spawn(round(place.store.clone(), seed));
                seed += 1;
            } else if let Some(done) = rounds.join_next().await {
                match done {
                    Ok(round) => sum.add(&round),
                    Err(failed) => std::panic::resume_unwind(failed.into_panic()),
                }
            } else {
                break;
            }
        }
        sum.report("done");
        sum.check(place.store.traits().shared);
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    panics::check(panics);
}

/// Plays one round. Panics if anything was wrong.
async fn round(store: Arc<dyn Store>, seed: u64) -> Arc<Round> {
    let round = Round::new(store, seed).await;
    round.clone().play(seed).await;
    let wrong = round.registry.violations();
    if !wrong.is_empty() {
        let (count, url) = (wrong.len(), round.observer.store_url());
        let shown = wrong[..count.min(SHOWN)].join("\n");
        panic!("{count} violations on {url}; again with LEASEHOLD_FUZZ_SEED={seed}:\n{shown}");
    }
    round
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.replace('_', "").parse().unwrap_or_else(|e| panic!("{variable}={value} is no number: {e}")))
}

/// What all rounds did.
struct Sum {
    seed: u64,
    start: Instant,
    told: Instant,
    rounds: u64,
    claims: u64,
    grants: u64,
    undisturbed: u64,
    among_readers: u64,
    unavailable: usize,
    /// The first of them.
    error: Option<String>,
}

impl Sum {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let (rounds, claims, grants, unavailable) = (0, 0, 0, 0);
        let (undisturbed, among_readers, error) = (0, 0, None);
        Sum {
            seed,
            start: now,
            told: now,
            rounds,
            claims,
            grants,
            undisturbed,
            among_readers,
            unavailable,
            error,
        }
    }

    fn add(&mut self, round: &Round) {
        self.rounds += 1;
        self.claims += round.claims.load(Ordering::Relaxed);
        self.grants += round.registry.grants();
        self.undisturbed += round.registry.undisturbed();
        self.among_readers += round.registry.among_readers();
        let unavailable = lock(&round.unavailable);
        self.unavailable += unavailable.len();
        self.error = self.error.take().or_else(|| unavailable.first().cloned());
        if self.told.elapsed() > Duration::from_secs(10) {
            self.told = Instant::now();
            self.report("so far");
        }
    }

    #[allow(clippy::print_stdout)] // Seen with --nocapture.
    fn report(&self, when: &str) {
        let Sum { seed, rounds, claims, grants, undisturbed, among_readers, unavailable, .. } = self;
        let took = self.start.elapsed().as_secs_f64();
        println!(
            "fuzz, {when}: {claims} claims, {grants} grants, {undisturbed} tries that had to get in and {among_readers} of readers \
             among readers, {rounds} rounds from seed {seed}, {took:.0} s; {unavailable} errors{}{}",
            if self.error.is_some() { ", the first: " } else { "" },
            self.error.as_deref().unwrap_or_default()
        );
    }
}

impl Sum {
    /// A run that hardly did anything, or whose claims mostly failed, has shown nothing.
    fn check(&self, shared: bool) {
        let Sum { claims, grants, undisturbed, among_readers, unavailable, .. } = *self;
        assert!(grants * 10 > claims, "only {grants} of {claims} claims got in");
        assert!(undisturbed > 0, "no try of {claims} claims had to get in");
        // Few claims find only readers: a run on a slow machine may have none.
        assert!(!shared || among_readers > 0 || claims < 2000, "no try of {claims} claims was among readers");
        let most = claims / 50;
        let first = self.error.as_deref().unwrap_or_default();
        assert!((unavailable as u64) <= most, "{unavailable} errors in {claims} claims, the first: {first}");
    }
}

impl Round {
    async fn new(store: Arc<dyn Store>, seed: u64) -> Arc<Self> {
        let mut clients = Vec::new();
        for slot in 0..SLOTS {
            clients.push(Mutex::new(client(&store, seed, slot).await));
        }
        let observer = Client::builder().label("observer").namespace(namespace(seed));
        Arc::new(Round {
            seed,
            observer: open(observer, store.clone()).await,
            store,
            clients,
            registry: Registry::new(TOLD_WITHIN),
            revokes: seed.is_multiple_of(2),
            claims: AtomicU64::new(0),
            quiet: Default::default(),
            unavailable: Mutex::default(),
        })
    }

    /// Plays a round.
    async fn play(self: Arc<Self>, seed: u64) {
        let mut tasks = JoinSet::new();
        for task in 0..SLOTS * TASKS {
            let (round, dice) = (self.clone(), Dice::new(seed, task as u64));
            tasks.spawn(async move {
                let mut actor = Actor::new(round, task, dice);
                for _ in 0..CLAIMS {
                    actor.claim().await;
                }
            });
        }
        let all = async {
            while let Some(done) = tasks.join_next().await {
                if let Err(failed) = done {
                    std::panic::resume_unwind(failed.into_panic());
                }
            }
        };
        if timeout(TOO_LONG, all).await.is_err() {
            let left = self.left().await;
            self.registry.wrong("", format!("{} tasks don't end; the store shows {left:#?}", tasks.len()));
            tasks.abort_all();
        } else {
            self.nothing_is_left().await;
        }
        for slot in &self.clients {
            let client = lock(slot).clone();
            if let Err(error) = client.close().await {
                self.registry.wrong("", format!("a client could not be closed: {error}"));
            }
        }
        let _ = self.observer.close().await;
    }

    async fn left(&self) -> Vec<String> {
        let mut list = self.observer.list("");
        let mut left = Vec::new();
        while let Some(found) = list.next().await {
            left.push(format!("{found:#?}"));
        }
        left
    }

    /// While the clients live, nothing that they believe is over may be left at the store, and each of them can have every
    /// lock.
    async fn nothing_is_left(&self) {
        let began = Instant::now();
        for slot in 0..SLOTS {
            for name in names(BUSY) {
                let mutex = self.client(slot).mutex(&name);
                match timeout(LEFT, mutex.lock()).await {
                    Ok(Ok(guard)) => drop(guard),
                    other => {
                        let left = self.left().await.join("\n");
                        let wrong = format!("client {slot} can't have it: {other:?}; the store shows {left}");
                        return self.registry.wrong(&name, wrong);
                    }
                }
            }
        }
        loop {
            let left = self.left().await;
            if left.is_empty() {
                return;
            }
            if began.elapsed() > 2 * LEFT {
                return self.registry.wrong("", format!("something is left: {}", left.join("\n")));
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    fn client(&self, slot: usize) -> Client {
        lock(&self.clients[slot]).clone()
    }

    /// Puts a new client in the place of one that is closed.
    async fn reopen(&self, slot: usize) {
        let fresh = client(&self.store, self.seed, slot).await;
        *lock(&self.clients[slot]) = fresh;
    }
}

/// A client as it is in this place: each queues its tasks in another way.
async fn client(store: &Arc<dyn Store>, seed: u64, slot: usize) -> Client {
    let longest = LONG.min(store.traits().longest_lease);
    let shortest = store.traits().shortest_lease;
    let builder = Client::builder().label(format!("client {slot}")).namespace(namespace(seed));
    let builder: ClientBuilder = match slot {
        0 => builder.default_lease(longest),
        1 => builder
            .default_lease(longest)
            .local_queue(Budget { handovers: 2, time: Duration::from_millis(2) }),
        2 => builder.default_lease(longest).local_queue(Budget::off()),
        // Renewed all the time.
        _ => builder.default_lease(Duration::from_secs(2).max(shortest)),
    };
    open(builder, store.clone()).await
}

/// Rounds that run at the same time have nothing to do with each other.
fn namespace(seed: u64) -> String {
    format!("round {seed}/")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
