//! One hot resource as many locks.

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::Striped;
use leasehold_core::Kind;

use super::granted;
use crate::stage::Stage;
use crate::wait::{not_yet, soon};

/// A key of each stripe.
fn keys(striped: &Striped, stripes: u32) -> Vec<String> {
    let key_of = |stripe| (0..).map(|n| format!("key {n}")).find(|key| striped.stripe_of(key) == stripe);
    (0..stripes).map(|stripe| key_of(stripe).expect("a key")).collect()
}

/// The same key excludes itself in every client; a key of another stripe doesn't.
pub async fn one_key_excludes_itself_and_no_other_stripe(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.striped("x", 8), stage.client("b").await.striped("x", 8));
    let keys = keys(&a, 8);
    let guard = soon("a stripe", a.lock(&keys[0])).await.expect("a stripe");
    assert!(soon("a try", b.try_lock(&keys[0])).await.expect("a try").is_none());
    let timed =
        soon("a timed try", b.lock_within(&keys[0], Duration::from_millis(30))).await.expect("a timed try");
    assert!(timed.is_none());
    let mut others = Vec::new();
    for key in &keys[1..] {
        others.push(soon("a try", b.try_lock(key)).await.expect("a try").expect("another stripe"));
    }
    for guard in others {
        guard.release().await.expect("a release");
    }
    guard.release().await.expect("a release");
}

/// All clients agree on the stripe of a key, and keys spread.
pub async fn the_stripe_of_a_key_is_stable(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.striped("x", 16), stage.client("b").await.striped("x", 16));
    let mut hits = [0; 16];
    for n in 0..1600u32 {
        let key = n.to_le_bytes();
        let stripe = a.stripe_of(key);
        assert_eq!(stripe, b.stripe_of(key));
        hits[stripe as usize] += 1;
    }
    assert!(hits.iter().all(|hits| (40..=180).contains(hits)), "{hits:?}");
}

/// `lock_all` waits for every stripe, and every stripe waits for it.
pub async fn locking_all_stripes_excludes_every_key(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.striped("x", 4), stage.client("b").await.striped("x", 4));
    let keys = keys(&a, 4);
    let one = soon("a stripe", a.lock(&keys[2])).await.expect("a stripe");
    let timed = soon("a timed try", b.lock_all_within(Duration::from_millis(40))).await.expect("a timed try");
    assert!(timed.is_none());
    let all = b.clone();
    let mut waiting = tokio::spawn(async move { all.lock_all().await });
    not_yet("all stripes were got though one is held", &mut waiting).await;
    one.release().await.expect("a release");
    let guard = granted(waiting).await;
    assert_eq!(guard.tokens().len(), 4);
    for key in &keys {
        assert!(soon("a try", a.try_lock(key)).await.expect("a try").is_none());
    }
    let (waiting, key) = (a.clone(), keys[1].clone());
    let mut waiting = tokio::spawn(async move { waiting.lock(&key).await.map(|guard| guard.token()) });
    not_yet("a stripe was got though all are held", &mut waiting).await;
    guard.release().await.expect("a release");
    granted(waiting).await;
}

/// A hot resource without stripes is no resource.
pub async fn no_stripes_at_all_is_invalid(stage: Arc<Stage>) {
    let refused = stage.client("a").await.striped("x", 0).lock(&"key").await.expect_err("no stripes");
    assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
}
