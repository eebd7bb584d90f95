//! One request goes wrong: before its effect, after it, or late (scenario 16).

use std::time::{Duration, Instant};

use futures_util::poll;
use leasehold_core::{Kind, Order, Want};
use leasehold_testkit::faulty::{Fault, Op};
use leasehold_testkit::wait::{eventually, not_yet, soon};
use tokio::time::sleep;

use super::{FAULTS, LATE, LEASE, granted, lock, on_a_faulty_store, waiter, with_lease};

#[test]
fn a_failed_join_on_a_free_lock_ends_in_one_hold() {
    on_a_faulty_store(|scene| async move {
        for client in scene.weak_ones().await {
            for fault in FAULTS {
                for order in [Order::Queue, Order::Barge, Order::spin()] {
                    scene.faulty.next(Op::Join, fault);
                    let guard = lock(&client.mutex("x").order(order)).await;
                    let seen = scene.stage.look("x").await;
                    assert_eq!(
                        (seen.holders.len(), seen.waiters.len()),
                        (1, 0),
                        "{fault:?} {order:?}: {seen:#?}"
                    );
                    assert_eq!((guard.is_held(), guard.hold_count()), (true, 1));
                    guard.release().await.expect("a release");
                    scene.stage.free("x").await;
                }
            }
        }
        assert_eq!(scene.faulty.planned(), 0, "every fault happened");
    });
}

#[test]
fn a_failed_join_on_a_busy_lock_ends_in_one_place() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones().await {
            for fault in FAULTS {
                for order in [Order::Queue, Order::Barge] {
                    let holder = lock(&strong.mutex("x")).await;
                    scene.faulty.next(Op::Join, fault);
                    let mut waiting = waiter(&client.mutex("x").order(order));
                    scene.stage.waiters("x", 1).await;
                    not_yet("a busy lock was got", &mut waiting).await;
                    assert_eq!(scene.stage.look("x").await.waiters.len(), 1, "{fault:?} {order:?}");
                    holder.release().await.expect("a release");
                    granted(waiting).await.release().await.expect("a release");
                    scene.stage.free("x").await;
                }
            }
        }
    });
}

#[test]
fn a_failed_try_gets_a_free_lock_and_leaves_a_busy_one_alone() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones().await {
            for fault in FAULTS {
                scene.faulty.next(Op::Join, fault);
                let guard =
                    soon("a try", client.mutex("x").try_lock()).await.expect("a try").expect("a free lock");
                guard.release().await.expect("a release");
                let holder = lock(&strong.mutex("x")).await;
                scene.faulty.next(Op::Join, fault);
                assert!(
                    soon("a try", client.mutex("x").try_lock()).await.expect("a try").is_none(),
                    "{fault:?}"
                );
                assert_eq!(scene.stage.look("x").await.waiters, []);
                holder.release().await.expect("a release");
                scene.stage.free("x").await;
            }
        }
    });
}

#[test]
fn a_failed_claim_for_permits_takes_them_once() {
    on_a_faulty_store(|scene| async move {
        let [client, _] = scene.weak_ones().await;
        for fault in FAULTS {
            scene.faulty.next(Op::Join, fault);
            let guard = soon("permits", client.semaphore("x", 3).acquire(2)).await.expect("permits");
            assert_eq!(guard.want(), Want::Permits { n: 2, of: 3 });
            assert_eq!(scene.stage.look("x").await.holders.len(), 1, "{fault:?}");
            scene.faulty.next(Op::Leave, fault);
            guard.release().await.expect("a release");
            scene.stage.free("x").await;
        }
    });
}

#[test]
fn a_guard_never_believes_in_more_time_than_the_store_gives() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        let lease = Duration::from_secs(5);
        for client in scene.weak_ones().await {
            for fault in FAULTS.into_iter().chain([Fault::LateAnswer(LEASE / 3), Fault::Delay(LEASE / 3)]) {
                for busy in [false, true] {
                    let holder = if busy { Some(lock(&strong.mutex("x")).await) } else { None };
                    scene.faulty.next(Op::Join, fault);
                    let (fixed, kept) = (client.mutex("x").lease(lease), client.mutex("x"));
                    let waiting = waiter(if busy { &kept } else { &fixed });
                    if let Some(holder) = holder {
                        scene.stage.waiters("x", 1).await;
                        holder.release().await.expect("a release");
                    }
                    let guard = granted(waiting).await;
                    let (left, since) = (guard.remaining().expect("an end"), Instant::now());
                    let shown = scene.stage.look("x").await.holders[0].lease_left.expect("an end");
                    // A renewal in between can only add to what the store shows.
                    assert!(
                        left <= shown + since.elapsed(),
                        "{fault:?}: {left:?} are believed, {shown:?} are left"
                    );
                    guard.release().await.expect("a release");
                }
            }
        }
    });
}

