//! What else is promised: clear errors for bad input, rows that people can read, and a late writer that changes nothing.
#![allow(missing_docs)] // Scenarios say by their names what they show.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use leasehold_client::{Client, Guard};
use leasehold_core::store::{
    Ask, Inbox, Joined, Leave, Left, Note, Otherwise, Presence, Renewal, Renewed, Session,
};
use leasehold_core::view::Lost;
use leasehold_core::{EntryId, Error, Kind, Label, Lease, Name, SessionId, Want};
use leasehold_sql::fence::fence_sql;
use leasehold_sql::session::SWEEPERS;

use super::{Database, SqlServer, client, fresh_url, prefix_of, try_client};
use crate::wait::{PATIENCE, eventually, not_yet, soon};

/// The error of whoever can't get in.
async fn refused(db: impl Database, url: &str) -> Error {
    let error = match try_client(db, url).await {
        Err(error) => error,
        Ok(client) => {
            let mutex = client.mutex("x");
            mutex.lock_within(Duration::from_secs(2)).await.expect_err("an error")
        }
    };
    assert!(!error.to_string().contains("secret"), "{error}");
    error
}

pub async fn one_who_may_not_create_tables_is_told_what_to_do<D: Database>(db: D) {
    let server = db.server();
    server.add_user("bob");
    let url = server.for_user(&fresh_url(server), "bob");
    let error = refused(db, &url).await;
    assert_eq!(error.kind(), Kind::Refused, "{error}");
    assert!(error.to_string().contains("leasehold schema"), "{error}");
}

pub async fn tables_that_were_made_by_hand_are_enough<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server);
    server.apply(&db.ddl(&url).expect("tables"));
    server.add_user("carol");
    let client = client(db, &format!("{}&create=no", server.for_user(&url, "carol"))).await;
    let guard = client.mutex("x").lock().await.expect("a lock");
    guard.release().await.expect("a release");
}

pub async fn missing_tables_are_an_error_where_none_may_be_created<D: Database>(db: D) {
    let server = db.server();
    let error = refused(db, &format!("{}&create=no", fresh_url(server))).await;
    assert_eq!(error.kind(), Kind::Refused, "{error}");
    assert!(error.to_string().contains("leasehold schema"), "{error}");
}

pub async fn tables_of_another_version_are_refused<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server);
    client(db, &url).await.close().await.expect("a goodbye");
    server.sql(&format!("UPDATE {}schema SET version = 99", prefix_of::<D::Server>(&url)));
    let error = refused(db, &url).await;
    assert_eq!(error.kind(), Kind::Mismatch, "{error}");
    assert!(error.to_string().contains("99"), "{error}");
}

pub async fn a_database_that_can_only_be_read_says_so<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server);
    client(db, &url).await.close().await.expect("a goodbye");
    server.add_reader("eve");
    let error = refused(db, &server.for_user(&url, "eve")).await;
    assert!(matches!(error.kind(), Kind::Unavailable | Kind::Refused), "{error}");
    let said = error.to_string();
    assert!(said.contains("read") || said.contains("denied"), "{error}");
}

pub async fn a_server_that_is_not_there_is_unavailable_in_time<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server).replace(&server.address().port().to_string(), "1");
    let error = refused(db, &url).await;
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
}

