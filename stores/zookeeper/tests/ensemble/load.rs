//! Clients that count under locks while servers come and go, and what must be true in the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_client::{Budget, Client, Guard};
use leasehold_core::{Order, Token};
use leasehold_testkit::servers::until;
use leasehold_testkit::wait::soon;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

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
            let builder = Client::builder().retry_for(Duration::from_secs(60)).label(format!("client {n}"));
            let store = common::open(url).expect("a store");
            let client = runtime.block_on(builder.local_queue(budget).open(store)).expect("a client");
            for task in 0..2 {
                let work = work(client.clone(), 2 * n + task, counters.clone(), stop.clone());
                tasks.spawn_on(work, runtime.handle());
            }
            clients.push(client);
        }
        Load { clients, counters, stop, tasks }
    }

    /// Waits until every lock was used so many times more.
    pub(crate) fn goes_on(&self, times: u64) {
        let written =
            || self.counters.iter().map(|counter| counter.written.load(SeqCst)).collect::<Vec<u64>>();
        let before = written();
        until("every lock is used", || match written() {
            now if now.iter().zip(&before).all(|(now, before)| now - before >= times) => Ok(()),
            now => Err(format!("{before:?} became {now:?}")),
        });
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
