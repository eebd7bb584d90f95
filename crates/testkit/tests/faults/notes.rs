//! Notes that never arrive: the slow poll finds what they would have said.

use std::time::Instant;

use leasehold_client::Lost;
use leasehold_core::Order;
use leasehold_testkit::wait::soon;

use super::{LEASE, granted, lock, on_a_faulty_store, waiter};

#[test]
fn a_lost_grant_is_found_by_the_poll() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones().await {
            for order in [Order::Queue, Order::Barge] {
                let holder = lock(&strong.mutex("x")).await;
                let waiting = waiter(&client.mutex("x").order(order));
                scene.stage.waiters("x", 1).await;
                scene.faulty.lose_notes(1);
                holder.release().await.expect("a release");
                let since = Instant::now();
                let guard = granted(waiting).await;
                assert!(since.elapsed() < LEASE * 2, "{order:?}: it took {:?}", since.elapsed());
                assert!(guard.is_held());
                guard.release().await.expect("a release");
                assert_eq!(scene.faulty.planned(), 0, "{order:?}: the note was lost");
            }
        }
    });
}

#[test]
fn a_lost_grant_of_a_fixed_lease_is_found_by_the_poll() {
    on_a_faulty_store(|scene| async move {
        let (strong, [client, _]) = (scene.strong().await, scene.weak_ones().await);
        let holder = lock(&strong.mutex("x")).await;
        let waiting = waiter(&client.mutex("x").lease(LEASE * 4));
        scene.stage.waiters("x", 1).await;
        scene.faulty.lose_notes(1);
        holder.release().await.expect("a release");
        let guard = granted(waiting).await;
        assert!(guard.remaining().is_some_and(|left| left > LEASE), "{:?}", guard.remaining());
        guard.release().await.expect("a release");
    });
}

#[test]
fn a_lost_note_of_a_revocation_is_found_by_the_renewal() {
    on_a_faulty_store(|scene| async move {
        for client in scene.weak_ones().await {
            let guard = lock(&client.mutex("x")).await;
            scene.faulty.lose_notes(1);
            scene.stage.observer().force_release("x", None).await.expect("a force release");
            assert_eq!(soon("the loss", guard.lost()).await, Lost::Revoked);
            assert!(guard.release().await.is_err());
        }
    });
}

#[test]
fn a_lost_note_of_a_request_is_found_by_the_renewal() {
    on_a_faulty_store(|scene| async move {
        for client in scene.weak_ones().await {
            let guard = lock(&client.mutex("x")).await;
            scene.faulty.lose_notes(1);
            let asked = scene.stage.observer().request_release("x", None).await.expect("a request");
            assert_eq!((asked.len(), scene.faulty.planned()), (1, 0), "the note was lost");
            assert!(!guard.is_release_requested());
            let since = Instant::now();
            soon("the request", guard.release_requested()).await;
            assert!(since.elapsed() < LEASE, "it took {:?}", since.elapsed());
            guard.release().await.expect("a release");
        }
    });
}

#[test]
fn many_that_barge_get_in_though_half_of_the_notes_are_lost() {
    on_a_faulty_store(|scene| async move {
        let [_, direct] = scene.weak_ones().await;
        let holder = lock(&direct.mutex("x")).await;
        let waiting: Vec<_> = (0..6).map(|_| waiter(&direct.mutex("x").order(Order::Barge))).collect();
        scene.stage.waiters("x", 6).await;
        scene.faulty.lose_notes(3);
        holder.release().await.expect("a release");
        // In whatever order they get in.
        let mut passing = tokio::task::JoinSet::new();
        for waiter in waiting {
            passing.spawn(async move { granted(waiter).await.release().await });
        }
        while let Some(done) = soon("those that barge", passing.join_next()).await {
            done.expect("a task").expect("a release");
        }
    });
}
