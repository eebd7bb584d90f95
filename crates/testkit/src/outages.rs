//! What is promised of outages, on any store whose servers can be put behind proxies: limits are limits, unavailable is not busy, a client
//! waits for a server that starts, and the log has a line when it begins and one when it ends.
//!
//! A store runs all of it with one line in its `tests/outages.rs`:
//!
//! ```text
//! leasehold_testkit::outages!(setting());
//! ```

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_client::{Backoff, Client, ClientBuilder, Multi, Order, Outage, Part};
use leasehold_core::store::Store;
use leasehold_core::view::Lost;
use leasehold_core::{Error, Kind, Result};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use tracing::Level;

use crate::log::Log;
use crate::proxy::Proxy;
use crate::wait::{PATIENCE, eventually, not_yet, soon};

/// The time of a claim.
const LIMIT: Duration = Duration::from_secs(1);

/// How much longer than it should something may take here: a loaded machine is no reason to fail, a patience of 10 s or a lease of 30 s is.
const SLACK: Duration = Duration::from_secs(4);

/// So long that it is never waited for to its end.
const LONG: Duration = Duration::from_secs(50);

/// Runs all scenarios. The expression makes a [`Setting`].
#[macro_export]
macro_rules! outages {
    ($setting:expr) => {
        $crate::outages!(@ $setting;
            a_free_lock_is_unavailable_at_the_limit_and_never_busy
            a_claim_with_a_limit_outlasts_an_outage
            a_client_waits_for_a_server_that_starts
            a_release_is_waited_for_within_its_limit_and_goes_on
            an_outage_writes_two_lines_however_many_locks_are_held
            what_happened_to_a_lock_during_an_outage_is_heard_after_it
        );
    };
    (@ $setting:expr; $($scenario:ident)*) => {
        $(#[test]
        fn $scenario() {
            $crate::outages::run($setting, $crate::outages::$scenario);
        })*
    };
}

/// Servers behind proxies.
pub struct Setting {
    _servers: Box<dyn Any + Send + Sync>,
    proxies: Vec<Proxy>,
    direct: Arc<dyn Store>,
    through: Arc<dyn Store>,
}

impl Setting {
    /// `direct` leads to the servers, `through` by way of the proxies.
    pub fn new(
        servers: impl Any + Send + Sync,
        proxies: Vec<Proxy>,
        direct: Arc<dyn Store>,
        through: Arc<dyn Store>,
    ) -> Self {
        Setting { _servers: Box::new(servers), proxies, direct, through }
    }

    fn begin(&self, how: How) {
        self.proxies.iter().for_each(|proxy| match how {
            How::Refused => proxy.refuse(),
            How::Hanging => proxy.hang(),
        });
    }

    fn end(&self) {
        self.proxies.iter().for_each(Proxy::pass);
    }

    /// A client that nothing happens to.
    async fn strong(&self) -> Client {
        soon("a client", Client::builder().label("strong").open(self.direct.clone())).await.expect("a client")
    }

    /// One that outages happen to.
    async fn weak(&self, builder: ClientBuilder) -> Client {
        soon("a client", builder.label("weak").open(self.through.clone())).await.expect("a client")
    }
}

/// Opens a client and takes a lock on a store that can't give it for the moment: the client names this reason, goes on, and gets the lock
/// after `relief`.
pub async fn a_client_is_let_in_after(store: Arc<dyn Store>, reason: &str, relief: impl FnOnce()) {
    let (said, heard) = std::sync::mpsc::channel();
    let builder = Client::builder().retry_for(LONG).on_outage(move |outage| {
        if let Outage::Began { error, .. } = outage {
            let _ = said.send(error.to_string());
        }
    });
    let mut claim = tokio::spawn(lock_and_release(builder, store.clone()));
    let heard = spawn_blocking(move || heard.recv_timeout(LONG));
    let waits_for = heard.await.expect("a thread").expect("an outage");
    // What it says depends on the moment: a request may have been cut short by its time-out.
    if !waits_for.contains(reason) {
        // One that gives up before its request does has no answer to tell of.
        let time = store.timeout() * 2 + LIMIT;
        eventually("the reason is named", || async {
            let tried = lock_and_release(Client::builder().retry_for(time), store.clone()).await;
            let said = tried.expect_err("the store can't give a lock").to_string();
            if said.contains(reason) { Ok(()) } else { Err((&waits_for, said)) }
        })
        .await;
    }
    not_yet("it got the lock, or gave up", &mut claim).await;
    relief();
    let client = soon("a lock", claim).await.expect("a task").expect("a lock");
    client.close().await.expect("a goodbye");
}

