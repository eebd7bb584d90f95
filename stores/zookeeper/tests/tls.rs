//! Encrypted connections.
#![cfg(feature = "tls")]

mod common;

use leasehold_client::Client;
use leasehold_core::Result;
use leasehold_testkit::servers::certificates::Certificates;
use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};
use leasehold_testkit::wait::{eventually, soon};

async fn locks(url: &str) -> Result<()> {
    let client = Client::builder().label("a").open(common::open(url)?).await?;
    soon("a lock", client.mutex("x").lock()).await?.release().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_known_certificate_is_trusted_and_others_are_not() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().tls());
    let (address, files) = (server.tls_address(), server.certificates());
    let known = format!("zookeeper+tls://{address}?ca={}", files.ca().display());
    // The first handshake of a server takes it long, on a busy machine longer than a client waits.
    eventually("an encrypted lock", || locks(&known)).await;
    let others = Certificates::make();
    let unknown = format!("zookeeper+tls://{address}?ca={}", others.ca().display());
    locks(&unknown).await.expect_err("somebody else signed its certificate");
    locks(&format!("zookeeper+tls://{address}")).await.expect_err("nobody may sign certificates");
    let odd = format!("zookeeper+tls://a_b%c?ca={}", files.ca().display());
    locks(&odd).await.expect_err("no name for a certificate");
    let missing =
        locks(&format!("zookeeper+tls://{address}?ca=/no/such/file")).await.expect_err("no such file");
    assert!(missing.to_string().contains("/no/such/file"), "{missing}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_a_certificate_gets_ours() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().tls_with_client_certificates());
    let (address, files) = (server.tls_address(), server.certificates());
    let without = format!("zk+tls://{address}?ca={}", files.ca().display());
    locks(&without).await.expect_err("it wants to know who we are");
    let with = format!("{without}&cert={}&key={}", files.client().display(), files.client_key().display());
    eventually("an encrypted lock", || locks(&with)).await;
}
