//! Readers each have an end of their own: a dead one does not live on the others.

use std::time::Duration;

use leasehold_client::Client;
use leasehold_testkit::wait::{not_yet, soon};

use crate::common::play::release;
use crate::scene::{Fault, on_a_scene};

#[test]
fn a_reader_that_is_cut_off_ends_though_another_is_renewed() {
    on_a_scene(|scene| async move {
        let lease = Duration::from_millis(900);
        let short = || Client::builder().default_lease(lease);
        let live = scene.stage.open(short().label("live")).await;
        let weak = scene.weak(short()).await;
        let writer = scene.strong().await.rwlock("x");
        let dead = weak.rwlock("x").read().await.expect("a read lock");
        let alive = live.rwlock("x").read().await.expect("a read lock");
        scene.stage.holders("x", 2).await;
        let mut writing = tokio::spawn(async move { writer.write().await });
        scene.stage.waiters("x", 1).await;
        scene.begin(Fault::Refused);
        // Its own end comes, whatever the other one does.
        let seen = scene.stage.holders("x", 1).await;
        assert_eq!(seen.holders[0].label.as_str(), "live");
        assert!(!dead.is_held());
        not_yet("a writer got in beside a reader", &mut writing).await;
        assert!(alive.is_held());
        release(alive).await;
        let guard = soon("the writer", writing).await.expect("a task").expect("a write lock");
        scene.end(Fault::Refused);
        release(guard.into_guard()).await;
    });
}

#[test]
fn a_reader_with_a_fixed_end_does_not_end_the_others() {
    on_a_scene(|scene| async move {
        let (a, b) = (scene.strong().await.rwlock("x"), scene.stage.client("b").await.rwlock("x"));
        let fixed = a.lease(Duration::from_millis(300)).read().await.expect("a read lock");
        let kept = b.read().await.expect("a read lock");
        soon("the end of a fixed lease", fixed.lost()).await;
        scene.stage.holders("x", 1).await;
        assert!(kept.is_held());
        drop(fixed);
        release(kept).await;
    });
}
