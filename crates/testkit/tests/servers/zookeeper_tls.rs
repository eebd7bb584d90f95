//! ZooKeeper with TLS. The client is OpenSSL's, as a four letter word is enough to see that somebody is let in.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold_testkit::servers::certificates::Certificates;
use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};

fn ask(server: &ZooKeeper, more: &[(&str, &Path)]) -> String {
    // A server that neither answers nor closes would keep it for ever.
    let mut openssl = Command::new("timeout");
    openssl.args([
        "20",
        "openssl",
        "s_client",
        "-quiet",
        "-verify_return_error",
        "-connect",
        &server.tls_address().to_string(),
    ]);
    for (option, file) in more {
        openssl.arg(option).arg(file);
    }
    let piped = openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("openssl");
    let mut word = child.stdin.take().expect("a pipe");
    // It is gone already if it does not trust the server.
    let _ = word.write_all(b"srvr");
    let output = child.wait_with_output().expect("an end");
    drop(word);
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn a_client_that_trusts_the_authority_gets_in_and_no_other() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().tls());
    let trusting = ask(&server, &[("-CAfile", &server.certificates().ca())]);
    assert!(trusting.contains("Mode: standalone"), "{trusting}");
    let other = ask(&server, &[("-CAfile", &Certificates::make().ca())]);
    assert!(!other.contains("Mode:") && other.contains("verify"), "{other}");
}

#[test]
fn a_server_can_ask_for_the_certificate_of_a_client() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().tls_with_client_certificates());
    let files = server.certificates();
    let (ca, cert, key) = (files.ca(), files.client(), files.client_key());
    let without = ask(&server, &[("-CAfile", &ca)]);
    assert!(!without.contains("Mode:"), "{without}");
    let with = ask(&server, &[("-CAfile", &ca), ("-cert", &cert), ("-key", &key)]);
    assert!(with.contains("Mode: standalone"), "{with}");
}
