//! Clients that die while they hold.
#![allow(missing_docs)] // Scenarios say by their names what they show.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::{Ask, Joined, Otherwise, Presence};
use leasehold_core::{EntryId, Label, Lease, Name, SessionId, Want};
use tokio::task::spawn_blocking;

use super::promises::Deaf;
use super::{Database, Link, SqlServer, client, fresh_url, prefix_of};
use crate::wait::soon;

/// The lease of the one that dies.
const LEASE: Duration = Duration::from_millis(600);

/// How often.
const DEATHS: usize = 3;

/// What a machine may need that has other things to do. On an idle one it is some milliseconds, which are printed.
const SLOW_MACHINE: i64 = 3_000_000;

/// Takes the lock, and dies with it: all of its tasks and connections are gone at once, as those of a killed process are.
fn hold_and_die<D: Database>(db: D, url: &str, name: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        // A session without a client, whose background thread would live on and renew.
        let (id, label) = (SessionId::random().expect("a random number"), Label::new("dying"));
        let opening = db.open(url).expect("a store").open(Presence { id, label }, Arc::new(Deaf));
        let session = opening.await.expect("a session");
        let ask = Ask {
            name: Name::new(name).expect("a name"),
            id: EntryId::of_session(id, 1),
            want: Want::Exclusive,
            lease: Lease::Kept(LEASE),
            place: LEASE,
            otherwise: Otherwise::GoAway,
        };
        let joined = session.clone().join(ask).await.expect("an answer");
        assert!(matches!(joined, Joined::Held(_)), "{joined:?}");
        // It says no goodbye.
        std::mem::forget(session);
    });
    runtime.shutdown_background();
}

async fn number(link: &mut Box<dyn Link>, statement: &str) -> i64 {
    let rows = soon(statement, link.run(statement)).await.unwrap_or_else(|e| panic!("{statement}: {e}")).rows;
    rows.first().and_then(|row| row.parse().ok()).unwrap_or_else(|| panic!("{statement}: {rows:?}"))
}

/// By the database's own times: when the dead holder's lease ended, and since when the next one holds.
#[allow(clippy::print_stdout)] // How late it was is for people to read.
pub async fn a_dead_holders_successor_enters_when_its_lease_ends<D: Database>(db: D) {
    let url = fresh_url(db.server());
    let next = client(db, &url).await;
    let mut link = db.connect(&url).await.expect("a connection");
    let locks = format!("{}locks", prefix_of::<D::Server>(&url));
    let (mut granted, mut inside) = (Vec::new(), Vec::new());
    for round in 0..DEATHS {
        let name = format!("x{round}");
        let (dying, at) = (name.clone(), url.clone());
        spawn_blocking(move || hold_and_die(db, &at, &dying)).await.expect("a death");
        // Nobody renews it any more, so this is the end.
        let ends = number(&mut link, &format!("SELECT ends FROM {locks} WHERE name = '{name}'")).await;
        let mutex = next.mutex(&name);
        let waiter = tokio::spawn(async move { mutex.lock().await });
        let guard = soon("the successor", waiter).await.expect("a task").expect("a lock");
        let now = number(&mut link, D::Server::NOW).await;
        let since = number(&mut link, &format!("SELECT held_since FROM {locks} WHERE name = '{name}'")).await;
        assert!(since >= ends, "it held {} µs before the lease of the dead one was over", ends - since);
        assert!(
            now - ends < SLOW_MACHINE,
            "it was inside {} µs after the end of a lease of {LEASE:?}",
            now - ends
        );
        granted.push(since - ends);
        inside.push(now - ends);
        guard.release().await.expect("a release");
    }
    println!(
        "after the end of a dead holder's lease: granted {granted:?} µs, inside and asked {inside:?} µs"
    );
    next.close().await.expect("a goodbye");
}
