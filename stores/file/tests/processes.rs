//! Several processes, some of them killed.
#![allow(clippy::print_stdout)]

mod common;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use common::{AT_ONCE, Guest, Other, name, role, until, within};
use leasehold_core::Want::{Exclusive, Shared};
use leasehold_core::store::{Joined, News, Otherwise, Renewed};
use leasehold_core::view::{Happened, Lost};
use leasehold_core::{Lease, Want};

/// What a child does; nothing when it is run as a test.
#[tokio::test]
async fn child() {
    let Some(role) = role() else { return };
    let role: Vec<&str> = role.iter().map(String::as_str).collect();
    let me = Guest::at(Path::new(role[1])).await;
    match role[0] {
        "hold" => drop(me.hold(role[2], Exclusive).await),
        "read" => drop(me.hold(role[2], Shared).await),
        "permits" => drop(me.hold(role[2], Want::Permits { n: 1, of: 3 }).await),
        "wait" => drop(me.wait(role[2], Exclusive).await),
        "barge" => {
            me.barge(role[2]).await;
            println!("ready");
            assert!(matches!(me.note().await.news, News::Retry));
            println!("told");
            std::future::pending::<()>().await;
        }
        "count" => return count(&me, role[2], role[3].parse().unwrap()).await,
        other => panic!("{other}"),
    }
    println!("ready");
    std::future::pending::<()>().await;
}

/// Adds to a number in a file, each time under the lock. A second one inside would lose an addition.
async fn count(me: &Guest, file: &str, times: usize) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    for _ in 0..times {
        let (id, joined) = me.ask("counter", Exclusive, Otherwise::Queue).await;
        if let Joined::Waiting(_) = joined {
            me.granted(id).await;
        }
        let mut number = [0; 8];
        file.read_exact_at(&mut number, 0).unwrap();
        tokio::task::yield_now().await;
        file.write_all_at(&(u64::from_le_bytes(number) + 1).to_le_bytes(), 0).unwrap();
        me.leave("counter", id).await;
    }
}

fn start(what: &str, folder: &Path, on: &str) -> Other {
    let mut other = Other::start(&format!("{what} {} {on}", folder.display()));
    other.says("ready");
    other
}

#[tokio::test]
async fn a_killed_holder_makes_room_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let mut other = start("hold", temp.path(), "a");
    let me = Guest::at(temp.path()).await;
    let id = me.wait("a", Exclusive).await;
    me.no_note().await;
    let killed = std::time::Instant::now();
    other.kill();
    me.granted(id).await;
    println!("from kill to grant: {:?}", killed.elapsed());
    assert_eq!(me.counts("a").await, (1, 0));
}

#[tokio::test]
async fn the_lock_of_a_killed_holder_can_be_tried_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let mut other = start("hold", temp.path(), "a");
    assert_eq!(me.try_once("a").await, None);
    other.kill();
    assert!(me.try_once("a").await.is_some());
}

#[tokio::test]
async fn a_killed_waiter_is_passed_over() {
    let temp = tempfile::tempdir().unwrap();
    let (first, last) = (Guest::at(temp.path()).await, Guest::at(temp.path()).await);
    let (held, _) = first.hold("a", Exclusive).await;
    let mut middle = start("wait", temp.path(), "a");
    let id = last.wait("a", Exclusive).await;
    middle.kill();
    first.leave("a", held).await;
    last.granted(id).await;
}

#[tokio::test]
async fn a_waiter_killed_before_anybody_stood_behind_it_is_passed_over() {
    let temp = tempfile::tempdir().unwrap();
    let (first, last) = (Guest::at(temp.path()).await, Guest::at(temp.path()).await);
    let (held, _) = first.hold("a", Shared).await;
    let mut middle = start("wait", temp.path(), "a");
    middle.kill();
    // It would have to wait behind the writer, if the writer lived.
    last.hold("a", Shared).await;
    first.leave("a", held).await;
    assert_eq!(last.counts("a").await, (1, 0));
}

