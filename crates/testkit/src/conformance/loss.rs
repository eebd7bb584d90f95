//! A holder whose lock ends before its time is told, and does no harm afterwards.

use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use leasehold_client::Client;
use leasehold_core::store::{Ask, Inbox, Leave, Note, Otherwise, Presence, Session};
use leasehold_core::traits::Death;
use leasehold_core::view::Lost;
use leasehold_core::{EntryId, Kind, Label, Lease, Name, Result, SessionId, Token, Want};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};

use super::requests::session;
use super::{Boxed, FIXED, KEPT, granted, take, waiter};
use crate::faulty::{Cut, Faulty};
use crate::stage::Stage;
use crate::wait::{A_WHILE, PATIENCE, eventually, not_yet, soon};

/// Scenario 5.
pub async fn an_expired_lease_hands_over_and_a_late_release_harms_nobody(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let old = soon("a lock", a.mutex("x").lease(FIXED).lock()).await.expect("a lock");
    assert!(old.remaining().is_some_and(|left| left <= FIXED), "{:?}", old.remaining());
    let next = granted(waiter(&b.mutex("x"))).await;
    assert!(!old.is_held(), "two hold at once");
    assert_eq!(soon("the loss", old.lost()).await, Lost::Expired);
    let late = old.release().await.expect_err("it ended before");
    assert_eq!(late.kind(), Kind::Lost, "{late}");
    assert!(next.is_held());
    assert_eq!(stage.look("x").await.holders.len(), 1);
    next.release().await.expect("a release");
}

/// A force release that meets the grant, before, with or after it, is never missed: a guard that says it is held is one.
pub async fn a_force_release_around_the_grant_is_never_missed(stage: Arc<Stage>) {
    let (local, direct) = (stage.client("a").await, stage.direct("b").await);
    // No renewal finds it later.
    let lease = stage.traits().longest_lease.min(PATIENCE * 10);
    for round in 0..60 {
        let client = if round % 2 == 0 { &local } else { &direct };
        let claim = waiter(&client.mutex("x").lease(lease));
        for _ in 0..round % 7 {
            yield_now().await;
        }
        soon("a force release", stage.observer().force_release("x", None)).await.expect("a force release");
        let guard = granted(claim).await;
        eventually("the guard tells the truth", || async {
            let seen = stage.look("x").await;
            let held = seen.holders.iter().any(|holder| holder.session == client.session());
            if guard.is_held() == held { Ok(()) } else { Err((guard.is_held(), seen)) }
        })
        .await;
        drop(guard);
        stage.free("x").await;
    }
}

/// A lease of fixed length ends though nobody waits for it.
pub async fn a_fixed_lease_ends_by_itself(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guard = soon("a lock", client.mutex("x").lease(FIXED).lock()).await.expect("a lock");
    assert_eq!(soon("the end", guard.lost()).await, Lost::Expired);
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Some(Duration::ZERO));
    stage.free("x").await;
    drop(guard);
}

/// A fixed lease that was granted to a waiter starts when it is got, not when it was asked for.
pub async fn a_fixed_lease_starts_when_the_lock_is_got(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = take(&a, "x").await;
    let waiting = waiter(&b.mutex("x").lease(FIXED));
    stage.waiters("x", 1).await;
    // Wait for longer than the lease: time that must not count.
    sleep(FIXED + A_WHILE).await;
    let before = Instant::now();
    guard.release().await.expect("a release");
    let guard = granted(waiting).await;
    let left = guard.remaining().expect("a fixed lease has an end");
    // What passed since the release may be gone of it, however slow the machine, and a little for the clocks' drift.
    assert!(left <= FIXED && left + before.elapsed() > FIXED / 2, "{left:?} are left of {FIXED:?}");
    drop(guard);
}

