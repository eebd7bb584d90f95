//! What the client does when the store fails: each request lost before or after its effect, late answers, lost notes,
//! connections that are cut, and all of it at random. On the memory store behind one that fails.

mod cancelled;
mod cut;
mod downgrade;
mod listener;
mod notes;
mod patience;
mod random;
mod requests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Budget, Client, ClientBuilder, Guard, Mutex};
use leasehold_core::Result;
use leasehold_memory::Memory;
use leasehold_testkit::faulty::Fault;
use leasehold_testkit::wait::soon;
use leasehold_testkit::{Faulty, InProcess, Stage};
use tokio::task::JoinHandle;

/// Late, but well within every lease here.
const LATE: Duration = Duration::from_millis(60);

/// Every way in which one call can go wrong.
const FAULTS: [Fault; 4] =
    [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Delay(LATE), Fault::LateAnswer(LATE)];

/// A lease whose third, the time between renewals, is short enough to wait for and long enough for a loaded machine.
const LEASE: Duration = Duration::from_millis(900);

/// A stage on a memory store, and the same store failing.
struct Scene {
    stage: Arc<Stage>,
    faulty: Arc<Faulty>,
}

impl Scene {
    /// A client that goes through the failing store.
    async fn weak(&self, builder: ClientBuilder) -> Client {
        builder.label("weak").open(self.faulty.clone()).await.expect("a client")
    }

    /// The same, in both forms: with a local queue and without.
    async fn weak_ones(&self) -> [Client; 2] {
        self.weak_ones_with(with_lease()).await
    }

    async fn weak_ones_with(&self, builder: ClientBuilder) -> [Client; 2] {
        [self.weak(builder.clone()).await, self.weak(builder.local_queue(Budget::off())).await]
    }

    /// A client that nothing ever happens to.
    async fn strong(&self) -> Client {
        self.stage.client("strong").await
    }
}

fn with_lease() -> ClientBuilder {
    Client::builder().default_lease(LEASE)
}

/// Runs a test on a fresh store that fails when it is told to, and checks that nothing is left in the end.
fn on_a_faulty_store<Fut: Future<Output = ()> + Send + 'static>(body: impl FnOnce(Scene) -> Fut) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    leasehold_testkit::stage::run(InProcess(|| Ok(Memory::new())), &name, |stage| {
        let faulty = Faulty::new(stage.store());
        body(Scene { stage, faulty })
    });
}

fn waiter(mutex: &Mutex) -> JoinHandle<Result<Guard>> {
    let mutex = mutex.clone();
    tokio::spawn(async move { mutex.lock().await })
}

async fn granted<T>(waiter: JoinHandle<Result<T>>) -> T {
    soon("a grant", waiter).await.expect("a task").expect("a lock")
}

async fn lock(mutex: &Mutex) -> Guard {
    soon("a lock", mutex.lock()).await.expect("a lock")
}