/// Another program's transaction is in the way of a claim and of a release, for longer than the server lets a statement
/// wait.
pub async fn a_statement_that_the_server_cuts_short_is_tried_again<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server);
    let owner = client(db, &url).await;
    owner.mutex("x").lock().await.expect("a lock").release().await.expect("a release");
    server.add_user("frank");
    server.cut_short("frank");
    let hasty = client(db, &format!("{}&create=no", server.for_user(&url, "frank"))).await;
    let mutex = hasty.mutex("x");
    let mut link = soon("a connection", db.connect(&url)).await.expect("a connection");
    let take_row =
        format!("SELECT name FROM {}locks WHERE name = 'x' FOR UPDATE", prefix_of::<D::Server>(&url));
    let (limit, longer_than_a_statement) = (Duration::from_secs(40), Duration::from_secs(1));

    for statement in ["BEGIN", &take_row] {
        soon(statement, link.run(statement)).await.expect("an answer");
    }
    let mut claim = tokio::spawn(async move { mutex.lock_within(limit).await });
    tokio::time::sleep(longer_than_a_statement).await;
    not_yet("the claim gave up, or got in", &mut claim).await;
    soon("a commit", link.run("COMMIT")).await.expect("an answer");
    let guard = soon("a lock", claim).await.expect("a task").expect("a lock").expect("in time");

    for statement in ["BEGIN", &take_row] {
        soon(statement, link.run(statement)).await.expect("an answer");
    }
    let mut release = tokio::spawn(guard.release_within(limit));
    tokio::time::sleep(longer_than_a_statement).await;
    not_yet("the release gave up, or was done", &mut release).await;
    soon("a commit", link.run("COMMIT")).await.expect("an answer");
    soon("a release", release).await.expect("a task").expect("a release");
    assert!(owner.inspect("x").await.expect("a look").holders.is_empty());
}

pub async fn people_can_read_who_holds_and_who_waits<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server);
    let (a, b) = (client(db, &url).await, client(db, &url).await);
    let guard = a.mutex("orders/7").lock().await.expect("a lock");
    let waiter = tokio::spawn(async move { b.mutex("orders/7").lock().await });
    let look = format!(
        "SELECT state, want FROM {}queue WHERE name = 'orders/7' ORDER BY seq",
        prefix_of::<D::Server>(&url)
    );
    eventually("both are there", || async {
        let seen = server.sql(&look);
        if seen == "holds|exclusive\nwaits|exclusive" { Ok(()) } else { Err(seen) }
    })
    .await;
    let token = format!("SELECT token FROM {}queue WHERE state = 'holds'", prefix_of::<D::Server>(&url));
    assert_eq!(server.sql(&token), guard.token().to_string());
    guard.release().await.expect("a release");
    soon("the next", waiter).await.expect("a task").expect("a lock").release().await.expect("a release");
}

pub async fn a_late_writer_changes_nothing<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server);
    let account = format!("{}account", prefix_of::<D::Server>(&url));
    server.sql(&format!(
        "CREATE TABLE {account} (id INT PRIMARY KEY, balance INT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)"
    ));
    server.sql(&format!("INSERT INTO {account} (id, balance) VALUES (7, 100)"));
    let client = client(db, &url).await;
    let mutex = client.mutex("account/7");
    let write = |balance: u32, token| {
        let fence = fence_sql("fence", token).expect("a plain column");
        server.sql(&format!(
            "UPDATE {account} SET balance = {balance}, {} WHERE id = 7 AND {}",
            fence.set, fence.when
        ));
    };
    let early = mutex.lock().await.expect("a lock");
    let late = early.token();
    early.release().await.expect("a release");
    let guard = mutex.lock().await.expect("a lock");
    write(90, guard.token());
    // The first holder was paused, and wakes up only now.
    write(50, late);
    assert_eq!(server.sql(&format!("SELECT balance FROM {account}")), "90");
    write(80, guard.token());
    assert_eq!(server.sql(&format!("SELECT balance FROM {account}")), "80");
    guard.release().await.expect("a release");
}

/// One that is told and does not care.
pub(super) struct Deaf;

impl Inbox for Deaf {
    fn note(&self, _: Note) {}

    fn session_gone(&self) {}
}

async fn session(db: impl Database, url: &str) -> Arc<dyn Session> {
    session_with(db, url, SessionId::random().expect("an id")).await
}

async fn session_with(db: impl Database, url: &str, id: SessionId) -> Arc<dyn Session> {
    let me = Presence { id, label: Label::new("me") };
    db.open(url).expect("a store").open(me, Arc::new(Deaf)).await.expect("a session")
}

