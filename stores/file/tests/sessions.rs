//! Sessions of one process, and what can be done to their files.

mod common;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Guest, name, until, within};
use leasehold_core::Want::{Exclusive, Shared};
use leasehold_core::store::{Ask, Joined, Leave, Left, News, Otherwise, Renewed};
use leasehold_core::view::Lost;
use leasehold_core::{EntryId, Kind, Lease, Token, Want};

async fn guests<const N: usize>(folder: &Path) -> [Guest; N] {
    let mut all = Vec::new();
    for _ in 0..N {
        all.push(Guest::at(folder).await);
    }
    all.try_into().unwrap_or_else(|_| unreachable!())
}

/// The plainest claim, for tests that need the request itself.
fn exclusive(on: &str, id: EntryId) -> Ask {
    Ask {
        name: name(on),
        id,
        want: Exclusive,
        lease: Lease::Kept(Duration::from_secs(30)),
        place: Duration::from_secs(30),
        otherwise: Otherwise::Queue,
    }
}

#[tokio::test]
async fn an_uncontended_claim_is_done_in_the_first_poll() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let id = me.next_id();
    let ask = exclusive("a", id);
    let mut join = me.session.clone().join(ask);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(matches!(join.as_mut().poll(&mut cx), std::task::Poll::Ready(Ok(Joined::Held(_)))));
    let mut leave = me.session.clone().leave(Leave::new(name("a"), id));
    assert!(matches!(leave.as_mut().poll(&mut cx), std::task::Poll::Ready(Ok(Left::Done))));
}

#[tokio::test]
async fn names_that_need_escaping_and_names_that_differ_in_case_are_locks_of_their_own() {
    let temp = tempfile::tempdir().unwrap();
    let [me, other] = guests(temp.path()).await;
    let long = "x".repeat(1024);
    let names =
        ["a", "A", "a/b", "a_b", "../a", ".", "..", ".a", " ", "a\nb", "{ä}:🌙", "con~1", "\u{0}", &long];
    for on in names {
        me.hold(on, Exclusive).await;
    }
    for on in names {
        assert_eq!(other.try_once(on).await, None, "{on:?}");
    }
    let listed = me.session.clone().list(String::new(), None, 100).await.unwrap();
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    assert_eq!(listed.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>(), sorted);
}

#[tokio::test]
async fn the_queue_order_is_kept_and_tokens_rise() {
    let temp = tempfile::tempdir().unwrap();
    let [a, b, c] = guests(temp.path()).await;
    let (id_a, first) = a.hold("n", Exclusive).await;
    let id_b = b.wait("n", Exclusive).await;
    let id_c = c.wait("n", Exclusive).await;
    assert_eq!(c.counts("n").await, (1, 2));
    a.leave("n", id_a).await;
    let second = b.granted(id_b).await;
    c.no_note().await;
    b.leave("n", id_b).await;
    let third = c.granted(id_c).await;
    assert!(first.tokens.last() < second.tokens.first && second.tokens.last() < third.tokens.first);
    assert!(second.contended && !third.contended);
}

#[tokio::test]
async fn asking_again_with_the_same_id_changes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let id = me.next_id();
    let ask = exclusive("a", id);
    let first = me.session.clone().join(ask.clone()).await.unwrap();
    assert_eq!(me.session.clone().join(ask).await.unwrap(), first);
    assert_eq!(me.leave("a", id).await, Left::Done);
    assert_eq!(me.leave("a", id).await, Left::NotThere);
}

#[tokio::test]
async fn a_cancelled_waiter_hands_its_watch_to_the_one_behind() {
    let temp = tempfile::tempdir().unwrap();
    let [holder, middle, last] = guests(temp.path()).await;
    holder.hold("a", Exclusive).await;
    let cancelled = middle.wait("a", Exclusive).await;
    let id = last.wait("a", Exclusive).await;
    middle.leave("a", cancelled).await;
    // The last one watched only the one that left. It must have been told to watch the holder now.
    drop(holder);
    last.granted(id).await;
}

