//! A recorder of metrics and a subscriber of `tracing` that panic: no lock is lost by them. A program of its own, since
//! both are for all of a process.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Counting, Event, until};
use leasehold_client::Client;
use leasehold_memory::Memory;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

struct Panics;

impl Recorder for Panics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        panic!("the recorder of the test panics at {}", key.name())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("the recorder of the test panics at {}", key.name())
    }
}

impl tracing::Subscriber for Panics {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target() == "leasehold" {
            panic!("the subscriber of the test panics");
        }
    }
}

#[tokio::test]
async fn locks_are_kept_lost_and_given_back_though_telemetry_panics() {
    // One line for each would be hundreds.
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("of the test panics") {
            #[allow(clippy::print_stderr)] // Seen beside a failed test.
            {
                eprintln!("{info}");
            }
        }
    }));
    metrics::set_global_recorder(Panics).map_err(|_| ()).expect("the only recorder");
    tracing::subscriber::set_global_default(Panics).expect("the only subscriber");
    let store = Counting::over(Memory::new());
    let lease = Duration::from_millis(900);
    let client = Client::builder().default_lease(lease).open(store.clone()).await.unwrap();
    let (a, b) = (client.mutex("a").lock().await.unwrap(), client.mutex("b").lock().await.unwrap());
    until("both are renewed for three leases", async || store.counts.renewals() >= 18 || !a.is_held()).await;
    assert!(a.is_held() && b.is_held());
    // A loss is told, and the keeper goes on.
    client.force_release("a", None).await.unwrap();
    a.lost().await;
    let seen = store.counts.renewals();
    until("the other one is renewed", async || store.counts.renewals() > seen + 1).await;
    drop((a, b));
    until("the locks are free", async || client.inspect("b").await.unwrap().holders.is_empty()).await;
    store.at_the_grant.next(Event::Requested);
    let guard = Arc::new(client.mutex("c").lock().await.unwrap());
    guard.release_requested().await;
    assert_eq!(store.counts.unanswered_at_close.load(Ordering::SeqCst), 0);
}
