//! Somebody asks for the lock back: the holder is told and decides, and nothing is taken away.

use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use leasehold_client::{Budget, Client, Part};
use leasehold_core::store::{
    Ask, Inbox, Joined, Leave, Left, News, Note, Otherwise, Presence, Renewal, Renewed, Session,
};
use leasehold_core::view::{EntryView, Happened};
use leasehold_core::{EntryId, Kind, Label, Lease, Name, SessionId, Token, Want};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Boxed, KEPT, granted, take, waiter};
use crate::stage::Stage;
use crate::wait::{not_yet, soon};

fn labels(asked: &[EntryView]) -> Vec<&str> {
    asked.iter().map(|entry| entry.label.as_str()).collect()
}

/// Asks for it, and checks that whoever was asked is shown as such.
async fn ask_for(stage: &Stage, name: &str, token: Option<Token>) -> Vec<EntryView> {
    let asked = stage.observer().request_release(name, token).await.expect("a request");
    assert!(asked.iter().all(|entry| entry.release_requested), "{asked:#?}");
    asked
}

/// The whole life of a request.
pub async fn a_holder_is_told_and_decides(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = take(&a, "x").await;
    let mut told = Box::pin(guard.release_requested());
    not_yet("nobody asked", &mut told).await;
    assert!(!guard.is_release_requested() && !stage.look("x").await.holders[0].release_requested);
    let mut waiting = waiter(&b.mutex("x"));
    stage.waiters("x", 1).await;
    assert_eq!(labels(&ask_for(&stage, "x", None).await), ["a"]);
    soon("the request", told).await;
    assert!(guard.is_release_requested() && guard.is_held());
    let seen = stage.look("x").await;
    assert!(seen.holders[0].release_requested && !seen.waiters[0].release_requested, "{seen:#?}");
    // It is up to the holder.
    not_yet("the lock was taken away", &mut waiting).await;
    guard.release().await.expect("a release of a lock that is held");
    let next = granted(waiting).await;
    assert!(!next.is_release_requested(), "the next holder was not asked");
    assert!(!stage.look("x").await.holders[0].release_requested);
    next.release().await.expect("a release");
}

/// Who looks later finds the request; who stops looking can begin again.
pub async fn a_request_stays_until_the_hold_ends(stage: Arc<Stage>) {
    let a = stage.open(Client::builder().label("a").default_lease(KEPT)).await;
    let guard = take(&a, "x").await;
    let mut first: Boxed<'_, ()> = Box::pin(guard.release_requested());
    assert!(poll!(&mut first).is_pending());
    drop(first);
    ask_for(&stage, "x", None).await;
    soon("the request", guard.release_requested()).await;
    // It outlives renewals, and being asked for again.
    stage.outlives("x", KEPT, |seen| &seen.holders).await;
    assert_eq!(labels(&ask_for(&stage, "x", None).await), ["a"]);
    assert!(stage.look("x").await.holders[0].release_requested);
    soon("the same request", guard.release_requested()).await;
    guard.release().await.expect("a release");
    let again = take(&a, "x").await;
    assert!(!again.is_release_requested(), "it was a request for the hold before");
    again.release().await.expect("a release");
}

/// Nobody holds: nobody is asked, and the one who comes next is not either.
pub async fn a_request_for_a_free_lock_asks_nobody(stage: Arc<Stage>) {
    assert_eq!(ask_for(&stage, "x", None).await, []);
    assert_eq!(ask_for(&stage, "x", Some(Token(1))).await, []);
    let client = stage.client("a").await;
    let guard = take(&client, "x").await;
    assert!(!guard.is_release_requested());
    assert!(!stage.look("x").await.holders[0].release_requested);
    guard.release().await.expect("a release");
}

/// A request that names a holder is for that one only.
pub async fn a_request_with_another_token_is_a_mismatch(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guard = take(&client, "x").await;
    let wrong = stage.observer().request_release("x", Some(Token(1))).await.expect_err("another token");
    assert_eq!(wrong.kind(), Kind::Mismatch, "{wrong}");
    assert!(!guard.is_release_requested() && !stage.look("x").await.holders[0].release_requested);
    assert_eq!(labels(&ask_for(&stage, "x", Some(guard.token())).await), ["a"]);
    soon("the request", guard.release_requested()).await;
    guard.release().await.expect("a release");
}

/// All who share a lock are asked, in whatever client and however many tasks of it.
pub async fn every_reader_is_asked_or_the_one_that_is_meant(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.rwlock("x"), stage.client("b").await.rwlock("x"));
    let (one, two) = (a.read().await.expect("a read lock"), a.read().await.expect("a read lock"));
    let other = b.read().await.expect("a read lock");
    let seen = stage.holders("x", 2).await;
    let token = seen.holders.iter().find(|entry| entry.label.as_str() == "b").and_then(|entry| entry.token);
    assert_eq!(labels(&ask_for(&stage, "x", token).await), ["b"]);
    soon("the request", other.release_requested()).await;
    assert!(!one.is_release_requested() && !two.is_release_requested());
    assert_eq!(ask_for(&stage, "x", None).await.len(), 2, "readers of one client share an entry");
    for guard in [one, two, other] {
        soon("the request", guard.release_requested()).await;
        guard.release().await.expect("a release");
    }
}

/// All who hold permits are asked, and those that wait for some are not.
pub async fn every_holder_of_permits_is_asked(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (semaphore, other) = (a.semaphore("x", 3), b.semaphore("x", 3));
    let guards =
        [semaphore.acquire(1).await.expect("a permit"), semaphore.acquire(2).await.expect("permits")];
    let waiting = tokio::spawn(async move { other.acquire(2).await });
    stage.waiters("x", 1).await;
    assert_eq!(ask_for(&stage, "x", None).await.len(), 2);
    for guard in guards {
        soon("the request", guard.release_requested()).await;
        guard.release().await.expect("a release");
    }
    let next = granted(waiting).await;
    assert!(!next.is_release_requested());
    next.release().await.expect("a release");
}

