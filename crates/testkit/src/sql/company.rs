//! Many claims and releases at once, which share transactions: each is as if it had been alone.
#![allow(missing_docs)] // Scenarios say by their names what they show.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{join_all, maybe_done, try_join_all};
use leasehold_client::{Budget, Client, Guard};
use leasehold_core::Result;
use tokio::task::{JoinSet, spawn_blocking};

use super::faults::nothing_is_left;
use super::{Database, SqlServer, fresh_url, prefix_of};
use crate::history::History;
use crate::wait::{eventually, soon};

/// How many are under way at once: more than there are connections.
const CROWD: usize = 48;

async fn client(db: impl Database, url: &str) -> Client {
    let builder = Client::builder().local_queue(Budget::off()).default_lease(Duration::from_secs(60));
    soon("a client", builder.open(db.open(url).expect("a store"))).await.expect("a client")
}

fn name(n: usize) -> String {
    format!("company/{n}")
}

/// Wants all of these at once.
async fn want(client: &Client, names: impl Iterator<Item = usize>) -> Vec<Result<Guard>> {
    let claims = names.map(|n| {
        let lock = client.mutex(name(n));
        async move { lock.lock().await }
    });
    soon("all answers", join_all(claims)).await
}

/// Takes all of them.
async fn take(client: &Client) -> Vec<Guard> {
    want(client, 0..CROWD).await.into_iter().collect::<Result<_>>().expect("locks")
}

async fn give_back(guards: Vec<Guard>) {
    soon("all releases", try_join_all(guards.into_iter().map(Guard::release))).await.expect("releases");
}

async fn start<D: Database>(db: D) -> Arc<D::Server> {
    Arc::new(spawn_blocking(move || db.start()).await.expect("a server"))
}

pub async fn many_at_once_share_transactions<D: Database>(db: D) {
    let server = start(db).await;
    let url = fresh_url(&*server);
    share_transactions(db, &*server, &url).await;
    nothing_is_left(&*server, &url).await;
}

/// Those who reach the server by this URL share transactions, and see the same as all others.
pub async fn share_transactions(db: impl Database, server: &impl SqlServer, url: &str) {
    let (ours, other) = (client(db, url).await, client(db, url).await);
    // All rows are there, and all statements are known, on whatever connection a pooler lends.
    for _ in 0..10 {
        give_back(take(&ours).await).await;
    }
    let (before, mut earlier) = (server.transactions(), None);
    for _ in 0..10 {
        let guards = take(&ours).await;
        let tokens: Vec<_> = guards.iter().map(Guard::token).collect();
        let earlier = earlier.replace(tokens.clone()).unwrap_or_default();
        assert!(earlier.iter().zip(&tokens).all(|(old, new)| old < new), "{earlier:?}, then {tokens:?}");
        give_back(guards).await;
    }
    let (transactions, steps) = (server.transactions() - before, 20 * CROWD as u64);
    assert!(transactions * 2 < steps, "{transactions} transactions for {steps} steps");
    // Whoever looks from elsewhere sees the same.
    let guards = take(&ours).await;
    for n in 0..CROWD {
        assert!(other.mutex(name(n)).try_lock().await.expect("an answer").is_none(), "{}", name(n));
    }
    give_back(guards).await;
    give_back(take(&other).await).await;
}

pub async fn one_that_fails_fails_alone<D: Database>(db: D) {
    let server = start(db).await;
    let url = fresh_url(&*server);
    let client = client(db, &url).await;
    give_back(take(&client).await).await;
    let forbidden = CROWD / 2;
    server.sql(&format!(
        "ALTER TABLE {}locks ADD CONSTRAINT forbidden CHECK (name <> '{}' OR state IS NULL OR state <> 'holds')",
        prefix_of::<D::Server>(&url),
        name(forbidden)
    ));
    for _ in 0..3 {
        let mut answers = want(&client, 0..CROWD).await;
        let error = answers.remove(forbidden).expect_err("an error");
        assert!(error.to_string().contains("forbidden"), "{error}");
        give_back(answers.into_iter().collect::<Result<_>>().expect("the others")).await;
    }
    nothing_is_left(&*server, &url).await;
}

pub async fn who_finds_a_lock_taken_waits_and_keeps_nobody_up<D: Database>(db: D) {
    let server = start(db).await;
    let url = fresh_url(&*server);
    let (ours, other) = (client(db, &url).await, client(db, &url).await);
    let taken: Vec<Guard> =
        want(&other, (0..CROWD).step_by(2)).await.into_iter().collect::<Result<_>>().expect("locks");
    let waiting = {
        let ours = ours.clone();
        tokio::spawn(async move { want(&ours, (0..CROWD).step_by(2)).await })
    };
    eventually("all wait", || async {
        let seen = join_all((0..CROWD).step_by(2).map(|n| ours.inspect(name(n)))).await;
        let waiters: usize = seen.into_iter().map(|seen| seen.expect("a look").waiters.len()).sum();
        if waiters == taken.len() { Ok(()) } else { Err(waiters) }
    })
    .await;
    let free =
        want(&ours, (1..CROWD).step_by(2)).await.into_iter().collect::<Result<_>>().expect("free ones");
    give_back(taken).await;
    let heirs = soon("the others", waiting).await.expect("a task");
    give_back(heirs.into_iter().collect::<Result<_>>().expect("heirs")).await;
    give_back(free).await;
    nothing_is_left(&*server, &url).await;
}

