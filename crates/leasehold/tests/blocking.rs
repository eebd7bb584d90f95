//! The blocking API: the same words for threads, and the thread as the owner.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::Duration;

use leasehold::blocking::{Client, Guard, connect, connect_with};
use leasehold::{Kind, Lost, Order, Owner, Part};

fn client() -> Client {
    connect("memory:").unwrap()
}

#[test]
fn a_counter_of_many_threads_stays_exact() {
    let client = client();
    let counter = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for _ in 0..100 {
                    let _guard = client.mutex("n").lock().unwrap();
                    let seen = counter.load(std::sync::atomic::Ordering::Relaxed);
                    std::thread::yield_now();
                    counter.store(seen + 1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(counter.into_inner(), 800);
}

#[test]
fn a_thread_that_locks_what_it_holds_gets_an_error_and_another_waits() {
    let client = client();
    let lock = client.mutex("n");
    let guard = lock.lock().unwrap();
    let e = lock.lock().unwrap_err();
    assert_eq!(e.kind(), Kind::Refused);
    assert!(e.to_string().contains("reentrant"), "{e}");
    std::thread::scope(|threads| {
        let other = threads.spawn(|| lock.lock_within(Duration::from_secs(60)).unwrap().is_some());
        guard.release().unwrap();
        assert!(other.join().unwrap());
    });
}

#[test]
fn a_reentrant_lock_counts_and_the_last_guard_releases() {
    let client = client();
    let lock = client.mutex("n").reentrant();
    let (a, b, c) = (lock.lock().unwrap(), lock.lock().unwrap(), lock.try_lock().unwrap().unwrap());
    assert_eq!((c.hold_count(), a.token()), (3, c.token()));
    a.release().unwrap();
    b.release().unwrap();
    assert!(c.is_held());
    std::thread::scope(|threads| {
        assert!(
            threads.spawn(|| lock.try_lock().unwrap().is_none()).join().unwrap(),
            "another thread is another owner"
        );
    });
    drop(c);
    assert!(client.inspect("n").unwrap().holders.is_empty());
}

#[test]
fn an_owner_that_is_given_can_move_between_threads() {
    let client = client();
    let lock = client.mutex("n").owner(Owner::new()).reentrant();
    let guard = lock.lock().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| assert_eq!(lock.lock().unwrap().hold_count(), 2));
    });
    assert_eq!(guard.hold_count(), 1);
}

#[test]
fn readers_writers_and_the_way_down() {
    let client = client();
    let lock = client.rwlock("n");
    let writer = lock.write().unwrap();
    let token = writer.token();
    let reader = writer.downgrade().unwrap();
    assert_eq!(reader.token(), token);
    assert_eq!(
        lock.write().unwrap_err().kind(),
        Kind::Refused,
        "a reader that asks to write would wait for itself"
    );
    std::thread::scope(|threads| {
        assert!(threads.spawn(|| lock.try_read().unwrap().is_some()).join().unwrap());
        assert!(threads.spawn(|| lock.try_write().unwrap().is_none()).join().unwrap());
        assert!(
            threads.spawn(|| lock.write_within(Duration::from_millis(5)).unwrap().is_none()).join().unwrap()
        );
    });
    drop(reader);
    assert!(lock.try_write().unwrap().is_some());
    assert!(lock.read_within(Duration::from_secs(1)).unwrap().is_some());
}

#[test]
fn a_downgrade_that_is_refused_hands_the_write_lock_back() {
    let client = client();
    let lock = client.rwlock("n").owner(Owner::new()).reentrant();
    let (outer, inner) = (lock.write().unwrap(), lock.write().unwrap());
    let failed = outer.downgrade().unwrap_err();
    assert_eq!((failed.error().kind(), failed.is_writer()), (Kind::Refused, true));
    let outer = failed.into_writer().unwrap();
    drop(inner);
    // Inside an async task it must not block.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let failed = runtime.block_on(async { outer.downgrade() }).unwrap_err();
    assert_eq!((failed.error().kind(), failed.is_writer()), (Kind::Invalid, true));
    let outer = failed.into_guard();
    assert!(outer.is_held() && outer.want() == leasehold::Want::Exclusive);
    outer.release().unwrap();
    let downgraded = || -> leasehold::Result<()> { lock.write()?.downgrade()?.release() };
    downgraded().unwrap();
}

#[test]
fn permits_multi_locks_stripes_and_leaders() {
    let client = client();
    let mut permits = client.semaphore("s", 2);
    let (one, two) =
        (permits.acquire(1).unwrap(), permits.acquire_within(1, Duration::from_secs(1)).unwrap().unwrap());
    assert!(permits.try_acquire(1).unwrap().is_none());
    permits.set_limit(3).unwrap();
    assert!(permits.try_acquire(1).unwrap().is_some());
    drop((one, two));

    let multi = client.multi([Part::mutex("b"), Part::read("a")]);
    let both = multi.lock().unwrap();
    assert_eq!(both.tokens().len(), 2);
    both.release().unwrap();
    assert!(multi.try_lock().unwrap().is_some());

    let striped = client.striped("t", 4);
    let stripe = striped.lock("key").unwrap();
    assert!(striped.try_lock("key").is_err(), "the same thread again");
    drop(stripe);
    assert_eq!(striped.lock_all().unwrap().guards().len(), 4);

    let leader = client.leader("l");
    let leadership = leader.campaign().unwrap();
    assert!(leader.current().unwrap().is_some());
    assert!(leader.observe().unwrap().next().unwrap().unwrap().is_some());
    leadership.resign().unwrap();
    assert!(leader.current().unwrap().is_none());
}

