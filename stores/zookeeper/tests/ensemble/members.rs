//! Clients that are connected to different members: what one has done, the others see.

use std::sync::LazyLock;

use leasehold_client::{Budget, Client};
use leasehold_testkit::servers::{Ensemble, ZooKeeper};
use leasehold_testkit::wait::soon;

use crate::common;

static ENSEMBLE: LazyLock<Ensemble> = LazyLock::new(Ensemble::start);

/// A client that knows one member only.
async fn at(member: &ZooKeeper, root: &str) -> Client {
    let url = format!("{}?root={root}&session=20s", member.url());
    let builder = Client::builder().local_queue(Budget::off());
    builder.open(common::open(&url).expect("a store")).await.expect("a client")
}

async fn everywhere() -> Vec<Client> {
    let root = common::root();
    let mut clients = Vec::new();
    for member in ENSEMBLE.members() {
        clients.push(at(member, &root).await);
    }
    clients
}

/// A follower may be behind: here it stands still while the lock is given back elsewhere, and the try waits for it to wake.
/// Whoever says "busy" must know it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_given_back_is_free_to_a_try_at_a_member_that_is_behind() {
    let root = common::root();
    let follower = ENSEMBLE.followers()[0];
    let (one, other) = (at(ENSEMBLE.leader(), &root).await, at(follower, &root).await);
    for turn in 0..60 {
        let guard = soon("a lock", one.mutex("x").lock()).await.unwrap();
        assert!(soon("a try", other.mutex("x").try_lock()).await.unwrap().is_none());
        follower.pause();
        soon("a release", guard.release()).await.unwrap();
        let mutex = other.mutex("x");
        let trying = tokio::spawn(async move { mutex.try_lock().await });
        tokio::task::yield_now().await;
        follower.resume();
        let tried = soon("a try", trying).await.unwrap().unwrap();
        let guard = tried.unwrap_or_else(|| panic!("busy in turn {turn}, and nobody holds it"));
        soon("a release", guard.release()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_taken_is_busy_to_a_try_and_shown_at_any_member() {
    let clients = everywhere().await;
    for turn in 0..30 {
        let guard = soon("a lock", clients[turn % 3].mutex("y").lock()).await.unwrap();
        for client in &clients {
            assert!(soon("a try", client.mutex("y").try_lock()).await.unwrap().is_none(), "two hold it");
            let shown = soon("a look", client.inspect("y")).await.unwrap();
            assert_eq!(shown.holders.len(), 1, "{shown:?} in turn {turn}");
            assert_eq!(shown.holders[0].token, Some(guard.token()), "{shown:?} in turn {turn}");
        }
        soon("a release", guard.release()).await.unwrap();
    }
}
