//! The table of docs/outages.md: a link that is down for as long as it says costs no lock, in the library and under a command.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use leasehold::blocking;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::{
    Independent, MariaDb, MariaDbOptions, Postgres, PostgresOptions, Redis, RedisOptions, ZooKeeper,
    ZooKeeperOptions,
};
use leasehold_testkit::sql::{SqlServer, fresh_url};
use serde_json::Value;

use crate::house::{House, Running, until};

/// So many holders of each kind, granted one after the other, so that the outage meets each at another time since its last renewal:
/// one is about to be renewed, one just was.
const HOLDERS: u32 = 3;

/// Leases are renewed every third of this.
const LEASE: Duration = Duration::from_secs(30);

/// What the table says of a store.
fn stated(store: &str) -> Duration {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/outages.md");
    let page = fs::read_to_string(page).expect("docs/outages.md");
    let row = page.lines().find(|line| line.starts_with(&format!("| `{store}` |")));
    let cell = row.and_then(|row| row.split('|').nth(2)).expect("a row of the table").trim();
    let seconds = cell.strip_suffix(" s").and_then(|seconds| seconds.parse().ok()).expect(cell);
    Duration::from_secs(seconds)
}

type Outage = fn(&Proxy);

/// A way to the servers, and those who hold locks behind it.
struct Way<'a> {
    proxies: Vec<Proxy>,
    outage: Outage,
    url: String,
    name: &'static str,
    house: &'a House,
    guards: Vec<(blocking::Client, blocking::Guard)>,
    commands: Vec<Running>,
}

impl Way<'_> {
    fn one_more(&mut self, n: u32) {
        let client = blocking::connect(&self.url).expect("a client");
        let guard = client.mutex(format!("{}/{n}", self.name)).lock().expect("a lock");
        self.guards.push((client, guard));
        let (lock, ready) = (format!("{}/run/{n}", self.name), format!("{}{n}", self.name));
        let script = format!("echo > {ready}; until [ -e go ]; do sleep 0.1; done; echo done");
        let args = ["--store", &self.url, "run", &lock, "--", "sh", "-c", &script];
        self.commands.push(self.house.start(args));
        until("the command runs", || self.house.path(&ready).exists());
    }

    /// All guards are good again for longer than they were when the outage began, or one is lost.
    fn goes_on(&self) {
        for (_, guard) in &self.guards {
            until("it is renewed", || {
                assert!(guard.is_held(), "{} was lost", guard.name());
                guard.remaining().expect("an end") > LEASE / 2
            });
        }
    }
}

/// Cuts the link for as long as the table says.
fn check(store: &str, way: impl Fn() -> (Vec<Proxy>, String)) {
    let house = House::new();
    let ways: [(_, Outage); 2] = [("refused", Proxy::refuse), ("silent", Proxy::hang)];
    let mut ways = ways.map(|(name, outage)| {
        let (proxies, url) = way();
        Way { proxies, outage, url, name, house: &house, guards: Vec::new(), commands: Vec::new() }
    });
    for n in 0..HOLDERS {
        ways.iter_mut().for_each(|way| way.one_more(n));
        sleep(LEASE / 3 / HOLDERS);
    }
    for way in &ways {
        way.proxies.iter().for_each(way.outage);
    }
    sleep(stated(store));
    for way in &ways {
        way.proxies.iter().for_each(Proxy::pass);
    }
    ways.iter().for_each(Way::goes_on);
    // A command that had to be stopped would have been by now: what was certain at the beginning of the outage is over.
    sleep(LEASE.saturating_sub(stated(store)));
    house.touch("go");
    for way in ways {
        for (_, guard) in way.guards {
            guard.release().expect("a release of a lock that was held all the time");
        }
        for command in way.commands {
            let done = command.done().expect(0);
            assert_eq!(done.stdout, "done\n", "{store}, {}", way.name);
            // It tells of the outage, and of nothing worse.
            let told =
                |line: &str| line.contains("warning: unavailable:") || line.contains("warning: available:");
            assert!(done.stderr.lines().all(told), "{store}, {}: {}", way.name, done.stderr);
        }
    }
}

