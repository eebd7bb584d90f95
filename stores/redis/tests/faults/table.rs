//! Every fault meets everything that a client does. Each cell ends in the right state: one entry at most at any time, nobody
//! hangs, a holder that loses its lock knows it before others hold, waiters get in, and the lock is free in the end.

use std::time::Duration;

use leasehold_client::{Client, ClientBuilder, Guard, Lost};
use leasehold_core::Kind;
use leasehold_testkit::wait::{eventually, not_yet, soon};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::common::play::{granted, lock, release, waiter};
use crate::scene::{Fault, Scene, on_a_scene};

/// So long that nothing here ends by itself: what is gone was taken away by somebody who remembered it.
const LONG: Duration = Duration::from_secs(120);

/// Long, but not longer than a test waits.
const LATE: Duration = Duration::from_secs(8);

/// Short enough to see it renewed, longer than any fault here.
const KEPT: Duration = Duration::from_millis(1800);

/// Shorter than a fault that is meant to last longer than it.
const SHORT: Duration = Duration::from_millis(600);

/// The cells: one test for each.
macro_rules! table {
    ($($row:ident $fault:ident { $($cell:ident)* })*) => {
        $(mod $row {
            $(#[test]
            fn $cell() {
                super::on_a_scene(|scene| super::play(scene, super::Fault::$fault, super::Cell::$cell));
            })*
        })*
    };
}

/// What the client does when the fault comes.
#[allow(non_camel_case_types)] // They are the names of tests.
#[derive(Debug, Clone, Copy)]
enum Cell {
    while_acquiring,
    while_queueing,
    while_renewing,
    for_longer_than_the_lease,
    while_releasing,
    while_waiting,
    while_being_granted,
    while_cancelling,
}

table! {
    a_cut Cut {
        while_acquiring while_queueing while_renewing while_releasing while_waiting while_being_granted while_cancelling
    }
    a_lost_request LostRequest {
        while_acquiring while_queueing while_renewing while_releasing while_waiting while_cancelling
    }
    a_lost_answer LostAnswer {
        while_acquiring while_queueing while_renewing while_releasing while_waiting while_cancelling
    }
    a_refusal Refused {
        while_acquiring while_queueing while_renewing for_longer_than_the_lease while_releasing while_waiting
        while_being_granted while_cancelling
    }
    a_slow_network Delayed {
        while_acquiring while_queueing while_renewing while_releasing while_waiting while_being_granted while_cancelling
    }
    a_slow_drip Dripping {
        while_acquiring while_queueing while_renewing while_releasing while_waiting while_being_granted while_cancelling
    }
    a_black_hole Hanging {
        while_acquiring while_queueing while_renewing for_longer_than_the_lease while_releasing while_waiting
        while_being_granted while_cancelling
    }
    answers_that_vanish Deaf {
        while_acquiring while_queueing while_renewing for_longer_than_the_lease while_releasing while_waiting
        while_being_granted while_cancelling
    }
    a_server_that_stands_still Paused {
        while_acquiring while_queueing while_renewing for_longer_than_the_lease while_releasing while_waiting while_cancelling
    }
    a_server_that_is_killed_and_comes_back Killed {
        while_acquiring while_queueing while_renewing for_longer_than_the_lease while_releasing while_waiting while_cancelling
    }
}

async fn play(scene: Scene, fault: Fault, cell: Cell) {
    // A claim that was given up can arrive late, beside the next one, and is taken back then.
    let most = if matches!(cell, Cell::while_cancelling) { 2 } else { 1 };
    let watchman = watch_over(&scene, most);
    match cell {
        Cell::while_acquiring => acquiring(&scene, fault).await,
        Cell::while_queueing => queueing(&scene, fault).await,
        Cell::while_renewing => renewing(&scene, fault).await,
        Cell::for_longer_than_the_lease => too_long(&scene, fault).await,
        Cell::while_releasing => releasing(&scene, fault).await,
        Cell::while_waiting => waiting(&scene, fault).await,
        Cell::while_being_granted => being_granted(&scene, fault).await,
        Cell::while_cancelling => cancelling(&scene, fault).await,
    }
    scene.stage.free("x").await;
    if watchman.is_finished() {
        watchman.await.expect("one entry at a time");
    } else {
        watchman.abort();
    }
}

/// Looks all the time: one holds at most, and the client that the faults happen to has so many entries at most.
fn watch_over(scene: &Scene, most: usize) -> JoinHandle<()> {
    let observer = scene.stage.observer().clone();
    tokio::spawn(async move {
        loop {
            if let Ok(seen) = observer.inspect("x").await {
                let entries = || seen.holders.iter().chain(&seen.waiters);
                let of_weak = entries().filter(|entry| entry.label.as_str() == "weak").count();
                assert!(seen.holders.len() <= 1 && of_weak <= most, "{seen:#?}");
            }
            sleep(Duration::from_millis(2)).await;
        }
    })
}

fn with(lease: Duration) -> ClientBuilder {
    Client::builder().default_lease(lease)
}

/// It is held, by this guard, once, and nobody else can have it.
async fn is_truly_held(scene: &Scene, guard: &Guard) {
    assert!(guard.is_held());
    let seen = scene.stage.holders("x", 1).await;
    assert_eq!((seen.holders[0].label.as_str(), seen.waiters.len()), ("weak", 0), "{seen:#?}");
    let other = soon("a try", scene.strong().await.mutex("x").try_lock()).await.expect("a try");
    assert!(other.is_none());
}