pub async fn a_place_lasts_as_long_as_it_is_renewed<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server);
    let (a, b) = (session(db, &url).await, session(db, &url).await);
    let ask = |place| Ask {
        name: Name::new("x").expect("a name"),
        id: EntryId::random().expect("an id"),
        want: Want::Exclusive,
        lease: Lease::Fixed(Duration::from_secs(60)),
        place,
        otherwise: Otherwise::Queue,
    };
    let held = a.clone().join(ask(Duration::from_secs(60))).await.expect("an answer");
    assert!(matches!(held, Joined::Held(_)), "{held:?}");
    let place = Duration::from_secs(2);
    let second = ask(place);
    let line = Renewal { name: second.name.clone(), id: second.id, token: None, more_tokens: false };
    let waits = b.clone().join(second).await.expect("an answer");
    assert!(matches!(waits, Joined::Waiting(_)), "{waits:?}");
    let begun = Instant::now();
    while begun.elapsed() < place * 3 / 2 {
        let renewed = b.clone().renew(vec![line.clone()]).await.expect("answers").pop();
        assert!(matches!(renewed, Some(Ok(Renewed::Waiting(_)))), "{renewed:?} after {:?}", begun.elapsed());
        tokio::time::sleep(place / 10).await;
    }
    a.close().await.expect("a goodbye");
    b.close().await.expect("a goodbye");
}

/// A client whose server stands still asks again under the same id while its first request is still under way.
pub async fn one_entry_that_is_asked_for_twice_at_once_has_one_place<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server);
    let a = session(db, &url).await;
    // One session on connections apart, which don't wait for each other.
    let id = SessionId::random().expect("an id");
    let (b, c) = (session_with(db, &url, id).await, session_with(db, &url, id).await);
    let ask = || Ask {
        name: Name::new("x").expect("a name"),
        id: EntryId::random().expect("an id"),
        want: Want::Exclusive,
        lease: Lease::Fixed(Duration::from_secs(60)),
        place: Duration::from_secs(60),
        otherwise: Otherwise::Queue,
    };
    let first = ask();
    let name = first.name.clone();
    let held = a.clone().join(first.clone()).await.expect("an answer");
    assert!(matches!(held, Joined::Held(_)), "{held:?}");
    for at in 0..40 {
        let waiting = ask();
        // The second one comes after the first is in the queue, or beside it.
        let (one, other) = if at % 4 == 0 {
            (b.clone().join(waiting.clone()).await, c.clone().join(waiting).await)
        } else {
            tokio::join!(b.clone().join(waiting.clone()), c.clone().join(waiting))
        };
        assert!(matches!(one, Ok(Joined::Waiting(_))), "{at}: {one:?}");
        assert!(matches!(other, Ok(Joined::Waiting(_))), "{at}: {other:?}");
        let seen = a.clone().inspect(name.clone()).await.expect("a look");
        assert_eq!(seen.waiters.len(), at + 1, "{seen:#?}");
    }
    // A request that was late finds its entry at the front: it does not wait for itself.
    let held = c.clone().join(first).await.expect("an answer");
    assert!(matches!(held, Joined::Held(_)), "{held:?}");
    let seen = a.clone().inspect(name).await.expect("a look");
    assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 40), "{seen:#?}");
    for session in [a, b, c] {
        session.close().await.expect("a goodbye");
    }
}

pub async fn whoever_waits_is_woken_and_need_not_look<D: Database>(db: D) {
    let server = db.server();
    let url = fresh_url(server);
    let (a, b) = (client(db, &url).await, client(db, &url).await);
    for _ in 0..4 {
        let guard = a.mutex("x").lock().await.expect("a lock");
        let mutex = b.mutex("x");
        let waiter = tokio::spawn(async move { mutex.lock().await });
        // As long as it looks for mail, this shows nothing.
        let woken =
            format!("SELECT COUNT(*) FROM {}entries WHERE wake <> 'mail'", prefix_of::<D::Server>(&url));
        eventually("it waits to be woken", || async {
            let seen = server.sql(&woken);
            if seen == "1" { Ok(()) } else { Err(seen) }
        })
        .await;
        guard.release().await.expect("a release");
        let next = tokio::time::timeout(Duration::from_secs(3), waiter).await.expect("it is woken at once");
        next.expect("a task").expect("a lock").release().await.expect("a release");
    }
}

