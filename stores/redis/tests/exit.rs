//! The end of a program while the server does not answer.

mod common;

use leasehold_client::Client;
use leasehold_testkit::child::{self, Child, Role};
use leasehold_testkit::program::Program;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::{Redis as Server, RedisOptions};

/// Not a test: the part that the other process plays.
#[test]
fn child_process() {
    child::run_if_child(common::Single);
}

/// The exit waits a moment for the release, and not for the end of the lease.
#[tokio::test]
async fn a_program_ends_though_its_release_is_never_answered() {
    let server = Server::start(RedisOptions::new());
    let proxy = Proxy::start(server.address());
    let mut program =
        Child::start(&format!("redis://{}", proxy.address()), &Role::Program(Program::EndOnInput));
    let token = program.held().await;
    proxy.hang();
    program.end().await;
    // It was not the answer to its release that let it go.
    let observer = Client::open(common::open(&server.url()).expect("a store")).await.expect("a client");
    let seen = observer.inspect("x").await.expect("a look at a lock");
    assert_eq!(seen.holders.first().and_then(|entry| entry.token).map(|token| token.get()), Some(token));
    observer.close().await.expect("a close");
}
