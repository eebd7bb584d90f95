//! How many trips to the server a lock costs, counted at a proxy.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_client::{Budget, Client};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::zookeeper::jute::op;
use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};
use leasehold_testkit::wait::{eventually, soon};

use crate::common;

/// What was asked of the server since, without pings.
fn asked(proxy: &Proxy, before: &BTreeMap<i32, u64>) -> BTreeMap<i32, u64> {
    let mut asked = proxy.requests_by_op();
    for (op, count) in &mut asked {
        *count -= before.get(op).copied().unwrap_or(0);
    }
    asked.retain(|op, count| *op != op::PING && *count > 0);
    asked
}

async fn client(proxy: &Proxy, root: &str) -> Client {
    let url = format!("zookeeper://{}?root={root}&session=30s", proxy.address());
    let builder = Client::builder().local_queue(Budget::off());
    builder.open(common::open(&url).expect("a store")).await.expect("a client")
}

fn stage() -> (ZooKeeper, Proxy, Proxy, String) {
    // Containers stay, so that the second use of a name is the usual one.
    let server = ZooKeeper::start(ZooKeeperOptions::new().container_check(Duration::from_secs(600)));
    let proxies = (Proxy::to_zookeeper(server.address()), Proxy::to_zookeeper(server.address()));
    (server, proxies.0, proxies.1, common::root())
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_and_unlock_are_a_create_with_a_list_and_a_delete() {
    let (_server, proxy, _, root) = stage();
    let client = client(&proxy, &root).await;
    let mutex = client.mutex("orders");
    soon("a lock", mutex.lock()).await.unwrap().release().await.unwrap();
    let before = proxy.requests_by_op();
    for _ in 0..10 {
        soon("a lock", mutex.lock()).await.unwrap().release().await.unwrap();
    }
    let asked = asked(&proxy, &before);
    assert_eq!(asked, BTreeMap::from([(op::CREATE2, 10), (op::GET_CHILDREN, 10), (op::DELETE, 10)]));
}

/// Where many lock at a time, over the one connection of their client, their lists travel together, and so do their deletes; each
/// still sees its queue.
#[tokio::test(flavor = "multi_thread")]
async fn the_lists_and_deletes_of_many_that_lock_at_a_time_are_fewer_requests_than_locks() {
    const TASKS: usize = 64;
    const EACH: usize = 10;
    let (_server, proxy, _, root) = stage();
    let (client, other) = (client(&proxy, &root).await, client(&proxy, &root).await);
    // Every fourth name is held by somebody else.
    let mut held = Vec::new();
    for n in (0..TASKS).step_by(4) {
        held.push((n, soon("a lock", other.mutex(format!("{n}")).lock()).await.unwrap()));
    }
    let before = proxy.requests_by_op();
    let running: Vec<_> = (0..TASKS)
        .map(|n| {
            let mutex = client.mutex(format!("{n}"));
            tokio::spawn(async move {
                for _ in 0..EACH {
                    mutex.lock().await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    let (blocked, free): (Vec<_>, Vec<_>) = running.into_iter().enumerate().partition(|(n, _)| n % 4 == 0);
    for (_, task) in free {
        soon("the locks that are free", task).await.unwrap();
    }
    let asked = asked(&proxy, &before);
    let lists = asked.get(&op::GET_CHILDREN).unwrap_or(&0) + asked.get(&op::MULTI_READ).unwrap_or(&0);
    // Each lock is one create: a list that was somebody else's would not show its node, and it would be tried again.
    assert!(asked[&op::CREATE2] <= (TASKS * EACH * 3 / 4 + TASKS / 4) as u64, "{asked:?}");
    assert!(lists < asked[&op::CREATE2], "{asked:?}");
    let deletes = asked.get(&op::DELETE).unwrap_or(&0) + asked.get(&op::MULTI).unwrap_or(&0);
    assert!(deletes < (TASKS * EACH * 3 / 4) as u64, "{asked:?}");
    assert!(blocked.iter().all(|(_, task)| !task.is_finished()), "two hold at once");
    for (n, guard) in held {
        assert!(guard.is_held(), "{n}");
        soon("a release", guard.release()).await.unwrap();
    }
    for (_, task) in blocked {
        soon("the locks that were held", task).await.unwrap();
    }
}

/// With answers held up by a delay, the time shows what was awaited one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn lock_and_unlock_await_two_trips() {
    let (_server, proxy, _, root) = stage();
    let client = client(&proxy, &root).await;
    let mutex = client.mutex("orders");
    soon("a lock", mutex.lock()).await.unwrap().release().await.unwrap();
    let each_way = Duration::from_millis(50);
    proxy.delay(each_way);
    let pair = || async {
        let began = tokio::time::Instant::now();
        let guard = soon("a lock", mutex.lock()).await.unwrap();
        let locked = began.elapsed();
        guard.release().await.unwrap();
        (locked, began.elapsed())
    };
    // A busy machine slows down some, but not all.
    let mut fastest = pair().await;
    for _ in 0..9 {
        let (locked, both) = pair().await;
        fastest = (fastest.0.min(locked), fastest.1.min(both));
    }
    assert!(fastest.0 >= each_way * 2 && fastest.0 < each_way * 4, "{fastest:?}");
    assert!(fastest.1 >= each_way * 4 && fastest.1 < each_way * 6, "{fastest:?}");
}

/// Whether each connection of this process to an address sends small packets at once.
#[cfg(target_os = "linux")]
fn nodelay(to: std::net::SocketAddr) -> Vec<bool> {
    use rustix::net::{getpeername, sockopt::tcp_nodelay};
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    let ourselves = pidfd_open(getpid(), PidfdFlags::empty()).expect("a handle of this process");
    let sockets =
        (0..1024).filter_map(|number| pidfd_getfd(&ourselves, number, PidfdGetfdFlags::empty()).ok());
    let to_it = sockets.filter(|socket| {
        let peer = getpeername(socket).ok().flatten();
        peer.is_some_and(|peer| std::net::SocketAddr::try_from(peer) == Ok(to))
    });
    to_it.map(|socket| tcp_nodelay(socket).expect("an option")).collect()
}

/// Else the list would wait until the create is acknowledged.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_no_acknowledgement_also_after_a_reconnect() {
    let (_server, proxy, _, root) = stage();
    let client = client(&proxy, &root).await;
    for _ in 0..3 {
        soon("a lock", client.mutex("orders").lock()).await.unwrap().release().await.unwrap();
        eventually("small packets leave at once", || async {
            let found = nodelay(proxy.address());
            if found == [true] { Ok(()) } else { Err(found) }
        })
        .await;
        proxy.cut();
    }
}

/// What the waiter hears comes late by a delay, and so would an answer, twice. It looks at its own entry once it is in, to
/// hear of a revocation; nobody waits for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_enters_by_the_event_alone() {
    let (server, ours, theirs, root) = stage();
    let (holder, waiter) = (client(&ours, &root).await, client(&theirs, &root).await);
    let each_way = Duration::from_millis(50);
    theirs.delay(each_way);
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let guard = soon("a lock", holder.mutex("orders").lock()).await.unwrap();
        let mutex = waiter.mutex("orders");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        eventually("somebody watches an entry of somebody else", || async {
            let (watches, entries) = (server.watches(), server.ephemerals());
            let is_foreign = |path: &String, by: &i64| !entries.get(by).is_some_and(|own| own.contains(path));
            let waits = watches.iter().any(|(path, by)| by.iter().any(|session| is_foreign(path, session)));
            if waits && all_answered(&theirs) { Ok(()) } else { Err(watches) }
        })
        .await;
        let before = theirs.requests_by_op();
        let began = tokio::time::Instant::now();
        soon("a release", guard.release()).await.unwrap();
        let guard = soon("a hand-over", waiting).await.unwrap().unwrap();
        fastest = fastest.min(began.elapsed());
        let asked = asked(&theirs, &before);
        assert!(asked.keys().all(|op| *op == op::GET_DATA), "{asked:?}");
        soon("a release", guard.release()).await.unwrap();
    }
    assert!(fastest >= each_way && fastest < each_way * 2, "{fastest:?}");
}

fn all_answered(proxy: &Proxy) -> bool {
    let traffic = proxy.traffic();
    traffic.answers == traffic.requests
}
