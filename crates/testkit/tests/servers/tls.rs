//! TLS with certificates made for the test. The client is Redis's own, which comes with the server.

use std::process::{Command, Stdio};

use leasehold_testkit::servers::{Redis, RedisOptions};

fn ping(redis: &Redis, more: &[(&str, &std::path::Path)]) -> String {
    let mut cli = Command::new("redis-cli");
    cli.args(["-h", "127.0.0.1", "-p", &redis.tls_address().port().to_string(), "--tls"]);
    for (option, file) in more {
        cli.arg(option).arg(file);
    }
    let output = cli.arg("PING").stdin(Stdio::null()).output().expect("redis-cli");
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_client_that_trusts_the_authority_gets_in() {
    let redis = Redis::start(RedisOptions::new().tls());
    assert_eq!(redis.tls_url(), format!("rediss://{}/", redis.tls_address()));
    assert_eq!(ping(&redis, &[("--cacert", &redis.certificates().ca())]).trim(), "PONG");
    assert_eq!(redis.cli(&["PING"]), "PONG");
}

#[test]
fn a_client_that_trusts_another_authority_does_not() {
    let redis = Redis::start(RedisOptions::new().tls());
    let other = leasehold_testkit::servers::certificates::Certificates::make();
    let answer = ping(&redis, &[("--cacert", &other.ca())]);
    assert!(answer.contains("certificate verify failed"), "{answer}");
}

#[test]
fn a_server_can_ask_for_the_certificate_of_a_client() {
    let redis = Redis::start(RedisOptions::new().tls_with_client_certificates());
    let files = redis.certificates();
    let (ca, cert, key) = (files.ca(), files.client(), files.client_key());
    assert_ne!(ping(&redis, &[("--cacert", &ca)]).trim(), "PONG");
    assert_eq!(ping(&redis, &[("--cacert", &ca), ("--cert", &cert), ("--key", &key)]).trim(), "PONG");
}