async fn lock_and_release(builder: ClientBuilder, store: Arc<dyn Store>) -> Result<Client> {
    let client = builder.open(store).await?;
    client.mutex("outage/x").lock().await?.release().await?;
    Ok(client)
}

/// How a server is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Nothing listens there.
    Refused,
    /// It takes connections and requests, and says nothing.
    Hanging,
}

const WAYS: [How; 2] = [How::Refused, How::Hanging];

/// Runs a scenario.
pub fn run<Fut: Future<Output = ()>>(setting: Setting, scenario: fn(Arc<Setting>) -> Fut) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(scenario(Arc::new(setting)));
}

/// What came of a claim in an outage, and how long that took.
async fn failure<T>(what: &str, claim: impl Future<Output = Result<Option<T>>>) -> (Error, Duration) {
    let since = Instant::now();
    match soon(what, claim).await {
        Err(error) => (error, since.elapsed()),
        Ok(Some(_)) => panic!("{what}: a lock was got from nowhere"),
        Ok(None) => panic!("{what}: busy, and nobody holds it"),
    }
}

fn multi(client: &Client) -> Multi {
    client.multi([Part::mutex("outage/x"), Part::mutex("outage/y")])
}

/// `None` means that another one holds the lock, nothing else; a limit is kept.
pub async fn a_free_lock_is_unavailable_at_the_limit_and_never_busy(setting: Arc<Setting>) {
    let timeout = setting.through.timeout();
    for how in WAYS {
        let client = setting.weak(Client::builder()).await;
        let mutex = client.mutex("outage/x");
        // Its connections are up.
        soon("a lock", mutex.lock()).await.expect("a lock").release().await.expect("a release");
        setting.begin(how);
        let spin = Order::Spin(Backoff::default());
        let limited = [
            failure("lock", mutex.lock_within(LIMIT)).await,
            failure("barge", mutex.clone().order(Order::Barge).lock_within(LIMIT)).await,
            failure("spin", mutex.clone().order(spin).lock_within(LIMIT)).await,
            failure("lease", mutex.clone().lease(LONG).lock_within(LIMIT)).await,
            failure("multi", multi(&client).lock_within(LIMIT)).await,
        ];
        for (error, time) in limited {
            assert_eq!(error.kind(), Kind::Unavailable, "{how:?}: {error}");
            assert!(time >= LIMIT && time < LIMIT + SLACK, "{how:?}: {time:?}: {error}");
        }
        let tries = [
            failure("try", mutex.try_lock()).await,
            failure("multi", multi(&client).try_lock()).await,
            failure("zero", mutex.lock_within(Duration::ZERO)).await,
        ];
        for (error, time) in tries {
            assert_eq!(error.kind(), Kind::Unavailable, "{how:?}: {error}");
            assert!(time < timeout + SLACK, "{how:?}: {time:?}: {error}");
        }
        let (error, time) = failure("short", mutex.clone().retry_for(LIMIT).try_lock()).await;
        assert!(time < LIMIT + SLACK, "{how:?}: {time:?}: {error}");
        let since = Instant::now();
        let asked = soon("an error", client.with_retry_for(LIMIT).inspect("outage/x")).await;
        let error = asked.expect_err("the store is away");
        assert!(since.elapsed() < LIMIT + SLACK, "{how:?}: {:?}: {error}", since.elapsed());
        setting.end();
        soon("a lock", mutex.lock()).await.expect("a lock").release().await.expect("a release");
        let _ = client.close().await;
    }
}