/// All stores at once: most of it is waiting. A machine that stands still for a while makes outages longer than they are meant to be, so
/// a store that failed on such a machine is tried again.
#[test]
fn the_table_is_true_of_every_store() {
    thread::scope(|scope| {
        for (store, check) in STORES {
            let rounds = move || {
                for round in 1.. {
                    let stalls = Stalls::watch();
                    let checked =
                        thread::Builder::new().name(store.to_owned()).spawn(check).expect("a thread");
                    match checked.join() {
                        Ok(()) => return,
                        Err(_) if round < 3 && stalls.longest() > STALL => {}
                        Err(failure) => std::panic::resume_unwind(failure),
                    }
                }
            };
            thread::Builder::new().name(store.to_owned()).spawn_scoped(scope, rounds).expect("a thread");
        }
    });
}

/// A machine that is slower than this at times is too busy for a test of outages.
const STALL: Duration = Duration::from_millis(500);

/// Watches how long this process was not let run.
struct Stalls(Arc<AtomicU64>);

impl Stalls {
    fn watch() -> Stalls {
        let longest = Arc::new(AtomicU64::new(0));
        let watched = Arc::downgrade(&longest);
        thread::spawn(move || {
            const NAP: Duration = Duration::from_millis(20);
            while let Some(longest) = watched.upgrade() {
                let asleep = Instant::now();
                sleep(NAP);
                let late = asleep.elapsed().saturating_sub(NAP);
                longest.fetch_max(u64::try_from(late.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Stalls(longest)
    }

    fn longest(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

const STORES: [(&str, fn()); 5] = [
    ("redis", redis),
    ("redlock", redlock),
    ("zookeeper", zookeeper),
    ("postgres", postgres),
    ("mysql", mysql),
];

#[test]
fn the_table_has_a_row_for_every_store_with_a_link_and_says_the_same_as_the_program() {
    let stores = House::new().run(["--format", "json", "stores"]).expect(0).stdout;
    let stores: Vec<Value> = stores.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut linked = BTreeSet::new();
    for store in &stores {
        let name = store["store"].as_str().expect("a name");
        if let Some(outage) = store["outage_ms"].as_u64() {
            linked.insert(name);
            assert_eq!(
                Duration::from_millis(outage),
                stated(name),
                "{name}: `leasehold stores` and the table"
            );
        }
    }
    assert_eq!(linked, STORES.map(|(store, _)| store).into());
}

fn redis() {
    let server = Redis::start(RedisOptions::new());
    check("redis", || {
        let proxy = Proxy::start(server.address());
        let url = format!("redis://{}/", proxy.address());
        (vec![proxy], url)
    });
}

fn redlock() {
    let servers = Independent::start(3);
    check("redlock", || {
        let proxies: Vec<Proxy> = servers.servers().iter().map(|s| Proxy::start(s.address())).collect();
        let addresses: Vec<String> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        let url = format!("redlock://{}", addresses.join(","));
        (proxies, url)
    });
}

fn zookeeper() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().tick(Duration::from_secs(2)));
    check("zookeeper", || {
        let proxy = Proxy::to_zookeeper(server.address());
        let url = format!("zookeeper://{}", proxy.address());
        (vec![proxy], url)
    });
}

fn sql<S: SqlServer>(store: &str, server: &S) {
    let direct = fresh_url(server);
    check(store, || {
        let proxy = Proxy::start(server.address());
        let url = server.through(&direct, proxy.address());
        (vec![proxy], url)
    });
}

fn postgres() {
    sql("postgres", &Postgres::start(PostgresOptions::new()));
}

fn mysql() {
    sql("mysql", &MariaDb::start(MariaDbOptions::new()));
}
