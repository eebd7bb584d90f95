//! The doctor, against real servers.

mod common;

use leasehold_core::doctor::{Finding, Grade};
use leasehold_testkit::servers::{Ensemble, ZooKeeper, ZooKeeperOptions};
use leasehold_testkit::wait::soon;

async fn examine(url: &str) -> Vec<Finding> {
    let store = common::open(url).expect("a store");
    soon("the doctor", store.examine()).await.expect("findings")
}

fn find<'a>(found: &'a [Finding], check: &str) -> &'a Finding {
    found.iter().find(|finding| finding.check == check).unwrap_or_else(|| panic!("{check}: {found:#?}"))
}

/// What depends on how busy the machine is.
fn is_about_speed(finding: &Finding) -> bool {
    matches!(finding.check, "latency" | "clock")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_server_is_known_as_one_and_its_bounds_are_told() {
    let server = ZooKeeper::start(ZooKeeperOptions::new());
    let nodes = server.nodes();
    let found = examine(&format!("{}?session=10s", server.url())).await;
    assert!(found.iter().all(|finding| finding.grade < Grade::Danger), "{found:#?}");
    assert!(find(&found, "quorum").what.contains("single"), "{found:#?}");
    assert_eq!(find(&found, "version").grade, Grade::Good);
    assert_eq!(find(&found, "session").grade, Grade::Good);
    assert!(find(&found, "session").what.contains("400ms"), "{found:#?}");
    assert!(is_about_speed(find(&found, "latency")) && is_about_speed(find(&found, "clock")));
    assert_eq!(server.nodes(), nodes, "it changed something");
    let found = examine(&format!("{}?session=1h", server.url())).await;
    assert_eq!(find(&found, "session").grade, Grade::Warning, "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_is_healthy_until_a_member_dies() {
    let ensemble = Ensemble::start();
    let url = format!("{}?session=10s", ensemble.url());
    let found = examine(&url).await;
    // A busy machine may be slow, and is told so.
    let sound = |finding: &Finding| finding.grade == Grade::Good || is_about_speed(finding);
    assert!(found.iter().all(sound), "{found:#?}");
    assert!(find(&found, "quorum").what.contains("3 of 3"), "{found:#?}");
    ensemble[0].kill();
    ensemble.wait_until_ready();
    let found = examine(&url).await;
    let dead = find(&found, "server");
    assert_eq!(
        (dead.grade, dead.node.as_deref()),
        (Grade::Warning, Some(ensemble[0].address().to_string().as_str()))
    );
    assert!(find(&found, "quorum").what.contains("2 of 3"), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_is_an_error() {
    let store = common::open("zookeeper://127.0.0.1:1").expect("a store");
    assert!(soon("the doctor", store.examine()).await.is_err());
}