/// A writer that was asked and became a reader is still asked.
pub async fn a_downgrade_keeps_the_request(stage: Arc<Stage>) {
    let lock = stage.client("a").await.rwlock("x");
    let writer = lock.write().await.expect("a write lock");
    ask_for(&stage, "x", None).await;
    soon("the request", writer.release_requested()).await;
    let reader = writer.downgrade().await.expect("a downgrade");
    assert!(reader.is_release_requested());
    assert!(stage.look("x").await.holders[0].release_requested);
    reader.release().await.expect("a release");
}

/// The lock leaves the client though its own tasks wait for it: they queue at the store again.
pub async fn a_request_ends_the_local_hand_overs(stage: Arc<Stage>) {
    let endless = Budget { handovers: 1_000_000, time: Duration::from_secs(3600) };
    let a = stage.open(Client::builder().label("a").local_queue(endless)).await;
    let guard = take(&a, "x").await;
    let entry = stage.look("x").await.holders[0].id;
    let mutex = a.mutex("x");
    let mut next = Box::pin(mutex.lock());
    assert!(poll!(&mut next).is_pending());
    ask_for(&stage, "x", None).await;
    soon("the request", guard.release_requested()).await;
    guard.release().await.expect("a release");
    let next = soon("a lock", next).await.expect("a lock");
    let seen = stage.look("x").await;
    assert!(seen.holders[0].id != entry && !next.is_release_requested(), "{seen:#?}");
    next.release().await.expect("a release");
}

/// Several locks as one are asked for by any of them.
pub async fn a_multi_lock_is_told_of_a_request_for_one_part(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guard = client.multi([Part::mutex("x"), Part::mutex("y")]).lock().await.expect("both locks");
    let mut told = Box::pin(guard.release_requested());
    not_yet("nobody asked", &mut told).await;
    assert!(!guard.is_release_requested());
    ask_for(&stage, "y", None).await;
    soon("the request", told).await;
    assert!(guard.is_release_requested() && guard.is_held());
    assert!(!guard.guards()[0].is_release_requested());
    guard.release().await.expect("a release");
}

/// A watcher sees that somebody was asked, once.
pub async fn a_watcher_sees_the_first_request(stage: Arc<Stage>) {
    let mut watch = stage.observer().watch("x").await.expect("a watch");
    let a = stage.client("a").await;
    let guard = take(&a, "x").await;
    for _ in 0..3 {
        ask_for(&stage, "x", None).await;
    }
    let token = guard.token();
    guard.release().await.expect("a release");
    let mut seen = Vec::new();
    while seen.last() != Some(&Happened::Released) {
        let event = soon("an event", watch.next()).await.expect("a stream without end").expect("an event");
        assert_eq!((event.label.as_str(), event.token), ("a", Some(token)));
        seen.push(event.what);
    }
    assert_eq!(seen, [Happened::Acquired, Happened::ReleaseRequested, Happened::Released]);
}

/// What a session hears.
struct Ears(UnboundedSender<Note>);

impl Inbox for Ears {
    fn note(&self, note: Note) {
        let _ = self.0.send(note);
    }

    fn session_gone(&self) {}
}

/// A bare session, without a client.
pub(super) async fn session(stage: &Stage) -> (Arc<dyn Session>, UnboundedReceiver<Note>) {
    let me = Presence { id: SessionId::random().expect("an id"), label: Label::new("bare") };
    let (ears, notes) = unbounded_channel();
    (stage.store().open(me, Arc::new(Ears(ears))).await.expect("a session"), notes)
}

/// The contract between store and client: the note, and the answers that make a lost note good.
pub async fn every_answer_about_an_entry_says_whether_it_was_asked_for(stage: Arc<Stage>) {
    let (session, mut notes) = session(&stage).await;
    let (name, id) = (Name::new("x").expect("a name"), EntryId::random().expect("an id"));
    let long = Duration::from_secs(60);
    let lease = Lease::Kept(long);
    let (want, otherwise) = (Want::Exclusive, Otherwise::GoAway);
    let ask = Ask { name: name.clone(), id, want, lease, place: long, otherwise };
    let held = |joined| match joined {
        Ok(Joined::Held(grant)) => grant,
        other => panic!("it should hold: {other:?}"),
    };
    let grant = held(session.clone().join(ask.clone()).await);
    assert!(!grant.release_requested);
    let renew = async |more_tokens| {
        let line = Renewal { name: name.clone(), id, token: Some(grant.tokens.first), more_tokens };
        let answers = session.clone().renew(vec![line]).await.expect("answers");
        match answers.into_iter().next() {
            Some(Ok(Renewed::Held(grant))) => grant,
            other => panic!("it should hold: {other:?}"),
        }
    };
    assert!(!renew(false).await.release_requested);
    assert_eq!(ask_for(&stage, "x", None).await.len(), 1);
    let note = loop {
        let note = soon("a note", notes.recv()).await.expect("a session that lives");
        // A store whose notes have only begun to come says so first.
        if !matches!(note.news, News::Retry) {
            break note;
        }
    };
    assert_eq!((note.id, note.name, note.news), (id, name.clone(), News::ReleaseRequested));
    assert!(renew(false).await.release_requested);
    assert!(renew(true).await.release_requested, "more tokens are no new hold");
    assert!(held(session.clone().join(ask).await).release_requested, "asked again after a lost answer");
    assert_eq!(session.clone().leave(Leave::new(name, id)).await.expect("an answer"), Left::Done);
    session.close().await.expect("a close");
}