/// The same to its end: a fixed lease that was granted after waiting is lost when its whole length is over, and not before.
pub async fn a_fixed_lease_that_was_waited_for_lasts_its_whole_length(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = take(&a, "x").await;
    let waiting = waiter(&b.mutex("x").lease(KEPT));
    stage.waiters("x", 1).await;
    sleep(KEPT / 2).await;
    let before = Instant::now();
    guard.release().await.expect("a release");
    let guard = granted(waiting).await;
    let got = Instant::now();
    let left = guard.lease_left().expect("a fixed lease has an end");
    assert!(left <= KEPT && left + before.elapsed() > KEPT * 9 / 10, "{left:?} are left of {KEPT:?}");
    assert_eq!(soon("the end", guard.lost()).await, Lost::Expired);
    // From before the grant to the end, less what clocks may drift: a slow machine makes it longer, never shorter.
    assert!(before.elapsed() > KEPT * 9 / 10, "it ended after {:?}", before.elapsed());
    assert!(got.elapsed() < KEPT * 2, "it lasted for {:?}", got.elapsed());
    assert_eq!(guard.lease_left(), Some(Duration::ZERO));
}

/// A lease that is kept lasts longer than its length.
pub async fn a_kept_lease_outlives_its_length(stage: Arc<Stage>) {
    let a = stage.open(Client::builder().label("a").default_lease(KEPT)).await;
    let b = stage.client("b").await;
    let guard = take(&a, "x").await;
    let token = guard.token();
    let mut lost = Box::pin(guard.lost());
    stage.outlives("x", KEPT, |seen| &seen.holders).await;
    assert!(poll!(&mut lost).is_pending(), "a kept lease was lost");
    assert!(guard.is_held());
    assert_eq!(guard.token(), token);
    assert_eq!(guard.lease_left(), None, "a kept lease has no end of its own");
    assert!(soon("a try", b.mutex("x").try_lock()).await.expect("a try").is_none());
    drop(lost);
    guard.release().await.expect("a release");
}

/// A waiter keeps its place for longer than its lease.
pub async fn a_waiter_keeps_its_place_for_longer_than_a_lease(stage: Arc<Stage>) {
    let a = stage.open(Client::builder().label("a").default_lease(KEPT)).await;
    let b = stage.open(Client::builder().label("b").default_lease(KEPT)).await;
    let guard = take(&a, "x").await;
    let first = waiter(&b.mutex("x"));
    stage.waiters("x", 1).await;
    let second = waiter(&a.mutex("x"));
    stage.outlives("x", KEPT, |seen| &seen.waiters).await;
    assert_eq!(
        stage.look("x").await.waiters.first().map(|w| w.label.as_str().to_owned()).as_deref(),
        Some("b")
    );
    guard.release().await.expect("a release");
    let (one, two) = tokio::join!(async { granted(first).await.release().await }, async {
        granted(second).await.release().await
    });
    one.expect("a release");
    two.expect("a release");
}

/// Scenario 4.
pub async fn a_force_release_frees_the_lock_and_tells_the_old_holder(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let old = take(&a, "x").await;
    let waiting = waiter(&b.mutex("x"));
    stage.waiters("x", 1).await;
    let taken = stage.observer().force_release("x", Some(old.token())).await.expect("a force release");
    assert_eq!(taken.iter().map(|entry| entry.label.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(soon("the loss", old.lost()).await, Lost::Revoked);
    assert!(!old.is_held());
    let next = granted(waiting).await;
    assert!(next.token() > old.token());
    let late = old.release().await.expect_err("it was taken away");
    assert_eq!(late.kind(), Kind::Lost, "{late}");
    assert!(next.is_held());
    next.release().await.expect("a release");
}

/// A force release that names a holder takes the lock from that one only.
pub async fn a_force_release_with_another_token_is_a_mismatch(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guard = take(&client, "x").await;
    let wrong =
        stage.observer().force_release("x", Some(Token(1))).await.expect_err("nobody holds it with token 1");
    assert_eq!(wrong.kind(), Kind::Mismatch, "{wrong}");
    assert!(guard.is_held());
    guard.release().await.expect("a release");
    assert_eq!(stage.observer().force_release("x", None).await.expect("a force release"), []);
}

/// A force release takes the lock from all readers, wherever they are.
pub async fn a_force_release_tells_every_reader(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.rwlock("x"), stage.client("b").await.rwlock("x"));
    let mut readers = Vec::new();
    for lock in [&a, &a, &b] {
        readers.push(lock.read().await.expect("a read lock"));
    }
    let taken = stage.observer().force_release("x", None).await.expect("a force release");
    assert_eq!(taken.len(), 2, "readers of one client share an entry");
    for guard in readers {
        assert_eq!(soon("the loss", guard.lost()).await, Lost::Revoked);
        assert_eq!(guard.release().await.expect_err("it was taken away").kind(), Kind::Lost);
    }
}

/// The tasks that waited behind a lost holder queue again and get in.
pub async fn local_waiters_get_in_after_their_clients_hold_was_taken_away(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guard = take(&client, "x").await;
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let mutex = client.mutex("x");
        let mut claim: Boxed<'_, Result<()>> = Box::pin(async move { mutex.lock().await?.release().await });
        assert!(poll!(&mut claim).is_pending());
        waiting.spawn(claim);
    }
    stage.observer().force_release("x", None).await.expect("a force release");
    assert_eq!(soon("the loss", guard.lost()).await, Lost::Revoked);
    while let Some(done) = soon("those that waited", waiting.join_next()).await {
        done.expect("a task").expect("a lock");
    }
}