async fn acquiring(scene: &Scene, fault: Fault) {
    let weak = scene.weak(with(LONG)).await.mutex("x");
    scene.begin(fault);
    let mut claim = waiter(&weak);
    if fault.is_total() {
        not_yet("a lock was got from nowhere", &mut claim).await;
    }
    scene.felt(fault).await;
    scene.end(fault);
    let guard = granted(claim).await;
    is_truly_held(scene, &guard).await;
    assert_eq!(guard.hold_count(), 1);
    release(guard).await;
}

async fn queueing(scene: &Scene, fault: Fault) {
    let (weak, strong) = (scene.weak(with(LONG)).await.mutex("x"), scene.strong().await.mutex("x"));
    let held = lock(&strong).await;
    scene.begin(fault);
    let mut claim = waiter(&weak);
    scene.felt(fault).await;
    scene.end(fault);
    scene.stage.waiters("x", 1).await;
    not_yet("a busy lock was got", &mut claim).await;
    release(held).await;
    release(granted(claim).await).await;
}

async fn renewing(scene: &Scene, fault: Fault) {
    let guard = lock(&scene.weak(with(KEPT)).await.mutex("x")).await;
    let token = guard.token();
    scene.pass_through(fault).await;
    let before = guard.deadline();
    eventually("it is renewed", || async {
        assert!(guard.is_held(), "the lock was lost");
        if guard.deadline() > before { Ok(()) } else { Err(guard.remaining()) }
    })
    .await;
    is_truly_held(scene, &guard).await;
    assert_eq!(guard.token(), token);
    release(guard).await;
}

async fn too_long(scene: &Scene, fault: Fault) {
    let (weak, strong) = (scene.weak(with(SHORT)).await.mutex("x"), scene.strong().await.mutex("x"));
    let guard = lock(&weak).await;
    let next = waiter(&strong);
    scene.stage.waiters("x", 1).await;
    scene.begin(fault);
    if fault.is_of_the_server() {
        // Nobody can get it now, and the holder knows by its own clock that it may have ended.
        assert_eq!(soon("the loss", guard.lost()).await, Lost::Expired);
        scene.end(fault);
    }
    let next = granted(next).await;
    assert!(!guard.is_held(), "two hold at once");
    assert_eq!(soon("the loss", guard.lost()).await, Lost::Expired);
    assert!(next.token() > guard.token());
    if !fault.is_of_the_server() {
        scene.end(fault);
    }
    let late = soon("a late release", guard.release()).await.expect_err("it had ended");
    assert_eq!(late.kind(), Kind::Lost, "{late}");
    assert!(next.is_held(), "a late release harms nobody");
    release(next).await;
    release(lock(&weak).await).await;
}

async fn releasing(scene: &Scene, fault: Fault) {
    let (weak, strong) = (scene.weak(with(LONG)).await.mutex("x"), scene.strong().await.mutex("x"));
    let guard = lock(&weak).await;
    let next = waiter(&strong);
    scene.stage.waiters("x", 1).await;
    scene.begin(fault);
    let releasing = tokio::spawn(guard.release());
    scene.felt(fault).await;
    scene.end(fault);
    let next = granted(next).await;
    soon("the release", releasing).await.expect("a task").expect("it was held until it was given back");
    assert!(next.is_held());
    release(next).await;
    // The same without waiting for the outcome.
    drop(lock(&weak).await);
    scene.stage.free("x").await;
}

async fn waiting(scene: &Scene, fault: Fault) {
    let (weak, strong) = (scene.weak(with(KEPT)).await.mutex("x"), scene.strong().await.mutex("x"));
    let held = lock(&strong).await;
    let mut claim = waiter(&weak);
    scene.stage.waiters("x", 1).await;
    scene.pass_through(fault).await;
    not_yet("a waiter got in or gave up", &mut claim).await;
    let seen = scene.stage.waiters("x", 1).await;
    assert_eq!(seen.waiters[0].label.as_str(), "weak");
    release(held).await;
    release(granted(claim).await).await;
}

/// The lock becomes free while nobody can tell the waiter. It is so patient that its own poll comes too late: what helps is to ask
/// when messages come again.
async fn being_granted(scene: &Scene, fault: Fault) {
    let (weak, strong) = (scene.weak(with(LONG)).await.mutex("x"), scene.strong().await.mutex("x"));
    let held = lock(&strong).await;
    let claim = waiter(&weak);
    scene.stage.waiters("x", 1).await;
    scene.begin(fault);
    release(held).await;
    scene.felt(fault).await;
    scene.end(fault);
    let guard = granted(claim).await;
    is_truly_held(scene, &guard).await;
    release(guard).await;
}

/// A claim that was given up leaves nothing, though its request may arrive later than the one that takes it back.
async fn cancelling(scene: &Scene, fault: Fault) {
    // What a black hole held can come out after what took it back: then the end of its lease is all that helps.
    let lease = if fault == Fault::Hanging { LATE } else { LONG };
    let weak = scene.weak(with(lease)).await.mutex("x");
    scene.begin(fault);
    let claim = waiter(&weak);
    scene.felt(fault).await;
    claim.abort();
    scene.end(fault);
    // If it was granted before it was given up, its guard went back.
    drop(claim.await);
    scene.stage.free("x").await;
    release(lock(&weak).await).await;
}
