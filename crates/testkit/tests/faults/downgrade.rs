//! A downgrade that is dropped midway or fails: what this client believes and what the store holds still agree.

use std::time::Duration;

use futures_util::poll;
use leasehold_client::{Client, Lost, Owner, RwLock, WriteGuard};
use leasehold_core::{Kind, Result, Want};
use leasehold_memory::Memory;
use leasehold_testkit::Faulty;
use leasehold_testkit::faulty::{Cut, Fault, Op};
use leasehold_testkit::wait::{eventually, soon};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use super::{FAULTS, LATE, Scene, granted, on_a_faulty_store, with_lease};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(600);

fn writer(lock: &RwLock) -> JoinHandle<Result<WriteGuard>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.write().await })
}

async fn write(lock: &RwLock) -> WriteGuard {
    soon("a write lock", lock.write()).await.expect("a write lock")
}

/// A writer that was just let in is alone, for the store and for others.
async fn must_be_alone(scene: &Scene, writer: &WriteGuard, other: &Client, when: &str) {
    let seen = scene.stage.look("x").await;
    let wants: Vec<_> = seen.holders.iter().map(|holder| holder.want).collect();
    assert_eq!((writer.want(), &wants[..]), (Want::Exclusive, &[Want::Exclusive][..]), "{when}: {seen:#?}");
    let tried = soon("a try", other.rwlock("x").try_read()).await.expect("a try");
    assert!(tried.is_none(), "{when}: a reader beside a writer");
}

/// The cut comes after each number of polls, and the request fails in each way, before or after it.
#[test]
fn a_dropped_downgrade_never_leaves_the_next_local_writer_with_a_shared_entry() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones().await {
            let lock = client.rwlock("x");
            for fault in FAULTS {
                for polls in 0..4 {
                    let when = format!("{fault:?}, dropped after {polls} polls");
                    let guard = write(&lock).await;
                    let next = writer(&lock);
                    yield_now().await;
                    scene.faulty.next(Op::Downgrade, fault);
                    let mut downgrade = Box::pin(guard.downgrade());
                    for _ in 0..polls {
                        if poll!(&mut downgrade).is_ready() {
                            break;
                        }
                        sleep(LATE / 20).await;
                    }
                    drop(downgrade);
                    let next = granted(next).await;
                    must_be_alone(&scene, &next, &strong, &when).await;
                    // The late effect of the request, too.
                    sleep(LATE).await;
                    must_be_alone(&scene, &next, &strong, &when).await;
                    next.release().await.expect("a release");
                    scene.stage.free("x").await;
                }
            }
        }
    });
}

/// The answer never comes: `downgrade` fails when the client's patience is over, and the entry goes to no other writer.
#[test]
fn a_downgrade_of_unknown_outcome_never_leaves_the_next_local_writer_with_a_shared_entry() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        let client = scene.weak(with_lease().retry_for(LATE).default_lease(Duration::from_secs(20))).await;
        let lock = client.rwlock("x");
        for had_effect in [false, true] {
            let guard = write(&lock).await;
            let next = writer(&lock);
            yield_now().await;
            let late = Duration::from_secs(1);
            let fault = if had_effect { Fault::LateAnswer(late) } else { Fault::Delay(late) };
            scene.faulty.next(Op::Downgrade, fault);
            let failed = soon("the failure", guard.downgrade()).await.expect_err("no answer in time");
            drop(failed);
            let next = granted(next).await;
            must_be_alone(&scene, &next, &strong, "after the failure").await;
            sleep(late).await;
            must_be_alone(&scene, &next, &strong, "after the late effect").await;
            next.release().await.expect("a release");
            scene.stage.free("x").await;
        }
        // The same through a cut.
        let guard = write(&lock).await;
        let next = writer(&lock);
        yield_now().await;
        scene.faulty.cut(Cut::Silent);
        let failed = soon("the failure", guard.downgrade()).await.expect_err("no answer in time");
        drop(failed);
        scene.faulty.heal();
        eventually("the entry left", || async {
            let seen = scene.stage.look("x").await;
            if seen.holders.len() == 1 { Ok(()) } else { Err(seen) }
        })
        .await;
        let next = granted(next).await;
        must_be_alone(&scene, &next, &strong, "after the cut").await;
        next.release().await.expect("a release");
    });
}

