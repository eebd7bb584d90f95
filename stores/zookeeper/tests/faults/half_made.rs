//! Sessions that end in the middle of a create: the server has made the node, and nobody heard of it.
//!
//! The store is asked by hand here, as a client asks it: again, with the same id, until there is an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::store::{Ask, Inbox, Joined, Leave, News, Note, Otherwise, Presence, Session};
use leasehold_core::{EntryId, Label, Lease, Name, Result, Retry, SessionId, Want};
use leasehold_testkit::servers::zookeeper::jute::{Jute, op};
use leasehold_testkit::wait::{eventually, soon};
use tokio::sync::mpsc;

use super::common;
use super::scene::{Scene, granted, lock, waiter};

struct Mail {
    notes: mpsc::UnboundedSender<Note>,
    gone: AtomicBool,
}

impl Inbox for Mail {
    fn note(&self, note: Note) {
        let _ = self.notes.send(note);
    }

    fn session_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }
}

/// A session behind the proxy, with its one claim.
struct Claimant {
    session: Arc<dyn Session>,
    mail: Arc<Mail>,
    notes: mpsc::UnboundedReceiver<Note>,
    ask: Ask,
}

impl Claimant {
    async fn at(scene: &Scene) -> Claimant {
        let (sender, notes) = mpsc::unbounded_channel();
        let mail = Arc::new(Mail { notes: sender, gone: AtomicBool::new(false) });
        let me = Presence { id: SessionId::random().expect("an id"), label: Label::new("a") };
        let store = common::open(&scene.behind_url()).expect("a store");
        let session = soon("a session", store.open(me, mail.clone())).await.expect("a session");
        let ask = Ask {
            name: Name::new("x").expect("a name"),
            id: EntryId::random().expect("an id"),
            want: Want::Exclusive,
            lease: Lease::Kept(Duration::from_secs(60)),
            place: Duration::from_secs(60),
            otherwise: Otherwise::Queue,
        };
        Claimant { session, mail, notes, ask }
    }

    async fn join(&self) -> Result<Joined> {
        soon("an answer", self.session.clone().join(self.ask.clone())).await
    }

    /// Asks again, as a client does, until there is an answer.
    async fn join_again(&self) -> Joined {
        eventually("the store answers", || self.join()).await
    }

    /// Asks for the lock; the node is made, and the answer is lost with the connection.
    async fn join_half(&self, scene: &Scene) {
        scene.proxy().lose_answer_to(op::CREATE2);
        let error = self.join().await.expect_err("the answer is lost");
        scene.proxy().refuse();
        assert_eq!(error.retry_advice(), Retry::SameId, "{error}");
        assert_eq!(self.nodes(scene), 1);
    }

    /// How many nodes of this claim there are.
    fn nodes(&self, scene: &Scene) -> usize {
        let id = self.ask.id.to_string();
        scene.nodes("x").iter().filter(|node| node.contains(&id)).count()
    }

    fn knows_of_the_end(&self) -> Result<(), &'static str> {
        if self.mail.gone.load(Ordering::SeqCst) { Ok(()) } else { Err("the session lives") }
    }

    async fn leave(&self, scene: &Scene) {
        let leave = Leave::new(self.ask.name.clone(), self.ask.id);
        soon("a leave", self.session.clone().leave(leave)).await.expect("it left");
        soon("a goodbye", self.session.clone().close()).await.expect("a goodbye");
        scene.is_clean().await;
    }
}

/// A client gives its session up by its own clock. The server may keep it for longer: here, because it hears from somebody who
/// took it over. What it keeps of ours must neither be believed nor be in the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_session_that_was_given_up_is_not_believed() {
    let scene = Scene::with_proxy("1500ms");
    let (mut a, b) = (Claimant::at(&scene).await, scene.client("b").await);
    a.join_half(&scene).await;
    let mut kept = Jute::resume(scene.server.address(), scene.session_of("x")).expect("the session");
    let waiting = waiter(&b.mutex("x"));
    scene.until("x", 2).await;
    eventually("the client gives its session up", || {
        kept.sync("/").expect("the session is kept");
        std::future::ready(a.knows_of_the_end())
    })
    .await;
    scene.proxy().pass();
    let joined = a.join_again().await;
    assert!(matches!(joined, Joined::Waiting(_)), "it came after b: {joined:?}");
    kept.sync("/").expect("the session is still kept");
    // The old node was in b's way, and goes at once.
    let guard = granted(waiting).await;
    assert_eq!(a.nodes(&scene), 1, "{:?}", scene.nodes("x"));
    guard.release().await.expect("a release");
    let note = soon("the grant", a.notes.recv()).await.expect("a note");
    assert!(matches!(note.news, News::Granted(_)), "{note:?}");
    assert!(b.mutex("x").try_lock().await.expect("a try").is_none());
    a.leave(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_session_was_ended_before_the_answer_is_made_once_more() {
    let scene = Scene::with_proxy("30s");
    let (a, b) = (Claimant::at(&scene).await, scene.client("b").await);
    a.join_half(&scene).await;
    scene.server.end_session(scene.session_of("x"));
    assert_eq!(a.nodes(&scene), 0, "it went with its session");
    let guard = lock(&b, "x").await;
    scene.proxy().pass();
    let joined = a.join_again().await;
    assert!(matches!(joined, Joined::Waiting(_)), "b holds: {joined:?}");
    assert_eq!(a.nodes(&scene), 1, "{:?}", scene.nodes("x"));
    guard.release().await.expect("a release");
    a.leave(&scene).await;
}

/// Whoever stops wanting it leaves nothing behind, whichever session made it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_given_up_after_its_session_leaves_nothing() {
    let scene = Scene::with_proxy("1500ms");
    let a = Claimant::at(&scene).await;
    a.join_half(&scene).await;
    let mut kept = Jute::resume(scene.server.address(), scene.session_of("x")).expect("the session");
    eventually("the client gives its session up", || {
        kept.sync("/").expect("the session is kept");
        std::future::ready(a.knows_of_the_end())
    })
    .await;
    scene.proxy().pass();
    let leave = Leave::new(a.ask.name.clone(), a.ask.id);
    eventually("it left", || a.session.clone().leave(leave.clone())).await;
    kept.sync("/").expect("the session is still kept");
    assert_eq!(a.nodes(&scene), 0, "{:?}", scene.nodes("x"));
    a.leave(&scene).await;
}