/// `lost()` says nothing while the lock is held, also when others come and go.
pub async fn no_loss_is_told_while_the_lock_is_held(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guard = take(&client, "x").await;
    let mut lost = Box::pin(guard.lost());
    not_yet("a held lock was lost", &mut lost).await;
    let waiting = waiter(&client.mutex("x"));
    let tried =
        stage.client("b").await.mutex("x").lock_within(Duration::from_millis(20)).await.expect("a timed try");
    assert!(tried.is_none());
    not_yet("a held lock was lost", &mut lost).await;
    drop(lost);
    guard.release().await.expect("a release");
    granted(waiting).await.release().await.expect("a release");
}

/// What runs under `protect` is stopped when the lock is lost.
pub async fn protect_stops_its_future_when_the_lock_is_lost(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guard = take(&client, "x").await;
    assert_eq!(guard.protect(async { 7 }).await, Ok(7));
    let (running, stopped) = tokio::sync::oneshot::channel::<()>();
    let work = async move {
        let _running = running;
        std::future::pending::<()>().await;
    };
    let (protected, revoked) = tokio::join!(soon("the stop", guard.protect(work)), async {
        sleep(A_WHILE / 4).await;
        stage.observer().force_release("x", None).await
    });
    assert_eq!(protected, Err(Lost::Revoked));
    revoked.expect("a force release");
    assert!(stopped.await.is_err(), "the future was dropped");
    assert_eq!(guard.protect(async { 7 }).await, Err(Lost::Revoked), "nothing runs under a lost lock");
}

/// Scenario 6, the polite part.
pub async fn closing_a_client_frees_all_it_holds_and_waits_for(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guards = [take(&a, "x").await, take(&a, "y").await];
    let held = take(&b, "z").await;
    let waiting = waiter(&a.mutex("z"));
    stage.waiters("z", 1).await;
    soon("a close", a.close()).await.expect("a close");
    assert!(guards.iter().all(|guard| !guard.is_held()));
    assert!(soon("the waiter of a closed client", waiting).await.expect("a task").is_err());
    assert_eq!(stage.look("x").await.holders, []);
    assert_eq!(stage.look("y").await.holders, []);
    assert_eq!(stage.look("z").await.waiters, []);
    let refused = a.mutex("x").lock().await.expect_err("a closed client");
    assert_eq!(refused.kind(), Kind::Refused, "{refused}");
    a.close().await.expect("a second close does nothing");
    drop(guards);
    held.release().await.expect("a release");
}