#[test]
fn a_note_that_overtakes_the_answer_is_not_undone_by_it() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones().await {
            let holder = lock(&strong.mutex("x")).await;
            // The answer "you wait" arrives after the note "you hold".
            scene.faulty.next(Op::Join, Fault::LateAnswer(LEASE / 4));
            let waiting = waiter(&client.mutex("x"));
            scene.stage.waiters("x", 1).await;
            holder.release().await.expect("a release");
            let guard = granted(waiting).await;
            sleep(LEASE * 2).await;
            assert!(guard.is_held(), "it is renewed as any other");
            guard.release().await.expect("a release");
            scene.stage.free("x").await;
        }
    });
}

#[test]
fn a_hold_that_was_revoked_before_its_answer_came_is_lost() {
    on_a_faulty_store(|scene| async move {
        for client in scene.weak_ones().await {
            scene.faulty.next(Op::Join, Fault::LateAnswer(LATE));
            let waiting = waiter(&client.mutex("x"));
            scene.stage.holders("x", 1).await;
            scene.stage.observer().force_release("x", None).await.expect("a force release");
            // It is lost, or it was asked for again and is held in truth: anything but a guard that stays wrong.
            let guard = granted(waiting).await;
            eventually("the guard tells the truth", || async {
                let shown = scene.stage.look("x").await.holders.len();
                if guard.is_held() == (shown == 1) { Ok(()) } else { Err((guard.is_held(), shown)) }
            })
            .await;
            drop(guard);
            scene.stage.free("x").await;
        }
    });
}

#[test]
fn one_failed_renewal_loses_nothing() {
    on_a_faulty_store(|scene| async move {
        let client = scene.weak(with_lease()).await;
        for fault in FAULTS {
            let guard = lock(&client.mutex("x")).await;
            scene.faulty.next(Op::Renew, fault);
            eventually("the renewal failed", || async {
                if scene.faulty.planned() == 0 { Ok(()) } else { Err(()) }
            })
            .await;
            sleep(LEASE + LATE).await;
            assert!(guard.is_held(), "{fault:?}");
            guard.release().await.expect("a release");
        }
    });
}

#[test]
fn a_failed_renewal_is_repeated_before_the_next_tick() {
    on_a_faulty_store(|scene| async move {
        let tick = Duration::from_secs(2);
        let client = scene.weak(with_lease().default_lease(tick * 3)).await;
        let guard = lock(&client.mutex("x")).await;
        for fault in [Fault::ErrorBefore, Fault::ErrorAfter] {
            scene.faulty.next(Op::Renew, fault);
            let check = || async {
                if scene.faulty.planned() == 0 { Ok(scene.faulty.calls(Op::Renew)) } else { Err(()) }
            };
            let failed = eventually("the renewal failed", check).await;
            let since = Instant::now();
            eventually("it is repeated", || async {
                let calls = scene.faulty.calls(Op::Renew);
                if calls > failed { Ok(()) } else { Err(calls) }
            })
            .await;
            assert!(since.elapsed() < tick * 2 / 3, "{fault:?}: it took {:?}", since.elapsed());
        }
        guard.release().await.expect("a release");
    });
}

#[test]
fn a_failed_release_is_repeated_and_harms_no_successor() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones().await {
            for fault in FAULTS {
                let guard = lock(&client.mutex("x")).await;
                let next = waiter(&strong.mutex("x"));
                scene.stage.waiters("x", 1).await;
                scene.faulty.next(Op::Leave, fault);
                let released = soon("the release", guard.release()).await;
                assert!(released.is_ok(), "{fault:?}: it was held, so it is no loss: {released:?}");
                let next = granted(next).await;
                sleep(LATE * 2).await;
                assert!(next.is_held());
                assert_eq!(scene.stage.look("x").await.holders.len(), 1, "{fault:?}");
                next.release().await.expect("a release");
            }
        }
    });
}

