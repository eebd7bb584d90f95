//! The end of a program while the server does not answer.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_client::Client;
use leasehold_testkit::child::{self, Child, Role};
use leasehold_testkit::program::Program;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::{Redis as Server, RedisOptions};

/// A second, and what a loaded machine needs. Far below the patience of a client with its store, and its leases.
const IN_TIME: Duration = Duration::from_secs(8);

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
    let began = Instant::now();
    program.end().await;
    assert!(began.elapsed() < IN_TIME, "the end of the program took {:?}", began.elapsed());
    // It was not the answer to its release that let it go.
    let observer = Client::open(common::open(&server.url()).expect("a store")).await.expect("a client");
    let seen = observer.inspect("x").await.expect("a look at a lock");
    assert_eq!(seen.holders.first().and_then(|entry| entry.token).map(|token| token.get()), Some(token));
    observer.close().await.expect("a close");
}

/// The URL for the child process of the next test.
const BLOCKING: &str = "LEASEHOLD_TEST_OF_BLOCKING_GUARDS";

/// How many guards it holds.
const GUARDS: usize = 10;

/// Not a test: what the child process of the next one does.
#[test]
#[allow(clippy::print_stdout)] // It is how a child talks to its parent.
fn blocking_process() {
    let Ok(url) = std::env::var(BLOCKING) else { return };
    let client = leasehold::blocking::connect(&url).expect("a client");
    let locks = (0..GUARDS).map(|n| client.mutex(format!("{n}")).lock().expect("a lock"));
    let _guards: Vec<_> = locks.collect();
    println!("@@held");
    std::io::stdin().lines().count();
}

/// Each guard waits a moment for its release when it is dropped, and the exit does: together they wait as long as one.
#[test]
fn a_program_with_many_blocking_guards_ends_as_soon_as_with_one() {
    let server = Server::start(RedisOptions::new());
    let proxy = Proxy::start(server.address());
    let mut program = Command::new(std::env::current_exe().expect("the path of this test"))
        .args(["blocking_process", "--exact", "--nocapture", "--test-threads=1"])
        .env(BLOCKING, format!("redis://{}", proxy.address()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child process");
    let mut out = BufReader::new(program.stdout.take().expect("the child's output"));
    let held = out.by_ref().lines().any(|line| line.expect("a line").contains("@@held"));
    assert!(held, "the child has ended without its locks");
    proxy.hang();
    let began = Instant::now();
    drop(program.stdin.take());
    assert!(program.wait().expect("its end").success());
    assert!(began.elapsed() < IN_TIME, "the end of the program took {:?}", began.elapsed());
}
