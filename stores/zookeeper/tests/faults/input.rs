//! Bad input, and nodes that people touched: clear errors, and nothing is stuck.

use std::time::{Duration, Instant};

use leasehold_client::Client;
use leasehold_core::Kind;
use leasehold_testkit::servers::zookeeper::jute::Kind as Node;
use leasehold_testkit::wait::soon;

use super::common;
use super::scene::{Scene, granted, lock, open, waiter};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_not_there_are_an_error_soon() {
    for (url, says) in [
        ("zookeeper://no-such-host.invalid", "no-such-host.invalid"),
        ("zookeeper://127.0.0.1:1", "127.0.0.1:1"),
        ("zk://127.0.0.1:1,127.0.0.1:2/a", "127.0.0.1:2"),
    ] {
        let begun = Instant::now();
        // The limit of `connect` is the caller's; here it is short, and what was in the way is told at its end.
        let impatient = Client::builder().retry_for(Duration::from_secs(1));
        let error = impatient.open(common::open(url).expect(url)).await.expect_err(url);
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(error.advice_text().is_some(), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(12), "{url} took {:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chroot_must_exist() {
    let (server, path) = (common::server(), format!("/{}", common::root()));
    let url = format!("{}{path}/app", server.url());
    let error = open(&url, "a").await.expect_err("no such node");
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("app"), "{error}");
    server.connect().expect("a connection").create(&path, b"", Node::Persistent).expect("a node");
    server
        .connect()
        .expect("a connection")
        .create(&format!("{path}/app"), b"", Node::Persistent)
        .expect("a node");
    let client = open(&url, "a").await.expect("a client");
    let guard = lock(&client, "a/b").await;
    let expected = format!("{path}/app/leasehold/a%2Fb/x-");
    assert!(server.nodes().iter().any(|node| node.starts_with(&expected)), "{:?}", server.nodes());
    guard.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_one_user_are_refused_to_others() {
    let scene = Scene::new("10s");
    let with = |login: &str| scene.url.replacen("://", &format!("://{login}@"), 1) + "&acl=creator";
    let (ana, bob) =
        (open(&with("ana:secret"), "ana").await.expect("a client"), open(&with("bob:secret"), "bob").await);
    let bob = bob.expect("a client: the server asks nobody before he touches a node");
    let guard = lock(&ana, "x").await;
    let nobody = scene.client("nobody").await;
    for client in [&bob, &nobody] {
        let refused = soon("the refusal", client.mutex("x").lock()).await.expect_err("not his lock");
        assert_eq!(refused.kind(), Kind::Refused, "{refused}");
        assert!(refused.advice_text().is_some() && !refused.to_string().contains("secret"), "{refused}");
        let refused = soon("the refusal", client.force_release("x", None)).await.expect_err("not his lock");
        assert_eq!(refused.kind(), Kind::Refused, "{refused}");
    }
    assert!(guard.is_held());
    let again = open(&with("ana:secret"), "ana").await.expect("a client");
    let waiting = waiter(&again.mutex("x"));
    guard.release().await.expect("a release");
    granted(waiting).await.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_by_sasl_is_checked_by_the_server() {
    use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};
    let server = ZooKeeper::start(ZooKeeperOptions::new().user("ana", "secret").only_users());
    let with = |login: &str| format!("zookeeper://{login}@{}?auth=sasl&acl=creator", server.address());
    let client = open(&with("ana:secret"), "ana").await.expect("a client");
    lock(&client, "x").await.release().await.expect("a release");
    let begun = Instant::now();
    let refused = open(&with("ana:wrong"), "ana").await.expect_err("a wrong password");
    assert!(matches!(refused.kind(), Kind::Refused | Kind::Unavailable), "{refused}");
    assert!(!refused.to_string().contains("wrong"), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(15));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_data_and_foreign_nodes_stop_nobody() {
    let scene = Scene::new("10s");
    let (a, b) = (scene.client("a").await, scene.client("b").await);
    let guard = lock(&a, "x").await;
    let path = format!("/{}/x", scene.root);
    let mut hand = scene.server.connect().expect("a connection");
    hand.set_data(&format!("{path}/{}", scene.nodes("x")[0]), b"\xff\0nonsense").expect("a change");
    hand.set_data(&path, b"limit=many\nremoved=\xfe").expect("a change");
    hand.create(&format!("{path}/_c_0d-lock-0000000000"), b"", Node::Persistent).expect("a node");
    hand.create(&format!("/{}/%zz", scene.root), b"", Node::Persistent).expect("a node");
    let seen = b.inspect("x").await.expect("a look");
    assert_eq!((seen.holders.len(), seen.holders[0].label.as_str()), (1, "?"));
    assert!(b.mutex("x").try_lock().await.expect("a try").is_none());
    let waiting = waiter(&b.mutex("x"));
    scene.until("x", 3).await;
    guard.release().await.expect("a release");
    granted(waiting).await.release().await.expect("a release");
    let permits = soon("permits", a.semaphore("x", 2).acquire(1)).await.expect("permits");
    permits.release().await.expect("a release");
    let mut list = a.list("");
    while let Some(seen) = list.next().await {
        seen.expect("a list that is not stopped by foreign nodes");
    }
    hand.delete(&format!("{path}/_c_0d-lock-0000000000")).expect("a deletion");
    hand.delete(&format!("/{}/%zz", scene.root)).expect("a deletion");
    scene.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_node_was_removed_is_made_again() {
    let scene = Scene::new("10s");
    let client = scene.client("a").await;
    for _ in 0..3 {
        lock(&client, "x").await.release().await.expect("a release");
        // The server removes empty containers by itself, here after half a second.
        scene.is_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_reads_who_holds_and_who_waits() {
    let scene = Scene::new("10s");
    let (a, b) = (scene.client("ana's job").await, scene.client("bob").await);
    let guard = soon("a lock", a.mutex("x").lease(Duration::from_secs(40)).lock()).await.expect("a lock");
    let waiting = waiter(&b.mutex("x"));
    scene.until("x", 2).await;
    let mut nodes = scene.nodes("x");
    nodes.sort_by_key(|node| node[node.len() - 10..].to_owned());
    let text = |node: &String| {
        let data = scene
            .server
            .connect()
            .expect("a connection")
            .data(&format!("/{}/x/{node}", scene.root))
            .expect("a node");
        String::from_utf8(data.expect("its data")).expect("text")
    };
    let (first, second) = (text(&nodes[0]), text(&nodes[1]));
    assert!(
        first.starts_with("label=ana's job\nsession=") && first.contains("want=exclusive\nlease=fixed 40s\n"),
        "{first}"
    );
    assert!(second.starts_with("label=bob\n") && second.contains("lease=kept 30s\n"), "{second}");
    guard.release().await.expect("a release");
    granted(waiting).await.release().await.expect("a release");
}