/// What is handed back says no more than what is certain.
#[test]
fn a_downgrade_of_unknown_outcome_hands_back_what_is_good_to_read_with() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones_with(with_lease().retry_for(LATE)).await {
            for fault in [Fault::ErrorBefore, Fault::ErrorAfter] {
                let guard = write(&client.rwlock("x")).await;
                let token = guard.token();
                // As many as are tried within the patience, and more.
                (0..100).for_each(|_| scene.faulty.next(Op::Downgrade, fault));
                let failed = soon("the failure", guard.downgrade()).await.expect_err("no answer");
                scene.faulty.forget();
                assert_eq!((failed.error().kind(), failed.is_writer()), (Kind::Unavailable, false));
                let text = failed.to_string();
                assert!(text.starts_with("the write lock may not have been downgraded"), "{text}");
                let reader = failed.into_writer().expect_err("it may be shared");
                assert_eq!((reader.token(), reader.want(), reader.is_held()), (token, Want::Shared, true));
                // No other task of its client gets it, and none of them waits for ever.
                assert!(soon("a try", client.rwlock("x").try_write()).await.expect("a try").is_none());
                let tried = soon("a try", strong.rwlock("x").try_read()).await.expect("a try");
                assert_eq!(tried.is_some(), fault == Fault::ErrorAfter);
                drop(tried);
                let next = writer(&client.rwlock("x"));
                reader.release().await.expect("a release");
                let next = granted(next).await;
                must_be_alone(&scene, &next, &strong, "after the doubt").await;
                next.release().await.expect("a release");
                scene.stage.free("x").await;
            }
        }
    });
}

/// Nothing has changed, so the writer goes on as one: also for the local queue.
#[test]
fn a_downgrade_that_is_refused_hands_the_write_lock_back() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones().await {
            for owner in [None, Some(Owner::new())] {
                let mut lock = client.rwlock("x").reentrant();
                if let Some(owner) = owner.clone() {
                    lock = lock.owner(owner);
                }
                let guard = write(&lock).await;
                let token = guard.token();
                scene.faulty.next(Op::Downgrade, Fault::Refused);
                let failed = guard.downgrade().await.expect_err("it is refused");
                assert_eq!((failed.error().kind(), failed.is_writer()), (Kind::Refused, true));
                let guard = failed.into_writer().expect("nothing has changed");
                assert_eq!(guard.token(), token);
                must_be_alone(&scene, &guard, &strong, "after the refusal").await;
                if owner.is_some() {
                    let again = write(&lock).await;
                    assert_eq!(again.hold_count(), 2, "it writes as before");
                }
                let reader = soon("a downgrade", guard.downgrade()).await.expect("a downgrade");
                assert_eq!(reader.want(), Want::Shared);
                reader.release().await.expect("a release");
                scene.stage.free("x").await;
            }
        }
    });
}

/// The lock was lost before: the guard comes back and says so.
#[test]
fn a_downgrade_of_a_lock_that_was_lost_hands_a_lost_guard_back() {
    on_a_faulty_store(|scene| async move {
        for client in scene.weak_ones().await {
            let guard = write(&client.rwlock("x")).await;
            scene.faulty.lose_notes(1);
            scene.stage.observer().force_release("x", None).await.expect("a force release");
            let failed = soon("the failure", guard.downgrade()).await.expect_err("it is lost");
            assert_eq!(failed.error().kind(), Kind::Lost, "{failed}");
            let guard = failed.into_guard();
            assert!(!guard.is_held());
            assert_eq!(soon("the reason", guard.lost()).await, Lost::Revoked);
        }
    });
}

/// With `?` the lock is given back.
#[test]
fn an_error_of_a_downgrade_is_one_of_ours_and_gives_the_lock_back() {
    on_a_faulty_store(|scene| async move {
        for client in scene.weak_ones().await {
            scene.faulty.next(Op::Downgrade, Fault::Refused);
            let work = async || -> Result<()> {
                let _reader = client.rwlock("x").write().await?.downgrade().await?;
                Ok(())
            };
            assert_eq!(work().await.expect_err("it is refused").kind(), Kind::Refused);
            scene.stage.free("x").await;
        }
    });
}

