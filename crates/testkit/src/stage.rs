//! What every scenario stands on: a fresh store, clients, and an observer that sees what the store shows.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Budget, Client, ClientBuilder};
use leasehold_core::Traits;
use leasehold_core::store::Store;
use leasehold_core::view::{EntryView, Snapshot};
use tokio::time::{Instant, sleep, timeout};

use crate::bed::{Bed, Place};
use crate::child::{Child, Role};
use crate::needs::missing;
use crate::panics;
use crate::wait::{eventually, soon};

/// How long a whole scenario may take before it counts as hung.
const TOO_LONG: Duration = Duration::from_secs(240);

/// A fresh store with an observer.
pub struct Stage {
    place: Place,
    observer: Client,
    is_another_topology: bool,
}

/// Runs one scenario on a fresh store, and checks that it left nothing behind.
pub fn run<F, Fut>(bed: impl Bed, scenario: &str, body: F)
where
    F: FnOnce(Arc<Stage>) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = threads.expect("a runtime");
    let panics = panics::watch();
    runtime.block_on(async {
        let stage = Arc::new(Stage::set(&bed).await);
        if let Some(why) = missing(scenario, stage.traits()) {
            report(&format!("{scenario} has nothing to show on this store: {why}"));
            return;
        }
        let task = tokio::spawn(body(stage.clone()));
        match timeout(TOO_LONG, task).await {
            Ok(Ok(())) => stage.nothing_is_left().await,
            Ok(Err(failure)) => {
                let shown = timeout(Duration::from_secs(2), stage.all()).await;
                report(&format!("{scenario} failed; the store shows {shown:#?}"));
                std::panic::resume_unwind(failure.into_panic());
            }
            Err(_) => panic!("{scenario} hangs; the store shows {:#?}", stage.all().await),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    panics::check(panics);
}

#[allow(clippy::print_stderr)] // Only seen beside a failed test.
fn report(text: &str) {
    eprintln!("{text}");
}

/// Opens a client. A server that does not answer at once is asked again: the machine may have stood still for longer than
/// a test lets commands take.
pub async fn open(builder: ClientBuilder, store: Arc<dyn Store>) -> Client {
    eventually("a client can be opened", || builder.clone().open(store.clone())).await
}

impl Stage {
    /// Makes a fresh store.
    pub async fn set(bed: &impl Bed) -> Self {
        let place = bed.fresh().await.expect("a fresh store");
        let observer = open(Client::builder().label("observer"), place.store.clone()).await;
        Stage { place, observer, is_another_topology: bed.is_another_topology() }
    }

    /// Whether the usual topology of the same store runs the suite too.
    pub fn is_another_topology(&self) -> bool {
        self.is_another_topology
    }

    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        self.place.store.clone()
    }

    /// What the store promises.
    pub fn traits(&self) -> &'static Traits {
        self.place.store.traits()
    }

    /// A client like most users have it: the tasks of one client queue locally.
    pub async fn client(&self, label: &str) -> Client {
        self.open(Client::builder().label(label)).await
    }

    /// A client whose every claim is an entry of its own at the store.
    pub async fn direct(&self, label: &str) -> Client {
        self.open(Client::builder().label(label).local_queue(Budget::off())).await
    }

    /// A client with options.
    pub async fn open(&self, builder: ClientBuilder) -> Client {
        open(builder, self.store()).await
    }

    /// The client that looks and never locks.
    pub fn observer(&self) -> &Client {
        &self.observer
    }

    /// Starts another process on the same store; `None` if the store doesn't reach it.
    pub fn child(&self, role: &Role) -> Option<Child> {
        self.place.url.as_deref().map(|url| Child::start(url, role))
    }

    /// How a lock stands now.
    pub async fn look(&self, name: &str) -> Snapshot {
        soon("to inspect a lock", self.observer.inspect(name)).await.expect("a look at a lock")
    }

    /// Waits until exactly so many wait at the store.
    pub async fn waiters(&self, name: &str, count: usize) -> Snapshot {
        self.sees(name, &format!("{count} wait for {name:?}"), |seen| seen.waiters.len() == count).await
    }

    /// Waits until exactly so many hold at the store.
    pub async fn holders(&self, name: &str, count: usize) -> Snapshot {
        self.sees(name, &format!("{count} hold {name:?}"), |seen| seen.holders.len() == count).await
    }

    /// Waits until nobody holds a lock and nobody waits for it.
    pub async fn free(&self, name: &str) {
        let idle = |seen: &Snapshot| seen.holders.is_empty() && seen.waiters.is_empty();
        self.sees(name, &format!("{name:?} is free"), idle).await;
    }

    /// Waits until the first entry among those that `pick` gives would last longer than when it was first seen: it was
    /// renewed. Where an entry ends only with its session, the time of a lease passes instead.
    ///
    /// The lease should be some seconds: a machine that stalls for less than two thirds of it must not end it.
    pub async fn outlives(&self, name: &str, lease: Duration, pick: impl Fn(&Snapshot) -> &[EntryView]) {
        let first = |seen: &Snapshot| pick(seen).first().cloned();
        let seen = first(&self.look(name).await).expect("an entry to be renewed");
        let Some(left) = seen.lease_left else { return sleep(lease).await };
        // Counted from after the look: later than its true end, never earlier.
        let end = Instant::now() + left;
        let (first, id) = (&first, seen.id);
        eventually(&format!("the lease of {name:?} is renewed"), || async move {
            let began = Instant::now();
            match first(&self.look(name).await) {
                Some(now) if now.id == id && now.lease_left.is_some_and(|left| began + left > end) => Ok(()),
                seen => Err(seen),
            }
        })
        .await;
    }

    async fn sees(&self, name: &str, what: &str, right: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let right = &right;
        eventually(what, || async move {
            let seen = self.look(name).await;
            if right(&seen) { Ok(seen) } else { Err(seen) }
        })
        .await
    }

    /// All locks that anybody holds or waits for.
    pub async fn all(&self) -> Vec<Snapshot> {
        let mut all = Vec::new();
        let mut list = self.observer.list("");
        while let Some(found) = list.next().await {
            all.push(found.expect("a list"));
        }
        all
    }

    /// Waits until the store is empty. Every scenario ends with it.
    pub async fn nothing_is_left(&self) {
        eventually("nothing is left at the store", || async {
            let all = self.all().await;
            if all.is_empty() { Ok(()) } else { Err(all) }
        })
        .await;
    }
}
