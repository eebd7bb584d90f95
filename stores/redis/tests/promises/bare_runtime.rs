//! A runtime without timers or without an I/O driver can have no connection of its own, and needs none.

use std::panic;
use std::sync::{Mutex, Once, PoisonError};

use leasehold_client::Client;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::wait::soon;
use tokio::runtime::{Builder, Runtime};

use super::still_runtime::StillRuntime;
use crate::common::play::{fresh_url, lock, on, release};

/// What the threads that run such runtimes are called.
const BARE: &str = "bare";

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The panics on these threads since the first call. A stage must stand before that: it watches panics too, and two who put
/// their hooks in at once could lose one.
fn panics() -> Vec<String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some(BARE) {
                PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            }
            usual(info);
        }));
    });
    PANICS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Takes and gives back a lock, by a release and by dropping its guard.
async fn lock_and_release(runtime: &StillRuntime, client: &Client) {
    let mutex = client.mutex("x");
    let work = async move {
        for _ in 0..5 {
            mutex.lock().await.expect("a lock").release().await.expect("a release");
            drop(mutex.lock().await.expect("a lock"));
        }
    };
    runtime.runs(work).await;
}

/// Every kind of runtime on which something is missing.
fn bare_runtimes() -> Vec<StillRuntime> {
    let kinds: [fn() -> std::io::Result<Runtime>; 4] = [
        || Builder::new_current_thread().build(),
        || Builder::new_current_thread().enable_time().build(),
        || Builder::new_current_thread().enable_io().build(),
        || Builder::new_multi_thread().worker_threads(1).thread_name(BARE).build(),
    ];
    kinds.map(|make| StillRuntime::named(BARE, make)).into()
}

#[test]
fn locks_are_taken_on_runtimes_without_drivers() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, _| async move {
        let before = panics();
        assert_eq!(before, Vec::<String>::new());
        let (clients, other) =
            ([stage.client("one").await, stage.client("two").await], stage.client("other").await);
        let (bare, usual) = (bare_runtimes(), StillRuntime::start());
        for _ in 0..3 {
            for client in &clients {
                for runtime in &bare {
                    lock_and_release(runtime, client).await;
                }
                lock_and_release(&usual, client).await;
            }
        }
        // One that waits is told there, too.
        for runtime in &bare {
            let (guard, mutex) = (lock(&other.mutex("x")).await, clients[0].mutex("x"));
            let waits = runtime.runs(async move { mutex.lock().await });
            let frees = async {
                stage.waiters("x", 1).await;
                release(guard).await;
            };
            let (waited, ()) = tokio::join!(waits, frees);
            release(waited.expect("a lock")).await;
        }
        // Only by a panic, which is caught, can one learn that something is missing.
        let seen = panics();
        assert!(seen.len() <= bare.len(), "more than one for each of these runtimes: {seen:#?}");
        for client in clients {
            soon("the goodbye", client.close()).await.expect("a goodbye");
        }
    });
}