/// The request to leave arrives when the lease is over: it has expired, and nobody took it away.
#[test]
fn a_release_that_comes_too_late_says_expired() {
    on_a_faulty_store(|scene| async move {
        // Patience enough for one try: a repeated one can't tell.
        let builder = with_lease().default_lease(Duration::from_secs(60));
        let strong = scene.strong().await;
        for client in scene.weak_ones_with(builder).await {
            let lease = Duration::from_millis(300);
            let guard = lock(&client.mutex("x").lease(lease)).await;
            let next = waiter(&strong.mutex("x"));
            scene.stage.waiters("x", 1).await;
            scene.faulty.next(Op::Leave, Fault::Delay(lease * 2));
            let Err(error) = soon("the release", guard.release()).await else {
                panic!("the lease was over when it was released")
            };
            assert_eq!(error.kind(), Kind::Lost);
            assert!(error.what().ends_with("expired"), "{error}");
            granted(next).await.release().await.expect("a release");
        }
    });
}

/// Somebody took it away and the note is lost: the store says so.
#[test]
fn a_release_of_a_lock_that_was_taken_away_says_revoked() {
    on_a_faulty_store(|scene| async move {
        for client in scene.weak_ones().await {
            let guard = lock(&client.mutex("x")).await;
            scene.faulty.lose_notes(1);
            scene.stage.observer().force_release("x", None).await.expect("a force release");
            let error = guard.release().await.expect_err("it was taken away");
            assert_eq!(error.kind(), Kind::Lost);
            assert!(error.what().ends_with("revoked"), "{error}");
        }
    });
}

#[test]
fn a_late_answer_during_a_release_makes_no_false_loss() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones().await {
            let holder = lock(&strong.mutex("x")).await;
            // "You wait" is under way for so long that the lock is got by a note, used, and being given back.
            scene.faulty.next(Op::Join, Fault::LateAnswer(Duration::from_millis(150)));
            scene.faulty.next(Op::Leave, Fault::Delay(Duration::from_millis(250)));
            let waiting = waiter(&client.mutex("x"));
            scene.stage.waiters("x", 1).await;
            holder.release().await.expect("a release");
            let guard = granted(waiting).await;
            assert!(guard.is_held());
            let released = soon("the release", guard.release()).await;
            assert!(released.is_ok(), "it was held until it was given back: {released:?}");
            scene.stage.free("x").await;
        }
    });
}

#[test]
fn a_failed_background_release_is_repeated() {
    on_a_faulty_store(|scene| async move {
        for client in scene.weak_ones().await {
            for fault in FAULTS {
                scene.faulty.next(Op::Leave, fault);
                drop(lock(&client.mutex("x")).await);
                let freed = Instant::now();
                scene.stage.free("x").await;
                assert!(freed.elapsed() < LEASE, "{fault:?}: it was repeated, not left to expire");
            }
        }
    });
}

#[test]
fn a_failed_downgrade_is_repeated() {
    on_a_faulty_store(|scene| async move {
        for client in scene.weak_ones().await {
            for fault in FAULTS {
                let guard = soon("a write lock", client.rwlock("x").write()).await.expect("a write lock");
                let token = guard.token();
                scene.faulty.next(Op::Downgrade, fault);
                let guard = soon("a downgrade", guard.downgrade()).await.expect("a downgrade");
                assert_eq!(
                    (guard.token(), guard.want(), guard.is_held()),
                    (token, Want::Shared, true),
                    "{fault:?}"
                );
                assert_eq!(scene.stage.look("x").await.holders[0].want, Want::Shared);
                guard.release().await.expect("a release");
                scene.stage.free("x").await;
            }
        }
    });
}

#[test]
fn questions_are_asked_again() {
    on_a_faulty_store(|scene| async move {
        let client = scene.weak(with_lease()).await;
        for fault in FAULTS {
            scene.faulty.next(Op::Inspect, fault);
            client.inspect("x").await.expect("a look");
            scene.faulty.next(Op::Revoke, fault);
            assert_eq!(client.force_release("x", None).await.expect("a force release"), []);
            scene.faulty.next(Op::RequestRelease, fault);
            assert_eq!(client.request_release("x", None).await.expect("a request"), []);
            let guard = lock(&client.mutex("y")).await;
            scene.faulty.next(Op::RequestRelease, fault);
            assert_eq!(client.request_release("y", None).await.expect("a request").len(), 1);
            soon("the request", guard.release_requested()).await;
            guard.release().await.expect("a release");
            scene.faulty.next(Op::List, fault);
            assert!(client.list("").next().await.is_none());
        }
    });
}