/// No claim gives up before its limit for a reason that passes by itself.
pub async fn a_claim_with_a_limit_outlasts_an_outage(setting: Arc<Setting>) {
    let strong = setting.strong().await;
    for how in WAYS {
        // The patience of the client is much shorter than the outage.
        let client = setting.weak(Client::builder().retry_for(Duration::from_millis(300))).await;
        let held = soon("a lock", strong.mutex("outage/x").lock()).await.expect("a lock");
        let (queued, new) = (client.mutex("outage/x"), client.mutex("outage/y"));
        let mut queued = tokio::spawn(async move { queued.lock_within(LONG).await });
        // Redlock shows nobody who waits.
        let waits = eventually("it waits", || async {
            let seen = strong.inspect("outage/x").await.expect("a look");
            if seen.waiters.is_empty() { Err(seen) } else { Ok(()) }
        });
        if setting.direct.traits().shared {
            waits.await;
        } else {
            sleep(LIMIT).await;
        }
        setting.begin(how);
        let mut new = tokio::spawn(async move { new.lock_within(LONG).await });
        sleep(LIMIT * 4).await;
        not_yet("a queued claim gave up", &mut queued).await;
        not_yet("a new claim gave up", &mut new).await;
        setting.end();
        held.release().await.expect("a release");
        for claim in [queued, new] {
            let guard = soon("a grant", claim).await.expect("a task").expect("a lock").expect("in time");
            // The patience of the client is short for a machine with much to do.
            guard.release_within(LONG).await.expect("a release");
        }
        let _ = client.close().await;
    }
}

/// The first connection has patience, and not too much.
pub async fn a_client_waits_for_a_server_that_starts(setting: Arc<Setting>) {
    for how in WAYS {
        setting.begin(how);
        let store = setting.through.clone();
        let mut opening = tokio::spawn(async move { Client::builder().retry_for(LONG).open(store).await });
        sleep(LIMIT * 2).await;
        not_yet("a client was opened on nothing, or gave up", &mut opening).await;
        let since = Instant::now();
        let opened =
            soon("the error", Client::builder().retry_for(LIMIT).open(setting.through.clone())).await;
        let (error, time) = (opened.expect_err("there is no server"), since.elapsed());
        assert_eq!(error.kind(), Kind::Unavailable, "{how:?}: {error}");
        let most = LIMIT.max(setting.through.timeout()) + SLACK;
        assert!(time >= LIMIT && time < most, "{how:?}: {time:?}: {error}");
        assert!(error.to_string().contains("tried for"), "{how:?}: {error}");
        setting.end();
        let client = soon("a client", opening).await.expect("a task").expect("a client");
        let guard = soon("a lock", client.mutex("outage/x").lock()).await.expect("a lock");
        guard.release().await.expect("a release");
        client.close().await.expect("a goodbye");
    }
}

/// A release ends in time, and is done all the same.
pub async fn a_release_is_waited_for_within_its_limit_and_goes_on(setting: Arc<Setting>) {
    let strong = setting.strong().await;
    for how in WAYS {
        let client = setting.weak(Client::builder().retry_for(LIMIT)).await;
        let [one, other] = ["outage/x", "outage/y"].map(|name| client.mutex(name));
        let one = soon("a lock", one.lock()).await.expect("a lock");
        let other = soon("a lock", other.lock()).await.expect("a lock");
        setting.begin(how);
        for (time, released) in
            [(LIMIT, timed(one.release()).await), (LIMIT / 4, timed(other.release_within(LIMIT / 4)).await)]
        {
            let (error, took) = (released.0.expect_err("the store is away"), released.1);
            assert_eq!(error.kind(), Kind::Unavailable, "{how:?}: {error}");
            assert!(took < time + SLACK, "{how:?}: {took:?}: {error}");
        }
        setting.end();
        for name in ["outage/x", "outage/y"] {
            let next = soon("a lock", strong.mutex(name).lock_within(Duration::from_secs(20))).await;
            let next = next.expect("an answer").expect("the release goes on, and not until the lease ends");
            next.release().await.expect("a release");
        }
        let _ = client.close().await;
    }
}

async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let since = Instant::now();
    (soon("an answer", future).await, since.elapsed())
}

/// So many locks that a line for each would be noticed. On ZooKeeper a thousand take most of a minute.
fn many(store: &dyn Store) -> usize {
    if store.traits().store == "zookeeper" { 100 } else { 1000 }
}

