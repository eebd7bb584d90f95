//! Re-entrance is explicit: the same owner, and a claim that says so.

use std::sync::Arc;

use leasehold_client::{Client, Owner, OwnerScope};
use leasehold_core::{Kind, Want};
use tokio::task::yield_now;

use super::{KEPT, waiter};
use crate::stage::Stage;
use crate::wait::{not_yet, soon};

/// Scenario 2.
pub async fn three_re_entries_and_two_releases_still_hold(stage: Arc<Stage>) {
    let a = stage.open(Client::builder().label("a").default_lease(KEPT)).await;
    let b = stage.client("b").await;
    let mutex = a.mutex("x").owner(Owner::new()).reentrant();
    let first = soon("a lock", mutex.lock()).await.expect("a lock");
    let second = soon("a re-entry", mutex.lock()).await.expect("a re-entry");
    let third =
        soon("a re-entry", mutex.try_lock()).await.expect("a re-entry").expect("its own lock is not busy");
    assert_eq!(third.hold_count(), 3);
    first.release().await.expect("a release");
    second.release().await.expect("a release");
    assert_eq!(third.hold_count(), 1);
    stage.outlives("x", KEPT, |seen| &seen.holders).await;
    assert!(third.is_held());
    assert!(soon("a try", b.mutex("x").try_lock()).await.expect("a try").is_none());
    third.release().await.expect("a release");
    soon("the freed lock", b.mutex("x").lock()).await.expect("a lock").release().await.expect("a release");
}

/// Guards of one hold may go in any order, dropped or released.
pub async fn guards_of_one_hold_go_in_any_order(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let mutex = client.mutex("x").owner(Owner::new()).reentrant();
    let outer = mutex.lock().await.expect("a lock");
    let inner = mutex.lock().await.expect("a re-entry");
    drop(outer);
    assert!(inner.is_held());
    let again = mutex.lock().await.expect("a re-entry");
    inner.release().await.expect("a release");
    assert!(again.is_held());
    assert_eq!(again.hold_count(), 1);
    drop(again);
    stage.free("x").await;
}

/// Each guard of a hold that was lost tells of it, also one that is not the last.
pub async fn an_inner_guard_of_a_lost_lock_says_so(stage: Arc<Stage>) {
    let (client, other) = (stage.client("a").await, stage.client("b").await);
    let mutex = client.mutex("x").owner(Owner::new()).reentrant();
    let outer = mutex.lock().await.expect("a lock");
    let inner = mutex.lock().await.expect("a re-entry");
    other.force_release("x", None).await.expect("a revocation");
    soon("the loss", inner.lost()).await;
    for guard in [inner, outer] {
        let error = guard.release().await.expect_err("it was lost");
        assert_eq!(error.kind(), Kind::Lost, "{error}");
    }
}

/// The same owner on a lock that isn't reentrant gets an error, not a silent deadlock.
pub async fn a_lock_that_is_not_reentrant_refuses_its_own_owner(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let (owner, other) = (Owner::new(), Owner::new());
    let guard = soon("a lock", client.mutex("x").owner(owner.clone()).lock()).await.expect("a lock");
    let refused =
        soon("the refusal", client.mutex("x").owner(owner.clone()).lock()).await.expect_err("a refusal");
    assert_eq!(refused.kind(), Kind::Refused, "{refused}");
    assert!(guard.is_held());
    let mut waiting = waiter(&client.mutex("x").owner(other));
    not_yet("another owner got in", &mut waiting).await;
    guard.release().await.expect("a release");
    super::granted(waiting).await.release().await.expect("a release");
    let again =
        client.mutex("x").owner(owner).lock().await.expect("after the release it is free for its owner too");
    again.release().await.expect("a release");
}

/// Without an owner every claim is its own and simply waits, reentrant or not.
pub async fn without_an_owner_every_claim_is_its_own(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    for mutex in [client.mutex("x"), client.mutex("x").reentrant()] {
        let guard = soon("a lock", mutex.lock()).await.expect("a lock");
        assert!(soon("a try", mutex.try_lock()).await.expect("a try").is_none());
        guard.release().await.expect("a release");
    }
}