#[tokio::test]
async fn the_chain_repairs_itself_when_several_die() {
    let temp = tempfile::tempdir().unwrap();
    let [holder, b, c, d, last] = guests(temp.path()).await;
    holder.hold("a", Exclusive).await;
    for waiter in [&b, &c, &d] {
        waiter.wait("a", Exclusive).await;
    }
    let id = last.wait("a", Exclusive).await;
    drop((c, holder, d, b));
    last.granted(id).await;
    assert_eq!(last.counts("a").await, (1, 0));
}

#[tokio::test]
async fn readers_that_were_let_in_together_are_all_watched() {
    let temp = tempfile::tempdir().unwrap();
    let [writer, one, two, last] = guests(temp.path()).await;
    let (held, _) = writer.hold("a", Exclusive).await;
    let (first, second) = (one.wait("a", Shared).await, two.wait("a", Shared).await);
    let id = last.wait("a", Exclusive).await;
    writer.leave("a", held).await;
    one.granted(first).await;
    two.granted(second).await;
    two.leave("a", second).await;
    last.no_note().await;
    // The last one stood behind the second reader; the first is the one that dies.
    drop(one);
    last.granted(id).await;
}

#[tokio::test]
async fn a_session_dropped_without_close_is_dead() {
    let temp = tempfile::tempdir().unwrap();
    let [me, other] = guests(temp.path()).await;
    me.hold("a", Exclusive).await;
    let id = other.wait("a", Exclusive).await;
    drop(me);
    other.granted(id).await;
}

#[tokio::test]
async fn closing_gives_everything_back_and_leaves_no_file() {
    let temp = tempfile::tempdir().unwrap();
    let [me, other] = guests(temp.path()).await;
    me.hold("a", Exclusive).await;
    other.hold("b", Exclusive).await;
    me.wait("b", Exclusive).await;
    let id = other.wait("a", Exclusive).await;
    me.session.clone().close().await.unwrap();
    me.session.clone().close().await.unwrap();
    other.granted(id).await;
    assert_eq!(other.counts("b").await, (1, 0));
    assert_eq!(std::fs::read_dir(temp.path().join("s")).unwrap().count(), 1);
    let refused = me.session.clone().inspect(name("a")).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Refused);
}

#[tokio::test]
async fn bargers_are_called_one_at_a_time() {
    let temp = tempfile::tempdir().unwrap();
    let [holder, one, two] = guests(temp.path()).await;
    let (held, _) = holder.hold("a", Exclusive).await;
    let (first, second) = (one.barge("a").await, two.barge("a").await);
    holder.leave("a", held).await;
    assert_eq!(one.note().await.news, News::Retry);
    two.no_note().await;
    assert!(matches!(one.renew("a", first, None).await.unwrap(), Renewed::Held(_)));
    // The second must watch the new holder, which it never saw in the queue.
    drop(one);
    assert_eq!(two.note().await.news, News::Retry);
    assert!(matches!(two.renew("a", second, None).await.unwrap(), Renewed::Held(_)));
}

#[tokio::test]
async fn a_writer_becomes_a_reader_in_its_place() {
    let temp = tempfile::tempdir().unwrap();
    let [me, other] = guests(temp.path()).await;
    let (held, grant) = me.hold("a", Exclusive).await;
    let id = other.wait("a", Shared).await;
    assert_eq!(me.session.clone().downgrade(name("a"), held).await.unwrap(), Left::Done);
    other.granted(id).await;
    let lock = me.session.clone().inspect(name("a")).await.unwrap();
    assert_eq!(lock.holders[0].token, Some(grant.tokens.first));
}

