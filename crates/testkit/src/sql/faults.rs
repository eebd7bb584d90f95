//! Servers that die, connections that break, and many clients at once: nothing is double, nothing is lost, nothing stays.
#![allow(missing_docs)] // Scenarios say by their names what they show.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_client::{Budget, Client};
use tokio::task::{JoinSet, spawn_blocking};

use super::{Database, SqlServer, fresh_url, prefix_of};
use crate::history::History;
use crate::proxy::Proxy;
use crate::wait::{eventually, soon};

/// A client. Where statements have little time, a busy machine may need more than one try to connect.
async fn client(db: impl Database, url: &str, budget: Budget) -> Client {
    eventually("there is a client", || async {
        let builder = Client::builder().local_queue(budget).default_lease(Duration::from_secs(8));
        builder.open(db.open(url).expect("a store")).await
    })
    .await
}

/// Counts under a lock, not atomically: only the lock keeps it exact.
pub struct Counting {
    history: History,
    count: Arc<AtomicU64>,
    tasks: JoinSet<()>,
    expected: u64,
}

impl Counting {
    pub async fn begin(db: impl Database, url: &str, clients: usize, rounds: u64) -> Self {
        let (history, count, mut tasks) = (History::default(), Arc::new(AtomicU64::new(0)), JoinSet::new());
        for n in 0..clients {
            let budget = if n % 2 == 0 { Budget::default() } else { Budget::off() };
            let client = client(db, url, budget).await;
            for task in 0..2 {
                let (mutex, history, count) = (client.mutex("x"), history.clone(), count.clone());
                tasks.spawn(async move {
                    for _ in 0..rounds {
                        let guard = mutex.lock().await.expect("a lock");
                        let visit = history.enter(format!("{n}/{task}"), &guard);
                        let seen = count.load(Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        count.store(seen + 1, Ordering::Relaxed);
                        drop(visit);
                        guard.release().await.expect("a release");
                    }
                });
            }
        }
        Counting { history, count, tasks, expected: clients as u64 * 2 * rounds }
    }

    pub async fn reaches(&self, part: u64, of: u64) {
        let wanted = self.expected * part / of;
        eventually("it goes on", || async {
            let now = self.count.load(Ordering::Relaxed);
            if now >= wanted { Ok(()) } else { Err(now) }
        })
        .await;
    }

    pub async fn end(mut self) {
        while let Some(finished) = soon("the counting", self.tasks.join_next()).await {
            finished.expect("a task");
        }
        assert_eq!(self.count.load(Ordering::Relaxed), self.expected);
        self.history.check();
    }
}

/// Nobody holds and nobody waits, and nothing is left for anybody.
pub async fn nothing_is_left<S: SqlServer>(server: &S, url: &str) {
    eventually("no row is left", || async {
        let prefix = prefix_of::<S>(url);
        let look = format!(
            "SELECT (SELECT COUNT(*) FROM {prefix}locks WHERE (entry IS NOT NULL AND state <> 'freed') OR rest <> 0), \
             (SELECT COUNT(*) FROM {prefix}entries)"
        );
        let left = server.try_sql(&look).unwrap_or_else(|e| e);
        if left == "0|0" { Ok(()) } else { Err(left) }
    })
    .await;
}

pub async fn a_counter_stays_exact_while_the_server_is_killed_again_and_again<D: Database>(db: D) {
    let server = Arc::new(spawn_blocking(move || db.start()).await.expect("a server"));
    let url = fresh_url(&*server);
    let counting = Counting::begin(db, &url, 4, 30).await;
    for part in 1..=3 {
        counting.reaches(part, 4).await;
        let server = server.clone();
        spawn_blocking(move || server.restart()).await.expect("a restart");
    }
    counting.end().await;
    nothing_is_left(&*server, &url).await;
}

pub async fn a_counter_stays_exact_while_connections_are_ended_by_the_server<D: Database>(db: D) {
    let server = Arc::new(spawn_blocking(move || db.start()).await.expect("a server"));
    let url = fresh_url(&*server);
    let counting = Counting::begin(db, &url, 4, 40).await;
    for part in 1..=7 {
        counting.reaches(part, 8).await;
        let server = server.clone();
        let ended = spawn_blocking(move || server.kill_backends()).await.expect("killed connections");
        assert!(ended > 0);
    }
    counting.end().await;
    nothing_is_left(&*server, &url).await;
}

pub async fn a_counter_stays_exact_through_every_fault_of_the_network<D: Database>(db: D) {
    let server = Arc::new(spawn_blocking(move || db.start()).await.expect("a server"));
    let url = format!("{}&timeout=300ms", fresh_url(&*server));
    let proxy = Proxy::start(server.address());
    let counting = Counting::begin(db, &server.through(&url, proxy.address()), 3, 40).await;
    type Begin = fn(&Proxy);
    let faults: [(&str, Begin); 6] = [
        ("cut", Proxy::cut),
        ("refused", Proxy::refuse),
        ("hanging", Proxy::hang),
        ("deaf", Proxy::swallow_answers),
        ("slow", |proxy| proxy.delay(Duration::from_millis(40))),
        ("dripping", |proxy| proxy.drip(64, Duration::from_millis(1))),
    ];
    for (at, (fault, begin)) in faults.into_iter().enumerate() {
        counting.reaches(at as u64 + 1, 8).await;
        counting.history.say("network", fault);
        begin(&proxy);
        tokio::time::sleep(Duration::from_millis(450)).await;
        proxy.pass();
    }
    counting.end().await;
    nothing_is_left(&*server, &url).await;
}

pub async fn a_server_that_stands_still_delays_and_breaks_nothing<D: Database>(db: D) {
    let server = Arc::new(spawn_blocking(move || db.start()).await.expect("a server"));
    let url = format!("{}&timeout=300ms", fresh_url(&*server));
    let counting = Counting::begin(db, &url, 3, 30).await;
    for part in 1..=3 {
        counting.reaches(part, 4).await;
        server.pause();
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.resume();
    }
    counting.end().await;
    nothing_is_left(&*server, &url).await;
}

/// How long the crowd hammers; `LEASEHOLD_HAMMER=60` for a whole minute.
fn hammering() -> Duration {
    let seconds = std::env::var("LEASEHOLD_HAMMER").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(8))
}

#[allow(clippy::print_stdout)] // How often something was tried again is for people to read.
pub async fn sixty_four_clients_on_eight_names_see_no_error<D: Database>(db: D) {
    let server = Arc::new(spawn_blocking(move || db.start()).await.expect("a server"));
    let url = fresh_url(&*server);
    let (history, mut tasks) = (History::default(), JoinSet::new());
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(client(db, &url, Budget::off()).await);
    }
    let until = Instant::now() + hammering();
    for (n, client) in clients.into_iter().enumerate() {
        let history = history.clone();
        tasks.spawn(async move {
            let mut round = n;
            while Instant::now() < until {
                round += 1;
                let mutex = client.mutex(format!("n{}", round % 8));
                let guard = mutex.lock().await.expect("a lock");
                let visit = history.enter(n, &guard);
                tokio::task::yield_now().await;
                drop(visit);
                guard.release().await.expect("a release");
            }
            client.close().await.expect("a goodbye");
        });
    }
    while let Some(finished) = tasks.join_next().await {
        finished.expect("a task");
    }
    history.check();
    println!(
        "{} locks; tried again: {} after deadlocks, {} because another was faster",
        history.visits(),
        db.deadlocks_retried(),
        leasehold_sql::session::retried()
    );
    nothing_is_left(&*server, &url).await;
}
