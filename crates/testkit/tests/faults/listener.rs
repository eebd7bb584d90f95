//! The listener of outages is code of the user: it may panic and it may block, and no lock is lost by it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use leasehold_client::{ClientBuilder, Outage};
use leasehold_testkit::faulty::{Cut, Op};
use leasehold_testkit::wait::{eventually, soon};

use super::{LEASE, Scene, lock, on_a_faulty_store, with_lease};

/// Longer than an outage takes from its first failure to its news.
const LONG_LEASE: Duration = LEASE.saturating_mul(3);

/// A client with this listener and one without hold a lock each through an outage, and three leases later.
async fn both_keep_their_locks(scene: &Scene, builder: ClientBuilder, news: impl Fn() -> usize) {
    let listening = scene.weak(builder.default_lease(LONG_LEASE)).await;
    let other = scene.weak(with_lease().default_lease(LONG_LEASE)).await;
    let guards = [lock(&listening.mutex("x")).await, lock(&other.mutex("y")).await];
    scene.faulty.cut(Cut::Refused);
    eventually("the outage is told", || async { if news() > 0 { Ok(()) } else { Err(news()) } }).await;
    scene.faulty.heal();
    let renewals = scene.faulty.calls(Op::Renew);
    // Each of both renews three times a lease.
    eventually("both are renewed for three leases", || async {
        let since = scene.faulty.calls(Op::Renew) - renewals;
        let held = guards.iter().all(|guard| guard.is_held());
        if since >= 18 || !held { Ok(()) } else { Err(since) }
    })
    .await;
    assert!(guards.iter().all(|guard| guard.is_held()), "{guards:?}");
    for guard in guards {
        soon("a release", guard.release()).await.expect("a lock that is still held");
    }
}

#[test]
fn a_listener_that_panics_ends_no_renewals() {
    on_a_faulty_store(|scene| async move {
        let told = Arc::new(AtomicUsize::new(0));
        let tell = told.clone();
        let builder = with_lease().on_outage(move |_| {
            tell.fetch_add(1, Ordering::SeqCst);
            panic!("the listener of the test panics");
        });
        both_keep_their_locks(&scene, builder, || told.load(Ordering::SeqCst)).await;
        // The end of the outage is told as well.
        eventually("both are told", || async {
            let told = told.load(Ordering::SeqCst);
            if told >= 2 { Ok(()) } else { Err(told) }
        })
        .await;
    });
}

#[test]
fn a_listener_that_blocks_holds_up_no_renewals_and_is_told_in_order() {
    on_a_faulty_store(|scene| async move {
        let news = Arc::new((Mutex::new((Vec::new(), true)), Condvar::new()));
        let tell = news.clone();
        let builder = with_lease().on_outage(move |outage| {
            let (state, unblocked) = &*tell;
            let mut state = state.lock().unwrap();
            state.0.push(matches!(outage, Outage::Began { .. }));
            let _blocked = unblocked.wait_while(state, |(_, blocked)| *blocked).unwrap();
        });
        let told = || news.0.lock().unwrap().0.clone();
        both_keep_their_locks(&scene, builder, || told().len()).await;
        assert_eq!(told(), [true], "it is called for one event at a time");
        news.0.lock().unwrap().1 = false;
        news.1.notify_all();
        eventually("the end is told after the beginning", || async {
            if told() == [true, false] { Ok(()) } else { Err(told()) }
        })
        .await;
    });
}
