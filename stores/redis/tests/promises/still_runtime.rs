//! A runtime with a connection of its own that stands still: what it has not sent holds nothing up, and what it sends late leaves nothing
//! behind.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use futures_util::poll;
use leasehold_client::{Client, Guard};
use leasehold_core::{Kind, Result};
use leasehold_testkit::Stage;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::wait::soon;
use tokio::runtime::{Builder, Runtime};

use crate::common::play::{fresh_url, lock, on, release};

/// So long that nothing is free because a lease ended.
const LONG: Duration = Duration::from_secs(600);

/// A thread with a runtime that runs only while it is told to.
pub(super) struct StillRuntime(Sender<Work>);

type Work = Box<dyn FnOnce(&Runtime) + Send>;

impl StillRuntime {
    pub(super) fn start() -> Self {
        StillRuntime::named("still", || Builder::new_current_thread().enable_all().build())
    }

    /// One of another kind, and what its thread is called.
    pub(super) fn named(thread: &str, make: fn() -> io::Result<Runtime>) -> Self {
        let (tell, told) = channel::<Work>();
        let works = move || {
            let runtime = make().expect("a runtime");
            told.into_iter().for_each(|work| work(&runtime));
        };
        std::thread::Builder::new().name(thread.to_owned()).spawn(works).expect("a thread");
        StillRuntime(tell)
    }

    /// Runs it until this is done. After that it stands still again.
    pub(super) async fn runs<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let (tell, told) = tokio::sync::oneshot::channel();
        let run = move |runtime: &Runtime| drop(tell.send(runtime.block_on(work)));
        self.0.send(Box::new(run)).expect("the thread lives");
        soon("the runtime", told).await.expect("an answer")
    }

    /// Opens its connection, and waits until that serves: a lock was taken and given back by it.
    async fn warm_up(&self, client: &Client) {
        let mutex = client.mutex("warm");
        self.runs(async move {
            for _ in 0..20 {
                mutex.lock().await.expect("a lock").release().await.expect("a release");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// Lets it send what it has, and hear the answers: they come in order, so those to what was sent last are the last.
    async fn catches_up(&self, client: &Client) {
        self.warm_up(client).await;
    }
}

/// Runs a test with a client whose connection in that runtime is up.
fn with_a_still_runtime<Fut>(body: impl FnOnce(Arc<Stage>, Client, StillRuntime) -> Fut + Send + 'static)
where
    Fut: Future<Output = ()> + Send + 'static,
{
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, _| async move {
        let client = stage.open(Client::builder().default_lease(LONG)).await;
        let runtime = StillRuntime::start();
        runtime.warm_up(&client).await;
        body(stage, client, runtime).await;
    });
}

/// What a future is that was polled once and then left alone, or dropped.
type Abandoned<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// Polls it once on the runtime, which stands still then.
#[allow(clippy::async_yields_async)] // It is to be polled elsewhere.
async fn polled_once<T: Send + 'static>(runtime: &StillRuntime, mut future: Abandoned<T>) -> Abandoned<T> {
    runtime
        .runs(async move {
            assert!(poll!(&mut future).is_pending(), "it was answered by a runtime that stands still");
            future
        })
        .await
}

fn claim(client: &Client, name: &str) -> Abandoned<Guard> {
    let mutex = client.mutex(name);
    Box::pin(async move { mutex.lock().await })
}

#[test]
fn a_claim_that_was_dropped_there_keeps_the_lock_from_no_other_client() {
    with_a_still_runtime(|stage, client, runtime| async move {
        drop(polled_once(&runtime, claim(&client, "x")).await);
        let other = stage.client("other").await;
        // As if the claim had never been.
        release(lock(&other.mutex("x")).await).await;
        runtime.catches_up(&client).await;
        stage.free("x").await;
    });
}

#[test]
fn a_claim_that_is_left_alone_there_is_in_the_queue() {
    with_a_still_runtime(|stage, client, runtime| async move {
        let other = stage.client("other").await;
        let guard = lock(&other.mutex("x")).await;
        let left_alone = polled_once(&runtime, claim(&client, "x")).await;
        stage.waiters("x", 1).await;
        release(guard).await;
        // Another runtime can take over the future itself, too.
        release(soon("a grant", left_alone).await.expect("a lock")).await;
        runtime.catches_up(&client).await;
        stage.free("x").await;
    });
}

#[test]
fn a_release_that_was_dropped_or_is_left_alone_there_is_done() {
    with_a_still_runtime(|stage, client, runtime| async move {
        for dropped in [true, false] {
            let guard = lock(&client.mutex("x")).await;
            let released = polled_once(&runtime, Box::pin(async move { guard.release().await })).await;
            let left_alone = (!dropped).then_some(released);
            let other = stage.client("other").await;
            let guard = lock(&other.mutex("x")).await;
            // What the runtime sends late is about an entry that is gone, and takes nothing away from the next.
            runtime.catches_up(&client).await;
            assert!(guard.is_held());
            assert_eq!(stage.look("x").await.holders.len(), 1);
            release(guard).await;
            if let Some(released) = left_alone {
                soon("the answer", released).await.expect("a release of a lock that was held");
            }
        }
    });
}

#[test]
fn nothing_that_it_has_not_sent_is_sent_after_a_close() {
    with_a_still_runtime(|stage, client, runtime| async move {
        let left_alone = polled_once(&runtime, claim(&client, "x")).await;
        drop(polled_once(&runtime, claim(&client, "y")).await);
        let began = Instant::now();
        soon("the goodbye", client.close()).await.expect("a goodbye");
        // The claim is answered on another connection; for an answer that never comes the goodbye waits for 5 s.
        assert!(began.elapsed() < Duration::from_secs(4), "the goodbye took {:?}", began.elapsed());
        runtime.runs(async { tokio::time::sleep(Duration::from_millis(20)).await }).await;
        let refused = soon("an answer", left_alone).await.expect_err("the client is closed");
        assert_eq!(refused.kind(), Kind::Refused, "{refused}");
        for name in ["x", "y"] {
            let seen = stage.look(name).await;
            assert!(seen.holders.is_empty() && seen.waiters.is_empty(), "{seen:#?}");
        }
    });
}