#[tokio::test]
async fn a_revoked_holder_is_told_and_the_next_gets_the_lock() {
    let temp = tempfile::tempdir().unwrap();
    let [me, other] = guests(temp.path()).await;
    let (held, grant) = me.hold("a", Exclusive).await;
    let id = other.wait("a", Exclusive).await;
    let taken = other.session.clone().revoke(name("a"), Some(grant.tokens.first)).await.unwrap();
    assert_eq!(taken.holders.len(), 1);
    assert_eq!(taken.holders[0].id, held);
    assert_eq!(me.note().await.news, News::Gone(Lost::Revoked));
    other.granted(id).await;
    assert_eq!(me.renew("a", held, Some(grant.tokens.first)).await.unwrap(), Renewed::Gone(Lost::Revoked));
}

#[tokio::test]
async fn limits_are_agreed_on_and_can_be_changed() {
    let temp = tempfile::tempdir().unwrap();
    let [me, other] = guests(temp.path()).await;
    me.hold("a", Want::Permits { n: 2, of: 2 }).await;
    let id = other.wait("a", Want::Permits { n: 1, of: 2 }).await;
    me.session.clone().set_limit(name("a"), 3).await.unwrap();
    other.granted(id).await;
    me.session.clone().set_limit(name("unused"), 3).await.unwrap();
    assert!(!temp.path().join("q/unused").exists());
}

#[tokio::test]
async fn a_deep_queue_grows_its_file_and_is_served_in_order() {
    let temp = tempfile::tempdir().unwrap();
    let [me, other] = guests(temp.path()).await;
    let (held, _) = me.hold("a", Exclusive).await;
    let mut ids = Vec::new();
    for _ in 0..100 {
        ids.push(other.wait("a", Exclusive).await);
    }
    assert!(std::fs::metadata(temp.path().join("q/a")).unwrap().len() > 4096);
    me.leave("a", held).await;
    for id in ids {
        other.granted(id).await;
        assert_eq!(other.leave("a", id).await, Left::Done);
    }
    assert_eq!(me.counts("a").await, (0, 0));
}

#[tokio::test]
async fn a_session_whose_fifo_was_deleted_is_told_that_it_ended() {
    let temp = tempfile::tempdir().unwrap();
    let [me, other] = guests(temp.path()).await;
    let (held, grant) = me.hold("a", Exclusive).await;
    std::fs::remove_file(temp.path().join("s").join(me.id.to_string())).unwrap();
    assert_eq!(
        me.renew("a", held, Some(grant.tokens.first)).await.unwrap(),
        Renewed::Gone(Lost::SessionGone)
    );
    assert!(me.gone.load(Ordering::SeqCst));
    let ask = me.session.clone().inspect(name("a")).await.unwrap_err();
    assert_eq!(ask.kind(), Kind::Unavailable);
    assert!(other.try_once("a").await.is_some());
}

#[tokio::test]
async fn a_session_that_others_can_not_see_grants_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    std::fs::remove_file(temp.path().join("s").join(me.id.to_string())).unwrap();
    let ask = exclusive("a", me.next_id());
    assert_eq!(me.session.clone().join(ask).await.unwrap_err().kind(), Kind::Unavailable);
    assert!(me.gone.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_deleted_folder_ends_its_sessions_and_can_be_opened_again() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("locks");
    let store = leasehold_file::FileStore::at(&folder).unwrap();
    let me = Guest::of(store.clone()).await;
    let (held, grant) = me.hold("a", Exclusive).await;
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(
        me.renew("a", held, Some(grant.tokens.first)).await.unwrap(),
        Renewed::Gone(Lost::SessionGone)
    );
    let again = Guest::of(store).await;
    let (_, next) = again.hold("a", Exclusive).await;
    assert!(next.tokens.first > grant.tokens.first);
}

#[tokio::test]
async fn a_session_whose_queues_were_all_deleted_is_told_that_it_ended() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let (held, grant) = me.hold("a", Exclusive).await;
    std::fs::remove_dir_all(temp.path().join("q")).unwrap();
    assert_eq!(
        me.renew("a", held, Some(grant.tokens.first)).await.unwrap(),
        Renewed::Gone(Lost::SessionGone)
    );
    Guest::at(temp.path()).await.hold("a", Exclusive).await;
}

