//! Encrypted connections.

use leasehold_core::{Error, Kind, Retry};
use leasehold_testkit::servers::redis::{Redis, RedisOptions};

use crate::common::{Bed, call};

async fn refused(url: &str) -> Error {
    let e = Bed::try_open(url).await.err().unwrap_or_else(|| panic!("{url} was opened"));
    assert!(e.advice_text().is_some(), "no advice: {e}");
    e
}

#[tokio::test]
async fn a_server_with_a_certificate_of_a_known_authority_is_trusted() {
    let server = Redis::start(RedisOptions::new().tls());
    let ca = server.certificates().ca();
    for host in [server.tls_address().to_string(), format!("localhost:{}", server.tls_address().port())] {
        let bed = Bed::open(&format!("rediss://{host}?ca={}", ca.display())).await;
        bed.wire.run(call(&["SET", "a", &host])).await.unwrap();
        assert!(bed.wire.listening(0).await);
        server.cli(&["PUBLISH", &bed.channel(""), "hello"]);
        bed.heard.note("hello").await;
    }
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_is_not_trusted() {
    let (server, other) = (Redis::start(RedisOptions::new().tls()), Redis::start(RedisOptions::new().tls()));
    let wrong = other.certificates().ca();
    for url in [
        format!("rediss://{}", server.tls_address()),
        format!("rediss://{}?ca={}", server.tls_address(), wrong.display()),
    ] {
        let e = refused(&url).await;
        assert_eq!(e.retry_advice(), Retry::Never, "{e}");
        assert!(e.to_string().contains("?ca=PATH"), "{e}");
    }
}

#[tokio::test]
async fn a_server_that_wants_to_know_us_gets_our_certificate() {
    let server = Redis::start(RedisOptions::new().tls_with_client_certificates());
    let certificates = server.certificates();
    let bare = format!("rediss://{}?ca={}", server.tls_address(), certificates.ca().display());
    let e = refused(&bare).await;
    assert!(e.to_string().contains("cert=PATH"), "{e}");
    let (cert, key) = (certificates.client(), certificates.client_key());
    let bed = Bed::open(&format!("{bare}&cert={}&key={}", cert.display(), key.display())).await;
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
    assert!(bed.wire.listening(0).await);
    // A key of somebody else.
    let e =
        refused(&format!("{bare}&cert={}&key={}", cert.display(), certificates.server_key().display())).await;
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Invalid, Retry::Never), "{e}");
}

#[tokio::test]
async fn files_that_are_no_certificates_are_named() {
    let server = Redis::start(RedisOptions::new().tls());
    let certificates = server.certificates();
    let ca = certificates.ca();
    for url in [
        format!("rediss://{}?ca=/nowhere/ca.pem", server.tls_address()),
        format!("rediss://{}?ca={}", server.tls_address(), certificates.client_key().display()),
        format!(
            "rediss://{0}?ca={1}&cert=/nowhere/a.pem&key=/nowhere/b.pem",
            server.tls_address(),
            ca.display()
        ),
    ] {
        let e = refused(&url).await;
        assert_eq!((e.kind(), e.retry_advice()), (Kind::Invalid, Retry::Never), "{e}");
        assert!(e.to_string().contains(".pem") || e.to_string().contains("key"), "{e}");
    }
}

#[tokio::test]
async fn both_sides_must_speak_tls_or_none() {
    let server = Redis::start(RedisOptions::new().tls());
    let ca = server.certificates().ca();
    // Encrypted to a port that is not.
    let e = refused(&format!("rediss://{}?ca={}&timeout=500ms", server.address(), ca.display())).await;
    assert!(e.to_string().contains("redis://"), "{e}");
    // Not encrypted to a port that is.
    let e = refused(&format!("redis://{}?timeout=500ms", server.tls_address())).await;
    assert!(e.to_string().contains("rediss://"), "{e}");
}