/// The first try takes the lock from its holder, and its answer is lost. The next one has done nothing to lose it.
#[test]
fn a_force_release_whose_answer_is_lost_harms_no_successor() {
    on_a_faulty_store(|scene| async move {
        let (a, b) = (scene.stage.client("a").await, scene.stage.client("b").await);
        let forcing = scene.weak(with_lease()).await;
        for fault in [Fault::ErrorAfter, Fault::LateAndLost(LATE)] {
            for with_token in [false, true] {
                let held = lock(&a.mutex("x")).await;
                let next = waiter(&b.mutex("x"));
                scene.stage.waiters("x", 1).await;
                scene.faulty.next(Op::Revoke, fault);
                let expected = with_token.then(|| held.token());
                let taken = soon("a force release", forcing.force_release("x", expected)).await;
                let from: Vec<_> = taken.expect("a force release").into_iter().map(|v| v.session).collect();
                let next = granted(next).await;
                sleep(LATE * 2).await;
                assert!(next.is_held(), "{fault:?}: the next one lost it");
                let seen: Vec<_> = scene.stage.look("x").await.holders.iter().map(|h| h.session).collect();
                assert_eq!(seen, [b.session()], "{fault:?}: the store has it held by the next one");
                assert_eq!(from, [a.session()], "{fault:?}: it was taken from the first");
                assert!(soon("the loss", held.release()).await.is_err(), "{fault:?}: it was taken away");
                next.release().await.expect("a release");
                scene.stage.free("x").await;
            }
        }
    });
}

/// Readers come and go: only those that were there when it began lose the lock, each of them, and all are named.
#[test]
fn a_repeated_force_release_takes_all_that_were_seen_and_none_that_came_later() {
    on_a_faulty_store(|scene| async move {
        let (a, b, c) =
            (scene.stage.client("a").await, scene.stage.client("b").await, scene.stage.client("c").await);
        let forcing = scene.weak(with_lease()).await;
        for fault in FAULTS {
            let readers = [
                soon("a lock", a.rwlock("x").read()).await.expect("a lock"),
                soon("a lock", b.rwlock("x").read()).await.expect("a lock"),
            ];
            let mut next = tokio::spawn({
                let c = c.rwlock("x");
                async move { c.write().await }
            });
            scene.stage.waiters("x", 1).await;
            not_yet("a busy lock was got", &mut next).await;
            scene.faulty.next(Op::Revoke, fault);
            let taken = soon("a force release", forcing.force_release("x", None)).await;
            let mut from: Vec<_> = taken.expect("a force release").into_iter().map(|v| v.session).collect();
            let mut all = [a.session(), b.session()];
            from.sort();
            all.sort();
            assert_eq!(from, all, "{fault:?}");
            let next = granted(next).await;
            sleep(LATE * 2).await;
            assert!(next.is_held(), "{fault:?}: the next one lost it");
            next.release().await.expect("a release");
            drop(readers);
            scene.stage.free("x").await;
        }
    });
}

#[test]
fn a_wrong_limit_is_no_reason_to_try_again() {
    on_a_faulty_store(|scene| async move {
        let client = scene.weak(with_lease()).await;
        let guard = client.semaphore("x", 3).acquire(1).await.expect("permits");
        let before = scene.faulty.calls(Op::Join);
        let refused = client.semaphore("x", 4).acquire(1).await.expect_err("another limit");
        assert_eq!(refused.kind(), Kind::Mismatch);
        assert_eq!(scene.faulty.calls(Op::Join), before + 1);
        guard.release().await.expect("a release");
    });
}

#[test]
fn a_release_that_hangs_answers_though_its_client_is_closed() {
    on_a_faulty_store(|scene| async move {
        let client = scene.weak(with_lease().retry_for(Duration::from_millis(300))).await;
        let guard = lock(&client.mutex("x")).await;
        scene.faulty.next(Op::Leave, Fault::Hang);
        let mut release = Box::pin(guard.release());
        assert!(poll!(&mut release).is_pending());
        client.close().await.expect("a close");
        // Whatever it says, it says it.
        let _ = soon("the answer of a release", release).await;
    });
}
