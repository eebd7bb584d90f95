//! Clients that count under locks while servers come and go, and what must be true in the end.
//!
//! What they count is guarded twice: by the lock, and by a fence that refuses a holder whose lock went to a later one. The lock
//! alone keeps the counters exact for as long as no grant is lost; where the store may lose one, the fence does, and counts it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_client::{Budget, Client, Guard};
use leasehold_core::Fence;
use leasehold_testkit::servers::until;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::common::play::connect;

/// Longer than a failover takes, so that a holder has the chance to keep its lock.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// A guarded number, and who believes to be alone with it.
#[derive(Default)]
struct Counter {
    fence: Fence,
    value: AtomicU64,
    /// Writes that the fence let through.
    written: AtomicU64,
    /// Writes that the fence refused: somebody with a later token was there.
    refused: AtomicU64,
    /// How often somebody came in while another guard was still good.
    together: AtomicU64,
    inside: Mutex<Vec<Arc<Guard>>>,
}

impl Counter {
    fn enter(&self, guard: Guard) -> Arc<Guard> {
        let guard = Arc::new(guard);
        let mut inside = self.inside.lock().expect("no panic");
        let others = inside.iter().filter(|other| other.is_held()).count();
        if others > 0 && guard.is_held() {
            self.together.fetch_add(1, Ordering::SeqCst);
        }
        inside.push(guard.clone());
        guard
    }

    fn leave(&self, guard: &Arc<Guard>) {
        self.inside.lock().expect("no panic").retain(|other| !Arc::ptr_eq(other, guard));
    }

    /// Reads, waits, and writes one more: only a lock keeps that exact.
    async fn add_one(&self, guard: &Guard) {
        if self.fence.check(guard.token()).is_err() {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let seen = self.value.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        match self.fence.check(guard.token()) {
            Ok(()) => {
                self.value.store(seen + 1, Ordering::SeqCst);
                self.written.fetch_add(1, Ordering::SeqCst);
            }
            Err(_) => drop(self.refused.fetch_add(1, Ordering::SeqCst)),
        }
    }
}

/// Some clients at work.
pub(crate) struct Load {
    counters: Arc<Vec<Counter>>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

/// What came out of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How many times the locks were used.
    pub(crate) visits: u64,
    /// How often two believed to hold the same lock at once.
    pub(crate) together: u64,
    /// How many writes the fence refused.
    pub(crate) refused: u64,
}

impl Load {
    /// Starts three clients with two tasks each, that count under locks of so many names.
    pub(crate) fn start(runtime: &Runtime, url: &str, names: usize) -> Load {
        let counters: Arc<Vec<Counter>> = Arc::new((0..names).map(|_| Counter::default()).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for n in 0..3 {
            // One of them keeps its tasks in a local queue.
            let budget = if n == 0 { Budget::default() } else { Budget::off() };
            let builder = Client::builder().default_lease(LEASE).retry_for(Duration::from_secs(20));
            let client =
                runtime.block_on(connect(url, builder.local_queue(budget).label(format!("client {n}"))));
            for task in 0..2 {
                let work = work(client.clone(), n + task, counters.clone(), stop.clone());
                tasks.spawn_on(work, runtime.handle());
            }
        }
        Load { counters, stop, tasks }
    }

    fn visits(&self) -> u64 {
        self.counters.iter().map(|counter| counter.written.load(Ordering::SeqCst)).sum()
    }

    /// Waits until every lock was used so many times more.
    pub(crate) fn goes_on(&self, times: u64) {
        let written = |counter: &Counter| counter.written.load(Ordering::SeqCst);
        let before: Vec<u64> = self.counters.iter().map(written).collect();
        until("every lock is used", || {
            let now: Vec<u64> = self.counters.iter().map(written).collect();
            match now.iter().zip(&before).all(|(now, before)| now - before >= times) {
                true => Ok(()),
                false => Err(format!("{before:?} became {now:?}")),
            }
        });
    }

    /// Ends the work. The counters must be exact.
    pub(crate) fn finish(mut self, runtime: &Runtime) -> Outcome {
        self.stop.store(true, Ordering::SeqCst);
        runtime.block_on(async {
            while let Some(done) =
                leasehold_testkit::wait::soon("the end of the work", self.tasks.join_next()).await
            {
                done.expect("a task");
            }
        });
        for counter in self.counters.iter() {
            let (value, written) =
                (counter.value.load(Ordering::SeqCst), counter.written.load(Ordering::SeqCst));
            assert_eq!(value, written, "a write was lost, and no token caught it");
        }
        let sum = |part: fn(&Counter) -> &AtomicU64| {
            self.counters.iter().map(|c| part(c).load(Ordering::SeqCst)).sum()
        };
        Outcome { visits: self.visits(), together: sum(|c| &c.together), refused: sum(|c| &c.refused) }
    }
}

async fn work(client: Client, seed: usize, counters: Arc<Vec<Counter>>, stop: Arc<AtomicBool>) {
    let mut turn = seed;
    while !stop.load(Ordering::SeqCst) {
        turn += 1;
        let which = turn % counters.len();
        let counter = &counters[which];
        let guard = match client.mutex(format!("counter {which}")).lock().await {
            Ok(guard) => counter.enter(guard),
            Err(error) => panic!("a claim failed that had time enough: {error}"),
        };
        // A loss in the middle is the fence's to notice, or nobody's if nobody came.
        counter.add_one(&guard).await;
        counter.leave(&guard);
        if let Some(guard) = Arc::into_inner(guard) {
            // It can have been lost.
            let _ = guard.release().await;
        }
    }
}