/// As in a buffered stream, whose futures stand still while the body of its loop runs.
pub async fn claims_and_releases_that_stand_still_keep_nobody_up<D: Database>(db: D) {
    let server = start(db).await;
    let url = fresh_url(&*server);
    let client = client(db, &url).await;
    let another = async || {
        let guard = soon("another lock", client.mutex("another").lock()).await.expect("a lock");
        soon("its release", guard.release()).await.expect("a release");
    };
    let guards = take(&client).await;
    // After this nobody expects company, so the next ones go out alone, as long as there are connections.
    another().await;
    let mut releases: Vec<_> =
        guards.into_iter().map(|guard| maybe_done(Box::pin(guard.release()))).collect();
    let mut claims: Vec<_> = (CROWD..2 * CROWD)
        .map(|n| {
            let lock = client.mutex(name(n));
            maybe_done(Box::pin(async move { lock.lock().await }))
        })
        .collect();
    // Each is polled once, and there are more of them than connections.
    poll_fn(|cx| {
        for release in &mut releases {
            let _ = Pin::new(release).poll(cx);
        }
        for claim in &mut claims {
            let _ = Pin::new(claim).poll(cx);
        }
        Poll::Ready(())
    })
    .await;
    for _ in 0..3 {
        another().await;
    }
    soon("the releases", join_all(releases.iter_mut())).await;
    for release in &mut releases {
        Pin::new(release).take_output().expect("an answer").expect("a release");
    }
    soon("the claims", join_all(claims.iter_mut())).await;
    let claims = claims.iter_mut().map(|claim| Pin::new(claim).take_output().expect("an answer"));
    give_back(claims.collect::<Result<_>>().expect("locks")).await;
    nothing_is_left(&*server, &url).await;
}

pub async fn claims_that_are_given_up_leave_nothing<D: Database>(db: D) {
    let server = start(db).await;
    let url = fresh_url(&*server);
    let client = client(db, &url).await;
    for round in 0..20 {
        let claims = want(&client, 0..CROWD);
        // Some are not under way yet when this ends, some are, and some are answered.
        let _ = tokio::time::timeout(Duration::from_micros(300 * round), claims).await;
    }
    nothing_is_left(&*server, &url).await;
    give_back(take(&client).await).await;
}

/// Two clients go through the same names in opposite orders.
pub async fn crowds_that_want_the_same_names_do_not_block_each_other<D: Database>(db: D) {
    let server = start(db).await;
    let url = fresh_url(&*server);
    let clients = [client(db, &url).await, client(db, &url).await];
    let (histories, tasks) = visits(&clients, 6);
    finish(histories, tasks).await;
    nothing_is_left(&*server, &url).await;
    assert_eq!(db.deadlocks_retried(), 0);
}

pub async fn crowds_get_over_connections_that_end<D: Database>(db: D) {
    let server = start(db).await;
    let url = fresh_url(&*server);
    let clients = [client(db, &url).await, client(db, &url).await];
    let (histories, tasks) = visits(&clients, 12);
    for _ in 0..6 {
        eventually("there are connections again, and they end", || async {
            let server = server.clone();
            let ended = spawn_blocking(move || server.kill_backends()).await.expect("ended connections");
            if ended > 0 { Ok(()) } else { Err(ended) }
        })
        .await;
    }
    finish(histories, tasks).await;
    nothing_is_left(&*server, &url).await;
}

/// A task for each lock and client, which takes it so many times.
fn visits(clients: &[Client; 2], times: usize) -> (Vec<History>, JoinSet<()>) {
    let histories: Vec<History> = (0..CROWD).map(|_| History::default()).collect();
    let mut tasks = JoinSet::new();
    for at in 0..CROWD {
        for (who, client) in clients.iter().enumerate() {
            let n = if who == 0 { at } else { CROWD - 1 - at };
            let (lock, history) = (client.mutex(name(n)), histories[n].clone());
            tasks.spawn(async move {
                for _ in 0..times {
                    let guard = lock.lock().await.expect("a lock");
                    drop(history.enter(who.to_string(), &guard));
                    guard.release().await.expect("a release");
                }
            });
        }
    }
    (histories, tasks)
}

async fn finish(histories: Vec<History>, mut tasks: JoinSet<()>) {
    while let Some(finished) = soon("the visits", tasks.join_next()).await {
        finished.expect("a task");
    }
    histories.iter().for_each(History::check);
}