/// Another owner doesn't re-enter, reentrant or not.
pub async fn another_owner_does_not_re_enter(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let mine = client.mutex("x").owner(Owner::new()).reentrant();
    let theirs = client.mutex("x").owner(Owner::new()).reentrant();
    let guard = soon("a lock", mine.lock()).await.expect("a lock");
    assert!(soon("a try", theirs.try_lock()).await.expect("a try").is_none());
    guard.release().await.expect("a release");
    soon("a lock", theirs.lock()).await.expect("a lock").release().await.expect("a release");
}

/// A scope carries the owner into calls that know nothing of it, across tasks if it is handed on.
pub async fn a_scope_carries_the_owner(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let mutex = client.mutex("x").reentrant();
    let owner = Owner::new();
    let outer = owner.clone().scope(mutex.lock()).await.expect("a lock");
    let inner = owner.clone().scope(async { mutex.lock().await }).await.expect("a re-entry");
    assert_eq!(inner.hold_count(), 2);
    let (task_owner, task_mutex) = (owner.clone(), mutex.clone());
    let elsewhere = tokio::spawn(async move { task_owner.scope(task_mutex.lock()).await });
    let third = soon("a re-entry from another task", elsewhere).await.expect("a task").expect("a re-entry");
    assert_eq!(third.hold_count(), 3);
    assert!(
        soon("a try", mutex.try_lock()).await.expect("a try").is_none(),
        "outside of the scope it is busy"
    );
    for guard in [outer, inner, third] {
        guard.release().await.expect("a release");
    }
}

/// A reader inside its own write lock is part of it; so is a writer inside its own write lock.
pub async fn a_read_inside_ones_own_write_joins_it(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let lock = client.rwlock("x").owner(Owner::new()).reentrant();
    let outer = soon("a write lock", lock.write()).await.expect("a write lock");
    let inner = soon("a read lock", lock.read()).await.expect("a read inside a write");
    let again = soon("a write lock", lock.write()).await.expect("a write inside a write");
    assert_eq!(inner.token(), outer.token());
    drop((inner, again));
    assert!(outer.is_held());
    outer.into_guard().release().await.expect("a release");
}

/// Local re-entry takes no part in the queue: it does not wait behind others who do.
pub async fn a_re_entry_does_not_wait_behind_the_queue(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let mutex = a.mutex("x").owner(Owner::new()).reentrant();
    let outer = soon("a lock", mutex.lock()).await.expect("a lock");
    let (own, other) = (waiter(&a.mutex("x")), waiter(&b.mutex("x")));
    stage.waiters("x", 1).await;
    let inner = soon("a re-entry", mutex.lock()).await.expect("a re-entry");
    inner.release().await.expect("a release");
    outer.release().await.expect("a release");
    let (one, two) = tokio::join!(async { super::granted(own).await.release().await }, async {
        super::granted(other).await.release().await
    });
    one.expect("a release");
    two.expect("a release");
}

/// Of a downgrade and a re-entry as writer at the same moment one is refused: no write guard only reads.
pub async fn a_downgrade_and_a_re_entry_as_writer_exclude_each_other(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    for round in 0..20 {
        let lock = a.rwlock("x").owner(Owner::new()).reentrant();
        let outer = soon("a write lock", lock.write()).await.expect("a write lock");
        let again = async {
            for _ in 0..round / 2 {
                yield_now().await;
            }
            lock.write().await
        };
        let (downgraded, again) = if round % 2 == 0 {
            soon("both", async { tokio::join!(outer.downgrade(), again) }).await
        } else {
            let both = async { tokio::join!(again, outer.downgrade()) };
            let (again, downgraded) = soon("both", both).await;
            (downgraded, again)
        };
        let reads = soon("a try", b.rwlock("x").try_read()).await.expect("a try");
        match (downgraded, again) {
            (Ok(reader), Err(refused)) => {
                assert_eq!((refused.kind(), reader.want()), (Kind::Refused, Want::Shared), "{refused}");
                assert!(reads.is_some(), "readers share");
            }
            (Err(failed), Ok(inner)) => {
                assert_eq!(failed.error().kind(), Kind::Refused, "{failed}");
                let outer = failed.into_writer().expect("nothing has changed");
                assert_eq!((outer.want(), inner.want()), (Want::Exclusive, Want::Exclusive));
                assert!(outer.is_held() && inner.is_held() && reads.is_none(), "a reader beside a writer");
            }
            both => panic!("round {round}: {both:?}"),
        }
        drop(reads);
        stage.free("x").await;
    }
}