#[tokio::test]
async fn a_dead_waiter_that_is_given_the_lock_loses_it_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let first = Guest::at(temp.path()).await;
    let (held, _) = first.hold("a", Exclusive).await;
    let mut other = start("wait", temp.path(), "a");
    let mut events = first.session.clone().watch(String::new()).await.unwrap();
    other.kill();
    // Nobody stands behind the dead and nobody comes: the release itself finds out.
    first.leave("a", held).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let next = std::future::poll_fn(|cx| events.as_mut().poll_next(cx));
        seen.push(within(AT_ONCE, next).await.unwrap().unwrap().what);
    }
    assert_eq!(seen, [Happened::Released, Happened::Acquired, Happened::Lost(Lost::SessionGone)]);
}

#[tokio::test]
async fn a_writer_enters_when_the_last_of_several_readers_is_killed() {
    let temp = tempfile::tempdir().unwrap();
    let mut readers: Vec<Other> = (0..3).map(|_| start("read", temp.path(), "a")).collect();
    let me = Guest::at(temp.path()).await;
    let id = me.wait("a", Exclusive).await;
    readers[1].kill();
    readers[0].kill();
    me.no_note().await;
    readers[2].kill();
    me.granted(id).await;
}

#[tokio::test]
async fn the_limit_of_dead_holders_binds_nobody() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let mut other = start("permits", temp.path(), "a");
    other.kill();
    me.hold("a", Want::Permits { n: 5, of: 5 }).await;
}

#[tokio::test]
async fn a_killed_barger_that_was_offered_the_lock_does_not_keep_it_from_others() {
    let temp = tempfile::tempdir().unwrap();
    let (first, last) = (Guest::at(temp.path()).await, Guest::at(temp.path()).await);
    let (held, _) = first.hold("a", Exclusive).await;
    let mut other = start("barge", temp.path(), "a");
    let id = last.barge("a").await;
    first.leave("a", held).await;
    other.says("told");
    last.no_note().await;
    other.kill();
    let note = last.note().await;
    assert_eq!((note.id, note.news), (id, News::Retry));
}

#[tokio::test]
async fn the_dead_are_never_shown() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let mut holder = start("hold", temp.path(), "a");
    let mut waiter = start("wait", temp.path(), "a");
    assert_eq!(me.counts("a").await, (1, 1));
    holder.kill();
    waiter.kill();
    assert_eq!(me.counts("a").await, (0, 0));
    assert!(me.session.clone().list(String::new(), None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_fixed_lease_of_a_living_holder_ends_by_time() {
    let temp = tempfile::tempdir().unwrap();
    let (first, last) = (Guest::at(temp.path()).await, Guest::at(temp.path()).await);
    let lease = Lease::Fixed(Duration::from_millis(100));
    first.ask_with("a", Exclusive, lease, Otherwise::Queue).await;
    let (id, joined) = last.ask("a", Exclusive, Otherwise::Queue).await;
    let Joined::Waiting(waiting) = joined else { panic!("{joined:?}") };
    let poll_in = waiting.poll_in.expect("the first in line is told when to look");
    assert!(poll_in <= Duration::from_millis(100));
    tokio::time::sleep(poll_in).await;
    let renewed = last.renew("a", id, None).await.unwrap();
    assert!(matches!(renewed, Renewed::Held(_)), "{renewed:?}");
    assert!(matches!(first.note().await.news, News::Gone(Lost::Expired)));
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_never_lose_an_addition() {
    let temp = tempfile::tempdir().unwrap();
    let counter = temp.path().join("counter");
    std::fs::write(&counter, [0; 8]).unwrap();
    let folder = temp.path().join("locks");
    let role = format!("count {} {} 100", folder.display(), counter.display());
    let mut all: Vec<Other> = (0..8).map(|_| Other::start(&role)).collect();
    assert!(all.iter_mut().all(Other::finished_well));
    let number = std::fs::read(&counter).unwrap();
    assert_eq!(u64::from_le_bytes(number.try_into().unwrap()), 800);
}

#[tokio::test]
async fn the_fifo_of_a_killed_session_is_removed_by_whoever_noticed() {
    let temp = tempfile::tempdir().unwrap();
    let mut other = start("hold", temp.path(), "a");
    let me = Guest::at(temp.path()).await;
    let id = me.wait("a", Exclusive).await;
    other.kill();
    me.granted(id).await;
    let left = || std::fs::read_dir(temp.path().join("s")).unwrap().count();
    until("only my own FIFO is left", || left() == 1).await;
    assert_eq!(me.session.clone().inspect(name("a")).await.unwrap().holders[0].session, me.id);
}