/// Nothing fails, and the answer takes its time.
#[test]
fn a_re_entry_as_writer_while_a_downgrade_is_under_way_is_refused() {
    on_a_faulty_store(|scene| async move {
        let strong = scene.strong().await;
        for client in scene.weak_ones().await {
            for fault in [Fault::Delay(LATE), Fault::LateAnswer(LATE)] {
                let lock = client.rwlock("x").owner(Owner::new()).reentrant();
                let guard = write(&lock).await;
                scene.faulty.next(Op::Downgrade, fault);
                let mut downgrade = Box::pin(guard.downgrade());
                assert!(poll!(&mut downgrade).is_pending());
                let again = soon("the re-entry", lock.write()).await.expect_err("it is becoming a reader");
                assert_eq!(again.kind(), Kind::Refused, "{again}");
                let inner = soon("the re-entry", lock.read()).await.expect("a reader beside it");
                let reader = soon("the downgrade", downgrade).await.expect("a downgrade");
                assert_eq!(
                    (reader.want(), inner.want(), reader.hold_count()),
                    (Want::Shared, Want::Shared, 2)
                );
                let beside = soon("a try", strong.rwlock("x").try_read()).await.expect("a try");
                assert!(beside.is_some(), "readers share");
            }
            scene.stage.free("x").await;
        }
    });
}

/// The handle of a semaphore believes in what the store has, also if it did not wait for the answer.
#[test]
fn a_dropped_change_of_a_limit_is_learned() {
    on_a_faulty_store(|scene| async move {
        let client = scene.weak(with_lease()).await;
        for (fault, limit) in FAULTS.into_iter().zip(4..) {
            let mut semaphore = client.semaphore("x", limit - 1);
            let one = soon("a permit", semaphore.acquire(1)).await.expect("a permit");
            scene.faulty.next(Op::SetLimit, fault);
            let mut change = Box::pin(semaphore.set_limit(limit));
            assert!(poll!(&mut change).is_pending(), "{fault:?}");
            drop(change);
            eventually("the handle and the store agree", || async {
                let (seen, believed) = (scene.stage.look("x").await.limit, semaphore.limit());
                if seen == Some(limit) && believed == limit { Ok(()) } else { Err((seen, believed)) }
            })
            .await;
            let two = soon("a permit", semaphore.acquire(1)).await.expect("a permit");
            drop((one, two));
            scene.stage.free("x").await;
        }
    });
}

/// The limit of the call, and not the patience of the client, is what counts.
#[test]
fn a_downgrade_has_a_limit_of_its_own() {
    on_a_faulty_store(|scene| async move {
        let client = scene.weak(with_lease().retry_for(LONG).default_lease(LONG)).await;
        for how in [Cut::Refused, Cut::Silent] {
            let guard = write(&client.rwlock("x")).await;
            scene.faulty.cut(how);
            let failed =
                soon("the failure", guard.downgrade_within(LATE)).await.expect_err("no answer in time");
            assert_eq!(failed.error().kind(), Kind::Unavailable, "{how:?}: {}", failed.error());
            assert!(failed.error().to_string().contains("tried for"), "{how:?}: {}", failed.error());
            scene.faulty.heal();
            drop(failed);
            scene.stage.free("x").await;
        }
    });
}

/// The entry is gone, and the question why is not answered: the next renewal tells, and nothing is made up until then.
#[tokio::test]
async fn a_downgrade_of_what_is_not_there_makes_up_no_reason() {
    let memory = Memory::new();
    let faulty = Faulty::new(memory.clone());
    let client = Client::builder().default_lease(LONG).open(faulty.clone()).await.expect("a client");
    let writer = write(&client.rwlock("x")).await;
    memory.wipe();
    faulty.next(Op::Renew, Fault::ErrorBefore);
    let failed = soon("a downgrade", writer.downgrade()).await.expect_err("it is not there");
    let error = failed.error().clone();
    assert_eq!(error.kind(), Kind::Lost, "{error}");
    assert!(!error.to_string().contains(Lost::Revoked.as_str()), "{error}");
    let guard = failed.into_writer().map_or_else(|reader| reader, WriteGuard::into_guard);
    assert_eq!(soon("the reason", guard.lost()).await, Lost::Wiped);
}