/// What a line of the log begins with to say which store, server or lock it is about.
const ABOUT: [&str; 6] = ["store=", "master=", "node=", "nodes=", "name=", "first="];

/// One line when it begins, one when it ends, and no other of any store or connection. (Other tests of the binary write
/// lines too, which name their own.)
pub async fn an_outage_writes_two_lines_however_many_locks_are_held(setting: Arc<Setting>) {
    let (log, many) = (Log::get(), many(&*setting.through));
    for how in WAYS {
        let prefix = format!("outage/{how:?}");
        let client =
            setting.weak(Client::builder().default_lease(Duration::from_secs(12)).namespace(&prefix)).await;
        let mut locks = JoinSet::new();
        for n in 0..many {
            let mutex = client.mutex(format!("/{n}"));
            locks.spawn(async move { mutex.lock().await.expect("a lock") });
        }
        let mut locks = soon("many locks", locks.join_all()).await;
        let waiter = client.mutex("/0");
        let mut waiter = tokio::spawn(async move { waiter.lock_within(LONG).await });
        let addresses = setting.proxies.iter().map(|proxy| proxy.address().to_string());
        let ours: Vec<String> = addresses.chain([setting.through.url(), prefix.clone()]).collect();
        let concerns_us = |line: &str| {
            ours.iter().any(|ours| line.contains(ours)) || !ABOUT.iter().any(|about| line.contains(about))
        };
        let before = log.lines(Level::INFO, concerns_us).len();
        let lines = || log.lines(Level::INFO, concerns_us).split_off(before);
        setting.begin(how);
        eventually("the outage is told of", || async {
            let lines = lines();
            if lines.iter().any(|line| line.contains("not available")) { Ok(()) } else { Err(lines) }
        })
        .await;
        // Some renewals more.
        sleep(Duration::from_secs(3)).await;
        setting.end();
        let told = eventually("its end is told of", || async {
            let lines = lines();
            if lines.iter().any(|line| line.contains("available again")) { Ok(lines) } else { Err(lines) }
        })
        .await;
        assert_eq!(told.len(), 2, "{how:?}: {told:#?}");
        assert!(
            told[0].contains(&format!("held={many}")) && told[0].contains("certain_for"),
            "{how:?}: {told:#?}"
        );
        assert!(told[1].contains("lasted") && told[1].contains("lost=0"), "{how:?}: {told:#?}");
        assert!(locks.iter().all(|guard| guard.is_held()), "{how:?}");
        not_yet("a waiter got in or gave up", &mut waiter).await;
        locks.clear();
        let next = soon("a grant", waiter).await.expect("a task").expect("a lock").expect("in time");
        next.release().await.expect("a release");
        client.close().await.expect("a goodbye");
    }
}

/// A forced release, or a request to give a lock back, that came while no notification could: it is heard when they come again, and not
/// when the lease is renewed next.
pub async fn what_happened_to_a_lock_during_an_outage_is_heard_after_it(setting: Arc<Setting>) {
    let strong = setting.strong().await;
    // A third of it is longer than this test waits for anything.
    let lease = setting.through.traits().longest_lease.min(PATIENCE * 10);
    for how in WAYS {
        let client = setting.weak(Client::builder().default_lease(lease)).await;
        let taken = soon("a lock", client.mutex("outage/x").lock()).await.expect("a lock");
        let asked_for = soon("a lock", client.mutex("outage/y").lock()).await.expect("a lock");
        setting.begin(how);
        let revoked = soon("a forced release", strong.force_release("outage/x", None)).await;
        assert_eq!(revoked.expect("a forced release").len(), 1, "{how:?}");
        let asked = soon("a request", strong.request_release("outage/y", None)).await;
        assert_eq!(asked.expect("a request").len(), 1, "{how:?}");
        setting.end();
        assert_eq!(soon("the loss", taken.lost()).await, Lost::Revoked, "{how:?}");
        soon("the request", asked_for.release_requested()).await;
        soon("a release", asked_for.release_within(LONG)).await.expect("a release of a lock that is held");
        client.close().await.expect("a goodbye");
    }
}
