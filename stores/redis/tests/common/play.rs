//! What tests do with clients again and again.

use std::future::Future;
use std::sync::Arc;

use leasehold_client::{Client, ClientBuilder, Guard, Mutex};
use leasehold_core::Result;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::Redis;
use leasehold_testkit::wait::soon;
use leasehold_testkit::{Stage, stage};
use tokio::task::JoinHandle;

use super::{At, open, prefix};

/// The URL of a store on these servers that nobody else uses, with more options: `retention=1s&replicas=0`.
pub(crate) fn fresh_url(servers: &str, options: &str) -> String {
    let options = if options.is_empty() { String::new() } else { format!("&{options}") };
    format!("{servers}?prefix={}{options}", prefix())
}

/// The same store, by way of a proxy.
pub(crate) fn through(url: &str, server: &Redis, proxy: &Proxy) -> String {
    url.replace(&server.address().to_string(), &proxy.address().to_string())
}

/// Runs a test on the store at this URL, and checks that nobody holds anything or waits in the end. The servers live until
/// then.
pub(crate) fn on<S, Fut>(servers: S, url: &str, body: impl FnOnce(Arc<Stage>, Arc<S>) -> Fut)
where
    S: Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let servers = Arc::new(servers);
    stage::run(At(url.to_owned()), &name, |stage| body(stage, servers.clone()));
}

/// A client of the store at a URL.
pub(crate) async fn connect(url: &str, builder: ClientBuilder) -> Client {
    stage::open(builder, open(url).expect("a store")).await
}

/// Takes a lock that should soon be free.
pub(crate) async fn lock(mutex: &Mutex) -> Guard {
    soon("a lock", mutex.lock()).await.expect("a lock")
}

/// Waits for a lock in a task of its own.
pub(crate) fn waiter(mutex: &Mutex) -> JoinHandle<Result<Guard>> {
    let mutex = mutex.clone();
    tokio::spawn(async move { mutex.lock().await })
}

/// The guard of a claim that should soon be granted.
pub(crate) async fn granted(waiter: JoinHandle<Result<Guard>>) -> Guard {
    soon("a grant", waiter).await.expect("a task").expect("a lock")
}

/// Gives a lock back that should still be held.
pub(crate) async fn release(guard: Guard) {
    soon("a release", guard.release()).await.expect("a release");
}

/// Waits until pushes reach the client. What it took before that is asked about once more, which tests that count calls would see.
pub(crate) async fn hears(stage: &Stage, client: &Client) {
    let guard = lock(&client.mutex("heard")).await;
    stage.observer().request_release("heard", None).await.expect("a request");
    soon("the request", guard.release_requested()).await;
    release(guard).await;
}
