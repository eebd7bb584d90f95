//! A member is cut off from the others, and not from its clients.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Client, Clock};
use leasehold_testkit::servers::network::{Link, RemoteHost, in_private_network};
use leasehold_testkit::servers::{Ensemble, ZooKeeperOptions, until};
use leasehold_testkit::wait::{eventually, soon};

use crate::common;
use crate::runtime;

const SESSION: Duration = Duration::from_secs(10);

/// How long a holder is certain of its lock after a sign of life: three quarters of the session.
const CERTAIN: Duration = Duration::from_millis(7500);

const TICK: Duration = Duration::from_millis(200);

/// In ticks, when the follower notices: too late for a holder that stayed with it until then.
const SYNC_LIMIT: u32 = 40;

/// A member that was cut off from the others goes on answering its clients until it notices. A holder doesn't wait for
/// that: what follows a sign of life is not answered, and silence is a reason to leave.
#[test]
fn no_idle_holder_loses_its_lock_when_a_follower_is_cut_off_from_the_other_members_only() {
    let test =
        "partitions::no_idle_holder_loses_its_lock_when_a_follower_is_cut_off_from_the_other_members_only";
    in_private_network(test, || {
        let host = Arc::new(RemoteHost::start());
        let options = ZooKeeperOptions::new().tick(TICK).line(format!("syncLimit={SYNC_LIMIT}"));
        let ensemble = Ensemble::start_with_remote(options, host.clone());
        cut_the_follower_off(&ensemble, &host);
    });
}

fn cut_the_follower_off(ensemble: &Ensemble, host: &RemoteHost) {
    assert!(TICK * SYNC_LIMIT > CERTAIN);
    let (runtime, follower) = (runtime(), &ensemble[0]);
    assert_eq!(follower.mode().as_deref(), Some("follower"));
    let leader = ensemble.leader().address();
    let url = format!("{}?root={}&session={}s", ensemble.url(), common::root(), SESSION.as_secs());
    // A client takes any member first.
    let mut holders = Vec::new();
    while holders.len() < 12 || follower.connected_sessions().len() < 3 {
        assert!(holders.len() < 100, "they are all connected elsewhere");
        let name = format!("x{}", holders.len());
        holders.push(runtime.block_on(async {
            let client =
                Client::builder().open(common::open(&url).expect("a store")).await.expect("a client");
            let guard = soon("a lock", client.mutex(name).lock()).await.expect("a lock");
            (client, guard)
        }));
    }
    let other = runtime.block_on(zookeeper_client::Client::connect(&follower.address().to_string()));
    let other = other.expect("a client of the follower");
    host.cut(Link::Peers);
    let cut = Clock::system().now();
    runtime.block_on(other.check_stat("/")).expect("an answer of the follower");
    let behind_a_sync = (other.sync("/"), other.check_stat("/"));
    runtime.block_on(async {
        for (_, guard) in &holders {
            eventually("the leader has heard from it since, or it is lost", || async {
                let renewed = guard.deadline().expect("an end") > cut + CERTAIN;
                if renewed || !guard.is_held() { Ok(()) } else { Err(guard.remaining()) }
            })
            .await;
            assert!(guard.is_held(), "{} was lost with a follower", guard.name());
        }
    });
    assert_eq!(follower.mode().as_deref(), Some("follower"), "it has not noticed yet");
    let (sync, read) = behind_a_sync;
    runtime.block_on(async { (sync.await.unwrap_err(), read.await.unwrap_err()) });
    until("the follower notices", || follower.mode().map_or(Ok(()), Err));
    assert_eq!(ensemble.leader().address(), leader, "the others had their quorum all the time");
    host.mend(Link::Peers);
    ensemble.wait_until_ready();
    runtime.block_on(async {
        for (client, guard) in holders {
            assert!(guard.is_held(), "{} was lost when the follower came back", guard.name());
            soon("a release", guard.release()).await.expect("a release of a lock that was held");
            soon("an end", client.close()).await.expect("a closed client");
        }
    });
    ensemble.wait_until_clean(&[]);
}
