//! Clients that count under locks while servers come and go, and what must be true in the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_client::{Budget, Client, Guard};
use leasehold_core::{Order, Token};
use leasehold_testkit::wait::{PATIENCE, eventually, soon};
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common;

/// A number that only a lock keeps exact, and who believes to be alone with it.
#[derive(Default)]
struct Counter {
    value: AtomicU64,
    /// Visits that ended with the lock still held, and so were written.
    written: AtomicU64,
    /// Visits that were told in time that they had lost the lock.
    lost: AtomicU64,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    guards: Vec<Arc<Guard>>,
    last: Option<Token>,
    wrongs: Vec<String>,
}

impl Counter {
    fn enter(&self, guard: Guard) -> Arc<Guard> {
        let guard = Arc::new(guard);
        let mut inside = self.inside.lock().expect("no panic");
        let together: Vec<Token> =
            inside.guards.iter().filter(|other| other.is_held()).map(|other| other.token()).collect();
        // Asked last: whoever is held now was held when the others were asked.
        if guard.is_held() {
            let token = guard.token();
            if !together.is_empty() {
                inside.wrongs.push(format!("{token:?} holds together with {together:?}"));
            }
            if inside.last >= Some(token) {
                let last = inside.last;
                inside.wrongs.push(format!("{token:?} came after {last:?}"));
            }
            inside.last = Some(token);
        }
        inside.guards.push(guard.clone());
        guard
    }

    fn leave(&self, guard: &Arc<Guard>) {
        self.inside.lock().expect("no panic").guards.retain(|other| !Arc::ptr_eq(other, guard));
    }

    /// Reads, waits, and writes one more. A holder that is told of its loss leaves the number alone.
    async fn add_one(&self, guard: &Guard) {
        let seen = self.value.load(SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        if !guard.is_held() {
            self.lost.fetch_add(1, SeqCst);
            return;
        }
        self.value.store(seen + 1, SeqCst);
        self.written.fetch_add(1, SeqCst);
    }
}

/// Some clients at work.
pub(crate) struct Load {
    clients: Vec<Client>,
    counters: Arc<Vec<Counter>>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    runtime: Handle,
}

/// What came out of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How many times the locks were used to the end.
    pub(crate) visits: u64,
    /// How many visits lost their lock, and were told so in time.
    pub(crate) lost: u64,
}

impl Load {
    /// Starts three clients with two tasks each, that count under locks of so many names, in all orders.
    pub(crate) fn start(runtime: &Runtime, url: &str, names: usize) -> Load {
        let counters: Arc<Vec<Counter>> = Arc::new((0..names).map(|_| Counter::default()).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let (mut clients, mut tasks) = (Vec::new(), JoinSet::new());
        for n in 0..3 {
            // One of them keeps its tasks in a local queue.
            let budget = if n == 0 { Budget::default() } else { Budget::off() };
            // Where sessions are short, so is the time to connect.
            let client = runtime.block_on(eventually("a client", || {
                let builder =
                    Client::builder().retry_for(Duration::from_secs(60)).label(format!("client {n}"));
                builder.local_queue(budget).open(common::open(url).expect("a store"))
            }));
            for task in 0..2 {
                let work = work(client.clone(), 2 * n + task, counters.clone(), stop.clone());
                tasks.spawn_on(work, runtime.handle());
            }
            clients.push(client);
        }
        Load { clients, counters, stop, tasks, runtime: runtime.handle().clone() }
    }

    /// Waits until every lock was used so many times more.
    pub(crate) fn goes_on(&self, times: u64) {
        let written =
            || self.counters.iter().map(|counter| counter.written.load(SeqCst)).collect::<Vec<u64>>();
        let before = written();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = written();
            if now.iter().zip(&before).all(|(now, before)| now - before >= times) {
                return;
            }
            if Instant::now() > deadline {
                panic!("the locks are not used any more: {before:?} became {now:?}; {}", self.scene());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What each client sees of the locks: who holds, who waits, and for how long.
    fn scene(&self) -> String {
        let look = async {
            let mut seen = String::new();
            for (client, n) in self.clients.iter().zip(0..) {
                for name in (0..self.counters.len()).map(|n| format!("counter {n}")) {
                    let found = timeout(Duration::from_secs(5), client.inspect(&name)).await;
                    seen.push_str(&format!("\nclient {n}: {found:#?}"));
                }
            }
            seen
        };
        self.runtime.block_on(look)
    }

    /// Ends the work, and checks that the counters are exact, nobody held together, and tokens rose. The clients stay open
    /// for `look`, and are closed then.
    pub(crate) fn finish(mut self, runtime: &Runtime, look: impl FnOnce()) -> Outcome {
        self.stop.store(true, SeqCst);
        runtime.block_on(async {
            while let Some(done) = soon("the end of the work", self.tasks.join_next()).await {
                done.expect("a task");
            }
        });
        for counter in self.counters.iter() {
            let inside = counter.inside.lock().expect("no panic");
            assert!(inside.wrongs.is_empty(), "{:#?}", inside.wrongs);
            let (value, written) = (counter.value.load(SeqCst), counter.written.load(SeqCst));
            assert_eq!(value, written, "a write was lost");
        }
        look();
        runtime.block_on(async {
            for client in &self.clients {
                soon("a closed client", client.close()).await.expect("a closed client");
            }
        });
        let sum = |part: fn(&Counter) -> &AtomicU64| self.counters.iter().map(|c| part(c).load(SeqCst)).sum();
        Outcome { visits: sum(|c| &c.written), lost: sum(|c| &c.lost) }
    }
}

async fn work(client: Client, seed: usize, counters: Arc<Vec<Counter>>, stop: Arc<AtomicBool>) {
    let mut turn = seed;
    while !stop.load(SeqCst) {
        turn += 1;
        let which = turn % counters.len();
        let order = match turn % 5 {
            0 => Order::Barge,
            1 => Order::spin(),
            _ => Order::Queue,
        };
        let counter = &counters[which];
        let guard = match client.mutex(format!("counter {which}")).order(order).lock().await {
            Ok(guard) => counter.enter(guard),
            Err(error) => panic!("a claim failed that had time enough: {error}"),
        };
        counter.add_one(&guard).await;
        counter.leave(&guard);
        if let Some(guard) = Arc::into_inner(guard) {
            // It can have been lost.
            let _ = guard.release().await;
        }
    }
}