pub async fn a_lease_that_ended_is_not_renewed_though_nobody_took_the_lock<D: Database>(db: D) {
    let server = db.server();
    let session = session(db, &fresh_url(server)).await;
    let (name, id) = (Name::new("x").expect("a name"), EntryId::random().expect("an id"));
    let lease = Lease::Kept(Duration::from_millis(300));
    let (want, place, otherwise) = (Want::Exclusive, Duration::from_secs(5), Otherwise::GoAway);
    let ask = Ask { name: name.clone(), id, want, lease, place, otherwise };
    let Joined::Held(grant) = session.clone().join(ask).await.expect("an answer") else {
        panic!("it was free")
    };
    let line = Renewal { name: name.clone(), id, token: Some(grant.tokens.first), more_tokens: false };
    let renewed = session.clone().renew(vec![line.clone()]).await.expect("answers").pop();
    assert!(matches!(renewed, Some(Ok(Renewed::Held(_)))), "{renewed:?}");
    eventually("the lease ends", || async {
        let holders = session.clone().inspect(name.clone()).await.expect("a look").holders.len();
        if holders == 0 { Ok(()) } else { Err(holders) }
    })
    .await;
    let renewed = session.clone().renew(vec![line]).await.expect("answers").pop();
    assert!(matches!(renewed, Some(Ok(Renewed::Gone(Lost::Expired)))), "{renewed:?}");
    session.close().await.expect("a goodbye");
}

pub async fn rows_of_locks_that_nobody_uses_go_away_and_others_stay<D: Database>(db: D) {
    let server = db.server();
    let url = format!("{}&retention=100ms", fresh_url(server));
    let short = |name: &str, lease| Ask {
        name: Name::new(name).expect("a name"),
        id: EntryId::random().expect("an id"),
        want: Want::Exclusive,
        lease: Lease::Kept(lease),
        place: Duration::from_secs(60),
        otherwise: Otherwise::GoAway,
    };
    let user = session(db, &url).await;
    let (moment, minute) = (Duration::from_millis(200), Duration::from_secs(60));
    for name in ["again", "again", "again", "once"] {
        // Taken in whichever way, by its version too.
        let ask = short(name, moment);
        let leave = Leave { name: ask.name.clone(), id: ask.id, used: None };
        let held = user.clone().join(ask).await.expect("an answer");
        assert!(matches!(held, Joined::Held(_)), "{held:?}");
        assert_eq!(user.clone().leave(leave).await.expect("an answer"), Left::Done);
    }
    // One that is held, and one whose lease would have lasted for longer: by then, its last token may be ahead of the time.
    for name in ["held", "left", "left"] {
        let ask = short(name, minute);
        let leave = Leave { name: ask.name.clone(), id: ask.id, used: None };
        user.clone().join(ask).await.expect("an answer");
        if name == "left" {
            assert_eq!(user.clone().leave(leave).await.expect("an answer"), Left::Done);
        }
    }
    // As if both had been taken by their versions for long: then only the end of the lease is written.
    let locks = format!("{}locks", prefix_of::<D::Server>(&url));
    server.sql(&format!("UPDATE {locks} SET keep = 1 WHERE name IN ('held', 'left')"));
    let names = format!("SELECT name FROM {locks} ORDER BY name");
    eventually("those that nobody uses are gone", || async {
        // This one sweeps when it ends.
        let id = SessionId(SessionId::random().expect("an id").0 / SWEEPERS * SWEEPERS);
        session_with(db, &url, id).await.close().await.expect("a goodbye");
        let seen = server.sql(&names);
        if seen == "held\nleft" { Ok(()) } else { Err(seen) }
    })
    .await;
    user.close().await.expect("a goodbye");
}

