//! What a program can see of its locks: the table in `leasehold_client::docs` is true.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use leasehold_client::{Client, Lost};
use leasehold_memory::Memory;
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Counts what is recorded under each name and label.
#[derive(Default)]
struct Recorded(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Recorded {
    fn slot(&self, key: &Key) -> Arc<AtomicU64> {
        let labels: Vec<String> = key.labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
        let name = if labels.is_empty() {
            key.name().to_owned()
        } else {
            format!("{}{{{}}}", key.name(), labels.join(","))
        };
        self.0.lock().unwrap().entry(name).or_default().clone()
    }

    fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap().iter().map(|(k, v)| (k.clone(), v.load(Ordering::SeqCst))).collect()
    }
}

struct Times(Arc<AtomicU64>);

impl HistogramFn for Times {
    fn record(&self, value: f64) {
        assert!((0.0..60.0).contains(&value), "{value} seconds");
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.slot(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Times(self.slot(key))))
    }
}

#[test]
fn every_metric_of_the_table_is_recorded_and_no_other() {
    // For all threads: what happens in the background is recorded there.
    let recorded = Arc::new(Recorded::default());
    metrics::set_global_recorder(recorded.clone()).unwrap();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let clock = leasehold_client::Clock::manual();
        let client =
            Client::builder().clock(clock.clone()).open(Memory::with_clock(clock.clone())).await.unwrap();
        let lock = client.mutex("n");
        let guard = lock.lock().await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none());
        let (next, ()) = tokio::join!(lock.lock(), async { guard.release().await.unwrap() });
        let kept = next.unwrap();
        clock.advance(std::time::Duration::from_secs(11));
        while !recorded.all().contains_key("leasehold_renewals_total{result=ok}") {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        client.force_release("n", None).await.unwrap();
        assert_eq!(kept.lost().await, Lost::Revoked);
        drop(kept);
        drop(lock.lock().await.unwrap());
    });
    let mut all = recorded.all();
    assert!(all.remove("leasehold_renewals_total{result=ok}").unwrap() >= 1);
    let expected = [
        ("leasehold_acquired_total", 3),
        ("leasehold_busy_total", 1),
        ("leasehold_handoffs_total{to=local}", 1),
        ("leasehold_handoffs_total{to=store}", 1),
        ("leasehold_hold_seconds", 3),
        ("leasehold_lost_total", 1),
        ("leasehold_wait_seconds", 3),
    ];
    assert_eq!(all, expected.map(|(name, count)| (name.to_owned(), count)).into());
    let table = include_str!("../src/docs.rs");
    for (name, _) in expected {
        let name = name.split('{').next().unwrap();
        assert!(table.contains(&format!("`{name}`")), "{name} is not in the table");
    }
}