#[test]
fn a_lost_lock_is_told_to_the_thread_that_asks() {
    let client = client();
    let guard = client.mutex("n").order(Order::Barge).lock().unwrap();
    assert_eq!(guard.lost_within(Duration::from_millis(1)).unwrap(), None);
    let from = client.force_release("n", Some(guard.token())).unwrap();
    assert_eq!(from[0].session, client.session());
    assert_eq!(guard.lost_within(Duration::from_secs(60)).unwrap(), Some(Lost::Revoked));
    assert_eq!(guard.release().unwrap_err().kind(), Kind::Lost);
}

#[test]
fn what_happens_can_be_watched_and_listed() {
    let client =
        connect_with(leasehold::Client::builder().namespace("app/").label("tester"), "memory:").unwrap();
    let mut events = client.watch("").unwrap();
    let guard = client.mutex("n").lock().unwrap();
    let event = events.next_within(Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!((event.name.as_str(), event.what.as_str(), event.label.as_str()), ("n", "acquired", "tester"));
    let listed: Vec<_> = client.list("").map(|lock| lock.unwrap().name.to_string()).collect();
    assert_eq!(listed, ["n"]);
    assert_eq!(guard.name(), "n");
    drop(guard);
    assert_eq!(client.list("").count(), 0);
}

#[test]
fn dropping_the_last_handle_right_after_a_guard_has_given_the_lock_back() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file:{}", folder.path().display());
    let other = connect(&url).unwrap();
    for _ in 0..20 {
        let client = connect(&url).unwrap();
        drop(client.mutex("n").lock().unwrap());
        drop(client);
        assert!(other.mutex("n").try_lock().unwrap().is_some());
    }
}

#[tokio::test]
async fn inside_an_async_task_it_is_refused_with_advice() {
    let e = connect("memory:").err().unwrap();
    assert_eq!(e.kind(), Kind::Invalid);
    assert!(e.to_string().contains("async API"), "{e}");
    // What it says works; what it warns of does not.
    assert!(e.to_string().contains("std::thread::spawn, not spawn_blocking"), "{e}");
    let held = std::thread::spawn(|| client().mutex("n").lock()?.release()).join().unwrap();
    held.unwrap();
    let refused = tokio::task::spawn_blocking(|| connect("memory:").map(drop)).await.unwrap();
    assert_eq!(refused.unwrap_err().kind(), Kind::Invalid);
}

/// The URL for the child process of the next test.
const CHILD: &str = "LEASEHOLD_TEST_OF_THREAD_LOCALS";

/// Not a test: what the child process of the next one does.
#[test]
fn child_process() {
    std::thread_local! {
        static HELD: RefCell<Option<(Guard, Client)>> = const { RefCell::new(None) };
    }
    let Ok(url) = std::env::var(CHILD) else { return };
    let client = OnceLock::new();
    // Used before the thread-locals of the runtime, so it is destroyed after them.
    let lock_here = |name: &str| {
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            let client = client.get_or_init(|| connect(&url).unwrap());
            *held = Some((client.mutex(name).lock().unwrap(), client.clone()));
        });
    };
    lock_here("y");
    std::thread::scope(|scope| {
        scope.spawn(|| lock_here("x"));
    });
    let client = client.get().unwrap();
    assert!(client.mutex("x").lock_within(Duration::from_secs(60)).unwrap().is_some());
}

#[test]
fn a_guard_in_a_thread_local_is_given_back_when_its_thread_or_the_program_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("file:{}", folder.path().join("locks").display());
    for url in ["memory:", &file] {
        let ended = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["child_process", "--exact", "--test-threads=1"])
            .env(CHILD, url)
            .output()
            .unwrap();
        assert!(ended.status.success(), "{url}: {ended:?}");
    }
    assert!(connect(&file).unwrap().mutex("y").try_lock().unwrap().is_some());
}

#[test]
fn a_thread_hears_that_somebody_asks_for_its_lock() {
    let (client, soon) = (client(), Duration::from_millis(20));
    let guard = client.mutex("n").lock().unwrap();
    assert!(!guard.release_requested_within(soon).unwrap() && !guard.is_release_requested());
    assert_eq!(client.request_release("n", Some(guard.token())).unwrap().len(), 1);
    assert!(guard.release_requested_within(Duration::from_secs(60)).unwrap() && guard.is_release_requested());
    guard.release().unwrap();
    assert_eq!(client.request_release("n", None).unwrap(), []);
    let both = client.multi([Part::mutex("a"), Part::mutex("b")]).lock().unwrap();
    client.request_release("b", None).unwrap();
    assert!(both.release_requested_within(Duration::from_secs(60)).unwrap());
    both.release().unwrap();
}