/// Less than it takes until a lease is renewed, or a nap of MySQL's doorbell is over.
const AT_ONCE: Duration = Duration::from_secs(6);

/// A client whose first lock was taken before it could be told by others, and can be now.
async fn an_early_bird<D: Database>(db: D, url: &str) -> (Client, Guard) {
    let server = db.server();
    let wake = |name: &str| {
        server.sql(&format!("SELECT wake FROM {}locks WHERE name = '{name}'", prefix_of::<D::Server>(url)))
    };
    let began = Instant::now();
    // On a machine with much to do, most first locks come too late.
    for n in (0..).take_while(|_| began.elapsed() < PATIENCE) {
        let (early, late) = (format!("early/{n}"), format!("late/{n}"));
        let client = client(db, url).await;
        let guard = client.mutex(early.as_str()).lock().await.expect("a lock");
        if wake(&early) != "mail" {
            continue;
        }
        eventually("others can tell it", || async {
            client.mutex(late.as_str()).lock().await.expect("a lock").release().await.expect("a release");
            let seen = wake(&late);
            if seen == "mail" { Err(seen) } else { Ok(()) }
        })
        .await;
        return (client, guard);
    }
    panic!("others could tell every client before its first lock")
}

pub async fn a_holder_that_came_before_it_could_be_told_is_told_all_the_same<D: Database>(db: D) {
    let url = fresh_url(db.server());
    let (_client, guard) = an_early_bird(db, &url).await;
    let other = client(db, &url).await;
    other.request_release(guard.name(), None).await.expect("a request");
    tokio::time::timeout(AT_ONCE, guard.release_requested()).await.expect("it is asked");
    other.force_release(guard.name(), None).await.expect("a revocation");
    tokio::time::timeout(AT_ONCE, guard.lost()).await.expect("it is told");
}

pub async fn a_watcher_that_came_before_it_could_be_told_sees_all<D: Database>(db: D) {
    let url = fresh_url(db.server());
    let other = client(db, &url).await;
    for n in 0..3 {
        let watcher = client(db, &url).await;
        let mut events = watcher.watch("").await.expect("a watch");
        let name = format!("seen/{n}");
        other.mutex(name.as_str()).lock().await.expect("a lock").release().await.expect("a release");
        let event = tokio::time::timeout(AT_ONCE, events.next()).await.expect("it is told");
        assert_eq!(event.expect("an event").expect("an event").name.as_str(), name);
    }
}

/// The session's own client polls what it asked to the end, in time; another user of the trait may not.
pub async fn a_session_ends_though_a_request_of_it_is_not_polled<D: Database>(db: D) {
    let server = db.server();
    let url = format!("{}&timeout=1s", fresh_url(server));
    let (a, b) = (session(db, &url).await, session(db, &url).await);
    let lease = Lease::Kept(Duration::from_secs(600));
    let ask = |name: &str| Ask {
        name: Name::new(name).expect("a name"),
        id: EntryId::random().expect("an id"),
        want: Want::Exclusive,
        lease,
        place: lease.length(),
        otherwise: Otherwise::Queue,
    };
    let held = a.clone().join(ask("held")).await.expect("an answer");
    assert!(matches!(held, Joined::Held(_)), "{held:?}");
    // It takes a trip to the server, which on a busy machine can be over before the first poll is.
    let standing = (0..100).find_map(|n| {
        let mut asked = a.clone().join(ask(&format!("x/{n}")));
        (&mut asked).now_or_never().is_none().then_some(asked)
    });
    let standing = standing.expect("a request that is not answered at its first poll");
    soon("the goodbye", a.close()).await.expect("a goodbye");
    let seen = b.clone().inspect(Name::new("held").expect("a name")).await.expect("a look");
    assert!(seen.holders.is_empty(), "{seen:?}");
    drop(standing);
    b.close().await.expect("a goodbye");
}