#[tokio::test]
async fn a_queue_file_deleted_under_its_holder_is_a_wiped_lock() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let (held, grant) = me.hold("a", Exclusive).await;
    std::fs::remove_file(temp.path().join("q/a")).unwrap();
    assert_eq!(me.renew("a", held, Some(grant.tokens.first)).await.unwrap(), Renewed::Gone(Lost::Wiped));
    assert_eq!(me.leave("a", held).await, Left::NotThere);
    let (_, next) = me.hold("a", Exclusive).await;
    assert!(next.tokens.first > grant.tokens.first);
}

#[tokio::test]
async fn a_damaged_file_stops_its_own_lock_only() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    me.hold("good", Exclusive).await;
    me.hold("bad", Exclusive).await;
    std::fs::write(temp.path().join("q/bad"), b"not a queue").unwrap();
    let e = me.session.clone().inspect(name("bad")).await.unwrap_err();
    assert_eq!(e.kind(), Kind::Store);
    assert!(e.to_string().contains("q/bad") && e.advice_text().unwrap().contains("remove the file"), "{e}");
    let listed = me.session.clone().list(String::new(), None, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    std::fs::remove_file(temp.path().join("q/bad")).unwrap();
    assert!(me.try_once("bad").await.is_some());
}

#[tokio::test]
async fn a_file_that_is_busy_for_a_while_is_waited_for_without_blocking_the_thread() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let (held, _) = me.hold("a", Exclusive).await;
    let file = std::fs::File::open(temp.path().join("q/a")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let leaving = me.leave("a", held);
    let unlocking = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
    };
    // One thread: if leaving blocked it, nobody would ever unlock the file.
    let (left, ()) = within(common::DEADLINE, async { tokio::join!(leaving, unlocking) }).await;
    assert_eq!(left, Left::Done);
}

#[tokio::test]
async fn listing_comes_in_pages_and_shows_only_what_is_in_use() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    for i in 0..25 {
        me.hold(&format!("jobs/{i:02}"), Exclusive).await;
    }
    me.hold("other", Exclusive).await;
    let (idle, _) = me.hold("jobs/idle", Exclusive).await;
    me.leave("jobs/idle", idle).await;
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = me.session.clone().list("jobs/".into(), after.clone(), 10).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 10);
        after = Some(last.name.clone());
        seen.extend(page.into_iter().map(|lock| lock.name.to_string()));
    }
    assert_eq!(seen, (0..25).map(|i| format!("jobs/{i:02}")).collect::<Vec<_>>());
    // Any place to begin after works, not only the end of the last page.
    let page = me.session.clone().list("jobs/".into(), Some(name("jobs/22x")), 10).await.unwrap();
    assert_eq!(page.len(), 2);
}

#[tokio::test]
async fn looking_at_a_name_makes_no_file() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    assert_eq!(me.counts("nobody").await, (0, 0));
    assert_eq!(me.leave("nobody", me.next_id()).await, Left::NotThere);
    assert!(me.session.clone().revoke(name("nobody"), None).await.unwrap().holders.is_empty());
    assert_eq!(std::fs::read_dir(temp.path().join("q")).unwrap().count(), 0);
}

#[tokio::test]
async fn tokens_go_on_rising_when_the_file_of_an_idle_lock_was_removed() {
    let temp = tempfile::tempdir().unwrap();
    let url = format!("file:{}?retention=20ms", temp.path().display());
    let me = Guest::at_url(&url).await;
    // Tokens far ahead of the clock, as after a clock that was set back: only the floor can keep them rising.
    std::fs::write(temp.path().join("floor"), format!("{}\n", 1u64 << 60)).unwrap();
    me.hold("held", Exclusive).await;
    let mut last = Token(1 << 60);
    let file = temp.path().join("q/a");
    for _ in 0..3 {
        let (id, grant) = me.hold("a", Exclusive).await;
        assert!(grant.tokens.first > last, "{} after {last}", grant.tokens.first);
        last = grant.tokens.last();
        me.leave("a", id).await;
        let start = std::time::Instant::now();
        while file.exists() {
            assert!(start.elapsed() < common::DEADLINE, "the idle file was never removed");
            tokio::time::sleep(Duration::from_millis(10)).await;
            me.session.clone().renew(Vec::new()).await.unwrap();
        }
    }
    assert_eq!(me.counts("held").await, (1, 0), "a lock that is held is never swept away");
}

