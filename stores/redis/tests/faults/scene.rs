//! A server, a client that is reached by a fault, one that is not, and the faults.

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Client, ClientBuilder};
use leasehold_testkit::Stage;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::wait::eventually;
use tokio::time::sleep;

use crate::common::play::{connect, fresh_url, lock, on, through};

/// How long a fault lasts that does not end by itself: longer than a command may take, so that commands fail of it.
const A_FAULT: Duration = Duration::from_millis(450);

/// How long a command may take here.
const COMMAND: &str = "timeout=300ms";

/// A way in which a server or the way to it can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// All connections are reset.
    Cut,
    /// The next request of a script never arrives, and its connection is reset.
    LostRequest,
    /// The next request of a script has its effect, and its answer is lost with the connection.
    LostAnswer,
    /// Connections are reset, and nobody listens for a while.
    Refused,
    /// Everything takes longer, but arrives.
    Delayed,
    /// Answers come byte by byte.
    Dripping,
    /// Nothing passes for a while; then all of it does.
    Hanging,
    /// Requests pass, answers don't, for a while.
    Deaf,
    /// The server stands still for a while (SIGSTOP).
    Paused,
    /// The server is killed, and comes back with its data.
    Killed,
}

impl Fault {
    /// Whether it happens to one request and is over then.
    fn is_once(self) -> bool {
        matches!(self, Fault::LostRequest | Fault::LostAnswer)
    }

    /// Whether nothing gets through while it lasts.
    pub(crate) fn is_total(self) -> bool {
        matches!(self, Fault::Refused | Fault::Hanging | Fault::Deaf | Fault::Paused | Fault::Killed)
    }

    /// Whether others are hit as well.
    pub(crate) fn is_of_the_server(self) -> bool {
        matches!(self, Fault::Paused | Fault::Killed)
    }
}

pub(crate) struct Scene {
    pub(crate) stage: Arc<Stage>,
    servers: Arc<(Redis, Proxy)>,
    url: String,
}

impl Scene {
    /// The client that faults happen to.
    pub(crate) async fn weak(&self, builder: ClientBuilder) -> Client {
        let (server, proxy) = &*self.servers;
        connect(&through(&self.url, server, proxy), builder.label("weak")).await
    }

    /// One that only faults of the server happen to.
    pub(crate) async fn strong(&self) -> Client {
        self.stage.open(Client::builder().label("strong")).await
    }

    pub(crate) fn servers(&self) -> &(Redis, Proxy) {
        &self.servers
    }

    pub(crate) fn begin(&self, fault: Fault) {
        let (server, proxy) = &*self.servers;
        match fault {
            Fault::Cut => proxy.cut(),
            Fault::LostRequest => proxy.cut_before(b"EVALSHA"),
            Fault::LostAnswer => proxy.lose_answer_to(b"EVALSHA"),
            Fault::Refused => proxy.refuse(),
            Fault::Delayed => proxy.delay(Duration::from_millis(60)),
            Fault::Dripping => proxy.drip(1, Duration::from_millis(1)),
            Fault::Hanging => proxy.hang(),
            Fault::Deaf => proxy.swallow_answers(),
            Fault::Paused => server.pause(),
            Fault::Killed => server.kill(),
        }
    }

    /// Whether scripts may tell those who wait. They go on if they may not.
    pub(crate) fn messages(&self, allowed: bool) {
        let right = if allowed { "+publish" } else { "-publish" };
        self.servers.0.cli(&["ACL", "SETUSER", "default", right]);
    }

    /// Waits until the fault has happened, or for as long as it lasts.
    pub(crate) async fn felt(&self, fault: Fault) {
        if fault.is_once() {
            eventually("the fault has happened", || async {
                match self.servers.1.faults_left() {
                    0 => Ok(()),
                    left => Err(left),
                }
            })
            .await;
        } else {
            sleep(A_FAULT).await;
        }
    }

    pub(crate) fn end(&self, fault: Fault) {
        let (server, proxy) = &*self.servers;
        match fault {
            Fault::Paused => server.resume(),
            Fault::Killed => server.restart(),
            Fault::Deaf => {
                proxy.pass();
                // A stream whose middle is lost does not go on.
                proxy.cut();
            }
            _ => proxy.pass(),
        }
    }

    /// It happens and is over.
    pub(crate) async fn pass_through(&self, fault: Fault) {
        self.begin(fault);
        self.felt(fault).await;
        self.end(fault);
    }
}

/// Runs a test with a server of its own that keeps its data.
pub(crate) fn on_a_scene<Fut>(body: impl FnOnce(Scene) -> Fut + Send + 'static)
where
    Fut: Future<Output = ()> + Send + 'static,
{
    let server = Redis::start(RedisOptions::new().append_only());
    let proxy = Proxy::start(server.address());
    let url = fresh_url(&server.url(), COMMAND);
    on((server, proxy), &url.clone(), |stage, servers| async move {
        warm_up(&stage).await;
        body(Scene { stage, servers, url }).await;
    });
}

/// Has the server know the scripts: else a fault would only hit the answer that it does not.
async fn warm_up(stage: &Stage) {
    let mutex = stage.open(Client::builder().default_lease(Duration::from_millis(600))).await.mutex("warm");
    eventually("a lock is renewed", || async {
        let guard = lock(&mutex).await;
        let first = guard.deadline();
        // A machine that stands still can end so short a lease; then another one is taken.
        while guard.is_held() && guard.deadline() == first {
            sleep(Duration::from_millis(5)).await;
        }
        if guard.deadline() > first { Ok(()) } else { Err("it was lost") }
    })
    .await;
    stage.free("warm").await;
}
