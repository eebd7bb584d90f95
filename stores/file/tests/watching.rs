//! What watchers see.

mod common;

use std::pin::Pin;
use std::time::Duration;

use common::{AT_ONCE, Guest, name, within};
use futures_core::Stream;
use leasehold_core::Lease;
use leasehold_core::Want::Exclusive;
use leasehold_core::store::Otherwise;
use leasehold_core::view::{Event, Events, Happened, Lost};

async fn next(events: &mut Events) -> leasehold_core::Result<Event> {
    let next = std::future::poll_fn(|cx| Pin::new(&mut *events).poll_next(cx));
    within(AT_ONCE, next).await.expect("the stream ended")
}

async fn saw(events: &mut Events, what: Happened, guest: &Guest) -> Event {
    let event = next(events).await.unwrap();
    assert_eq!((event.what, event.session), (what, guest.id));
    event
}

#[tokio::test]
async fn a_watcher_sees_all_that_happens_in_its_order() {
    let temp = tempfile::tempdir().unwrap();
    let (a, b, c) =
        (Guest::at(temp.path()).await, Guest::at(temp.path()).await, Guest::at(temp.path()).await);
    // One event before anybody watches, so that everyone has looked for watchers once.
    let (before, _) = a.hold("jobs/x", Exclusive).await;
    a.leave("jobs/x", before).await;
    let mut events = c.session.clone().watch("jobs/".into()).await.unwrap();

    let (id_a, grant) = a.hold("jobs/x", Exclusive).await;
    let id_b = b.wait("jobs/x", Exclusive).await;
    let cancelled = c.wait("jobs/x", Exclusive).await;
    c.leave("jobs/x", cancelled).await;
    a.hold("other", Exclusive).await;
    a.leave("jobs/x", id_a).await;
    b.granted(id_b).await;
    let last = c.wait("jobs/x", Exclusive).await;
    c.session.clone().revoke(name("jobs/x"), None).await.unwrap();
    c.granted(last).await;
    c.leave("jobs/x", last).await;
    let short = Lease::Fixed(Duration::from_millis(10));
    a.ask_with("jobs/x", Exclusive, short, Otherwise::Queue).await;
    tokio::time::sleep(Duration::from_millis(15)).await;
    b.hold("jobs/x", Exclusive).await;
    let b_id = b.id;
    drop(b);
    a.hold("jobs/x", Exclusive).await;

    let first = saw(&mut events, Happened::Acquired, &a).await;
    assert_eq!((first.name.as_str(), first.token), ("jobs/x", Some(grant.tokens.first)));
    for _ in 0..2 {
        assert_eq!(next(&mut events).await.unwrap().what, Happened::Queued);
    }
    saw(&mut events, Happened::Left, &c).await;
    saw(&mut events, Happened::Released, &a).await;
    assert_eq!(next(&mut events).await.unwrap().what, Happened::Acquired);
    saw(&mut events, Happened::Queued, &c).await;
    assert_eq!(next(&mut events).await.unwrap().what, Happened::Lost(Lost::Revoked));
    saw(&mut events, Happened::Acquired, &c).await;
    saw(&mut events, Happened::Released, &c).await;
    saw(&mut events, Happened::Acquired, &a).await;
    saw(&mut events, Happened::Expired, &a).await;
    assert_eq!(next(&mut events).await.unwrap().what, Happened::Acquired);
    saw(&mut events, Happened::Queued, &a).await;
    let lost = next(&mut events).await.unwrap();
    assert_eq!((lost.what, lost.session), (Happened::Lost(Lost::SessionGone), b_id));
    saw(&mut events, Happened::Acquired, &a).await;
}

#[tokio::test]
async fn a_watcher_that_reads_too_slowly_is_told_that_it_missed_something() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let mut events = me.session.clone().watch(String::new()).await.unwrap();
    for _ in 0..1000 {
        let (id, _) = me.hold("a", Exclusive).await;
        me.leave("a", id).await;
    }
    let mut seen = 0;
    let missed = loop {
        match next(&mut events).await {
            Ok(_) => seen += 1,
            Err(e) => break e,
        }
        if seen % 100 == 0 {
            let (id, _) = me.hold("a", Exclusive).await;
            me.leave("a", id).await;
        }
    };
    assert!(missed.to_string().contains("missed"), "{missed}");
    assert!(seen > 100);
    next(&mut events).await.unwrap();
}

#[tokio::test]
async fn a_watch_that_ended_leaves_no_file_and_a_dead_one_is_cleared_away() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let left = || std::fs::read_dir(temp.path().join("w")).unwrap().count();
    let events = me.session.clone().watch(String::new()).await.unwrap();
    assert_eq!(left(), 1);
    drop(events);
    assert_eq!(left(), 0);
    let dead = temp.path().join("w").join(format!("{}.", "1".repeat(32)));
    rustix::fs::mkfifoat(rustix::fs::CWD, &dead, rustix::fs::Mode::RWXU).unwrap();
    drop(me.session.clone().watch(String::new()).await.unwrap());
    me.hold("a", Exclusive).await;
    assert_eq!(left(), 0);
}