#[tokio::test]
async fn what_the_dead_and_the_unfinished_left_is_swept_away() {
    let temp = tempfile::tempdir().unwrap();
    let url = format!("file:{}?retention=20ms", temp.path().display());
    let me = Guest::at_url(&url).await;
    let orphan = temp.path().join("s").join("0".repeat(32));
    rustix::fs::mkfifoat(rustix::fs::CWD, &orphan, rustix::fs::Mode::RWXU).unwrap();
    let old = temp.path().join(format!("q/.{}-1", "0".repeat(32)));
    let new = temp.path().join(format!("q/.{}-2", "0".repeat(32)));
    std::fs::write(&old, "").unwrap();
    std::fs::write(&new, "").unwrap();
    let staging = temp.path().join(format!("s/.{}-3", "0".repeat(32)));
    std::fs::create_dir(&staging).unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    std::fs::File::open(&staging).unwrap().set_modified(long_ago).unwrap();
    std::fs::File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    let start = std::time::Instant::now();
    while orphan.exists() || old.exists() || staging.exists() {
        assert!(start.elapsed() < common::DEADLINE, "it was never swept");
        tokio::time::sleep(Duration::from_millis(10)).await;
        me.session.clone().renew(Vec::new()).await.unwrap();
    }
    assert!(new.exists());
    assert!(temp.path().join("s").join(me.id.to_string()).exists());
}

#[tokio::test]
async fn the_first_after_a_boot_removes_what_the_end_of_the_host_damaged() {
    let temp = tempfile::tempdir().unwrap();
    let me = Guest::at(temp.path()).await;
    let (id, grant) = me.hold("good", Exclusive).await;
    me.leave("good", id).await;
    me.session.clone().close().await.unwrap();
    drop(me);
    std::fs::write(temp.path().join("q/bad"), vec![0; 4096]).unwrap();
    let damaged = Guest::at(temp.path()).await;
    assert_eq!(damaged.session.clone().inspect(name("bad")).await.unwrap_err().kind(), Kind::Store);
    // Another boot, but somebody lives: nothing is touched.
    std::fs::write(temp.path().join("boot"), "another\n").unwrap();
    let second = Guest::at(temp.path()).await;
    assert_eq!(second.session.clone().inspect(name("bad")).await.unwrap_err().kind(), Kind::Store);
    drop((damaged, second));
    std::fs::write(temp.path().join("boot"), "another\n").unwrap();
    let me = Guest::at(temp.path()).await;
    me.hold("bad", Exclusive).await;
    let (_, next) = me.hold("good", Exclusive).await;
    assert!(next.tokens.first > grant.tokens.last());
}

#[tokio::test]
async fn a_message_of_garbage_does_no_harm() {
    let temp = tempfile::tempdir().unwrap();
    let [me, other] = guests(temp.path()).await;
    let (held, _) = other.hold("a", Exclusive).await;
    let id = me.wait("a", Exclusive).await;
    let fifo = temp.path().join("s").join(me.id.to_string());
    let mut fifo = std::fs::OpenOptions::new().write(true).open(fifo).unwrap();
    std::io::Write::write_all(&mut fifo, &[0xff; 3000]).unwrap();
    until("the garbage was read", || rustix::io::ioctl_fionread(&fifo).unwrap() == 0).await;
    other.leave("a", held).await;
    me.granted(id).await;
}