/// A request that was made before the session was closed and is polled after it, and one that is made after it.
pub async fn a_session_that_is_closed_grants_nothing(stage: Arc<Stage>) {
    let (session, _notes) = session(&stage).await;
    let (name, id) = (Name::new("x").expect("a name"), EntryId::random().expect("an id"));
    let (want, otherwise, lease) = (Want::Exclusive, Otherwise::GoAway, Lease::Kept(KEPT));
    let ask = Ask { name, id, want, lease, place: KEPT, otherwise };
    let late = session.clone().join(ask.clone());
    session.clone().close().await.expect("a close");
    // A store that answers on the spot did so before the close, which took back what it had granted.
    let answer = soon("an answer", late).await;
    let seen = stage.look("x").await;
    assert!(seen.holders.is_empty() && seen.waiters.is_empty(), "{answer:?}: {seen:#?}");
    let answer = match session.join_now(&ask) {
        Some(answer) => answer,
        None => soon("an answer", session.join(ask)).await,
    };
    assert!(answer.is_err(), "it was asked after the close: {answer:?}");
}

/// Scenario 6: where leases end by time, a client that went silent loses its locks in time, and not before it knows.
pub async fn a_silent_client_loses_its_locks_before_others_get_them(stage: Arc<Stage>) {
    if stage.traits().death != Death::LeaseEnd {
        return; // Nothing is lost by silence: only death ends the hold.
    }
    let store = Faulty::new(stage.store());
    let lease = Duration::from_millis(600);
    let silent =
        Client::builder().label("silent").default_lease(lease).open(store.clone()).await.expect("a client");
    let guard = take(&silent, "x").await;
    let waiting = waiter(&stage.client("b").await.mutex("x"));
    stage.waiters("x", 1).await;
    store.cut(Cut::Silent);
    let next = granted(waiting).await;
    assert!(!guard.is_held(), "two hold at once");
    assert_eq!(soon("the loss", guard.lost()).await, Lost::Expired);
    next.release().await.expect("a release");
    store.heal();
    drop(guard);
}

/// Scenario 17.
pub async fn a_waiter_whose_entry_was_deleted_from_outside_recovers(stage: Arc<Stage>) {
    let lease = Duration::from_millis(900);
    let (a, vandal) = (stage.client("a").await, vandal(&stage).await);
    let b = stage.open(Client::builder().label("b").default_lease(lease)).await;
    let guard = take(&a, "x").await;
    let waiting = waiter(&b.mutex("x"));
    let seen = stage.waiters("x", 1).await;
    vandal
        .clone()
        .leave(Leave::new(Name::new("x").expect("a name"), seen.waiters[0].id))
        .await
        .expect("a deletion");
    assert_eq!(stage.look("x").await.waiters.iter().filter(|w| w.id == seen.waiters[0].id).count(), 0);
    guard.release().await.expect("a release");
    granted(waiting).await.release().await.expect("a release");
    vandal.close().await.expect("a close");
}

/// The holder's side of scenario 17: it learns of it at its next renewal.
pub async fn a_holder_whose_entry_was_deleted_from_outside_is_told(stage: Arc<Stage>) {
    let lease = Duration::from_millis(900);
    let a = stage.open(Client::builder().label("a").default_lease(lease)).await;
    let vandal = vandal(&stage).await;
    let guard = take(&a, "x").await;
    let seen = stage.holders("x", 1).await;
    vandal
        .clone()
        .leave(Leave::new(Name::new("x").expect("a name"), seen.holders[0].id))
        .await
        .expect("a deletion");
    soon("the loss", guard.lost()).await;
    assert!(!guard.is_held());
    assert_eq!(guard.release().await.expect_err("it was taken away").kind(), Kind::Lost);
    take(&a, "x").await.release().await.expect("a release");
    vandal.close().await.expect("a close");
}

struct Deaf;

impl Inbox for Deaf {
    fn note(&self, _: Note) {}
    fn session_gone(&self) {}
}

/// A bare session, without a client, that can touch what isn't its own.
async fn vandal(stage: &Stage) -> Arc<dyn Session> {
    let me = Presence { id: SessionId::random().expect("an id"), label: Label::new("vandal") };
    stage.store().open(me, Arc::new(Deaf)).await.expect("a session")
}
