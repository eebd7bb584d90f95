//! What people see of locks.

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Client, Watch};
use leasehold_core::view::{Event, Happened, Lost};
use leasehold_core::{Order, Want};

use super::{FIXED, granted, take, waiter};
use crate::faulty::{Cut, Faulty};
use crate::stage::Stage;
use crate::wait::soon;

/// Who holds, who waits, since when, with which token, in which place.
pub async fn holders_and_waiters_are_shown(stage: Arc<Stage>) {
    let (a, b, c, d) =
        (stage.client("a").await, stage.client("b").await, stage.client("c").await, stage.client("d").await);
    let guard = take(&a, "x").await;
    let first = waiter(&b.mutex("x"));
    stage.waiters("x", 1).await;
    let second = waiter(&c.mutex("x"));
    stage.waiters("x", 2).await;
    let barging = waiter(&d.mutex("x").order(Order::Barge));
    let seen = stage.waiters("x", 3).await;
    let [holder] = &seen.holders[..] else { panic!("one holds: {seen:#?}") };
    assert_eq!((holder.label.as_str(), holder.session), ("a", a.session()));
    assert_eq!(holder.token, Some(guard.token()));
    assert_eq!((holder.want, holder.place), (Want::Exclusive, None));
    assert!(holder.held_since.is_some_and(|since| since >= holder.since));
    let waiters: Vec<_> = seen.waiters.iter().map(|w| (w.label.as_str(), w.place, w.barges)).collect();
    assert_eq!(waiters, [("b", Some(0), false), ("c", Some(1), false), ("d", None, true)]);
    assert!(seen.waiters.iter().all(|w| w.token.is_none() && w.held_since.is_none()));
    assert_eq!(seen.limit, None);
    [first, second, barging].iter().for_each(|task| task.abort());
    stage.waiters("x", 0).await;
    guard.release().await.expect("a release");
}

/// A semaphore shows its limit and what each takes of it.
pub async fn permits_and_their_limit_are_shown(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guard = client.semaphore("x", 5).acquire(2).await.expect("permits");
    let seen = stage.look("x").await;
    assert_eq!(seen.limit, Some(5));
    assert_eq!(seen.holders[0].want, Want::Permits { n: 2, of: 5 });
    guard.release().await.expect("a release");
}

/// A fixed lease shows what is left of it.
pub async fn the_rest_of_a_lease_is_shown(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let lease = Duration::from_secs(30);
    let guard = client.mutex("x").lease(lease).lock().await.expect("a lock");
    let left = stage.look("x").await.holders[0].lease_left.expect("a fixed lease ends");
    assert!(left <= lease && left > lease / 2, "{left:?}");
    guard.release().await.expect("a release");
}

/// A name that nobody uses is no error.
pub async fn a_free_name_shows_nobody(stage: Arc<Stage>) {
    let seen = stage.look("never used").await;
    assert!(seen.holders.is_empty() && seen.waiters.is_empty() && seen.limit.is_none());
    assert_eq!(stage.all().await, []);
}

/// More names than fit a page, in byte order, none twice, only those with the prefix.
pub async fn a_list_comes_whole_in_order_and_by_prefix(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let mut guards = Vec::new();
    for n in 0..260 {
        guards.push(take(&client, &format!("list/{n:03}")).await);
    }
    guards.push(take(&client, "other").await);
    let mut found = Vec::new();
    let mut list = stage.observer().list("list/");
    while let Some(seen) = soon("the next of a list", list.next()).await {
        found.push(seen.expect("a list").name.as_str().to_owned());
    }
    let expected: Vec<String> = (0..260).map(|n| format!("list/{n:03}")).collect();
    assert_eq!(found, expected);
    client.close().await.expect("a close");
    drop(guards);
}

/// Reads events until one fits.
async fn sees(watch: &mut Watch, label: &str, what: Happened) -> Event {
    loop {
        let event = soon("an event", watch.next()).await.expect("a stream without end").expect("an event");
        if event.label.as_str() == label && event.what == what {
            return event;
        }
    }
}

/// A watcher sees a lock come and go.
pub async fn a_watcher_sees_what_happens(stage: Arc<Stage>) {
    let mut watch = stage.observer().watch("x").await.expect("a watch");
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = take(&a, "x").await;
    let event = sees(&mut watch, "a", Happened::Acquired).await;
    assert_eq!((event.name.as_str(), event.token), ("x", Some(guard.token())));
    let waiting = waiter(&b.mutex("x"));
    assert_eq!(sees(&mut watch, "b", Happened::Queued).await.token, None);
    guard.release().await.expect("a release");
    sees(&mut watch, "a", Happened::Released).await;
    let guard = granted(waiting).await;
    assert_eq!(sees(&mut watch, "b", Happened::Acquired).await.token, Some(guard.token()));
    let gives_up = waiter(&a.mutex("x"));
    sees(&mut watch, "a", Happened::Queued).await;
    gives_up.abort();
    sees(&mut watch, "a", Happened::Left).await;
    stage.observer().force_release("x", None).await.expect("a force release");
    sees(&mut watch, "b", Happened::Lost(Lost::Revoked)).await;
    drop(guard);
}

/// A watcher sees all that happens after it was let in, though others were busy before it came and thought that nobody watches.
pub async fn a_watcher_that_comes_later_sees_what_happens_then(stage: Arc<Stage>) {
    let a = stage.client("a").await;
    for _ in 0..5 {
        take(&a, "x").await.release().await.expect("a release");
    }
    let mut watch = stage.observer().watch("x").await.expect("a watch");
    let guard = take(&a, "x").await;
    assert_eq!(sees(&mut watch, "a", Happened::Acquired).await.token, Some(guard.token()));
    guard.release().await.expect("a release");
    sees(&mut watch, "a", Happened::Released).await;
}

/// A watcher sees the end of a lease whose holder can't give it back any more.
pub async fn a_watcher_sees_a_lease_expire(stage: Arc<Stage>) {
    let mut watch = stage.observer().watch("x").await.expect("a watch");
    let store = Faulty::new(stage.store());
    let a = Client::builder().label("a").open(store.clone()).await.expect("a client");
    let b = stage.client("b").await;
    let old = a.mutex("x").lease(FIXED).lock().await.expect("a lock");
    store.cut(Cut::Silent);
    let guard = soon("an expired lock", b.mutex("x").lock()).await.expect("a lock");
    sees(&mut watch, "a", Happened::Expired).await;
    sees(&mut watch, "b", Happened::Acquired).await;
    store.heal();
    drop(old);
    guard.release().await.expect("a release");
}

/// A watcher is told only of the names it asked for.
pub async fn a_watcher_sees_only_its_prefix(stage: Arc<Stage>) {
    let mut watch = stage.observer().watch("in/").await.expect("a watch");
    let client = stage.open(Client::builder().label("a")).await;
    take(&client, "out/1").await.release().await.expect("a release");
    take(&client, "in/1").await.release().await.expect("a release");
    let event = soon("an event", watch.next()).await.expect("a stream without end").expect("an event");
    assert_eq!(event.name.as_str(), "in/1");
}
