//! Bad input gets a clear error: its kind, what was wrong, what to do. No password is shown.

use std::time::Duration;

use leasehold::{Client, Error, Kind, Part, connect, connect_with};

async fn client() -> Client {
    connect("memory:").await.unwrap()
}

fn says(error: Error, kind: Kind, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[tokio::test]
async fn urls_that_lead_nowhere() {
    says(connect("nosuch://bob:secret@host/").await.unwrap_err(), Kind::Invalid, &["***", "file:"]);
    says(connect("just words").await.unwrap_err(), Kind::Invalid, &["scheme"]);
    says(connect("memory:x?lease=3s").await.unwrap_err(), Kind::Invalid, &["parameters", "takes none"]);
    let secret = connect("nosuch://bob:secret@host/").await.unwrap_err();
    assert!(!format!("{secret} {secret:?}").contains("secret@"), "{secret:?}");
}

#[tokio::test]
async fn a_folder_that_can_not_be_one() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let url = format!("file:{}", file.path().display());
    let error = connect(&url).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Invalid | Kind::Unavailable), "{error}");
    assert!(error.to_string().contains(&file.path().display().to_string()), "{error}");
    let below = connect(&format!("{url}/below")).await.unwrap_err();
    assert!(below.to_string().contains("below"), "{below}");
}

#[tokio::test]
async fn names_that_are_too_short_or_too_long() {
    let client = client().await;
    says(client.mutex("").lock().await.unwrap_err(), Kind::Invalid, &["empty", "1 to 1024"]);
    says(
        client.rwlock("x".repeat(1025)).try_read().await.unwrap_err(),
        Kind::Invalid,
        &["1025", "1 to 1024"],
    );
    says(client.inspect("").await.unwrap_err(), Kind::Invalid, &["empty"]);
    says(client.leader("").current().await.unwrap_err(), Kind::Invalid, &["empty"]);
    let spaced = connect_with(Client::builder().namespace("n".repeat(1000)), "memory:").await.unwrap();
    says(spaced.mutex("x".repeat(25)).lock().await.unwrap_err(), Kind::Invalid, &["1025"]);
    let full = connect_with(Client::builder().namespace("n".repeat(1024)), "memory:").await;
    says(full.unwrap_err(), Kind::Invalid, &["namespace"]);
}

#[tokio::test]
async fn permits_that_can_never_be_had() {
    let client = client().await;
    says(client.semaphore("s", 3).acquire(0).await.unwrap_err(), Kind::Invalid, &["0 permits"]);
    says(client.semaphore("s", 3).acquire(4).await.unwrap_err(), Kind::Invalid, &["4 permits", "only 3"]);
    says(client.semaphore("s", 0).acquire(1).await.unwrap_err(), Kind::Invalid, &["limit of 0"]);
    let _held = client.semaphore("s", 3).acquire(1).await.unwrap();
    says(
        client.semaphore("s", 5).acquire(1).await.unwrap_err(),
        Kind::Mismatch,
        &["limit of 3", "says 5", "set_limit"],
    );
}

#[tokio::test]
async fn leases_that_the_store_can_not_keep() {
    let client = client().await;
    let short = client.mutex("n").lease(Duration::from_millis(1)).lock().await;
    says(short.unwrap_err(), Kind::Invalid, &["1ms", "memory", "10ms"]);
    let long = client.mutex("n").lease(Duration::from_secs(u64::MAX)).lock().await;
    says(long.unwrap_err(), Kind::Invalid, &["choose one from"]);
    let usual = connect_with(Client::builder().default_lease(Duration::ZERO), "memory:").await;
    says(usual.unwrap_err(), Kind::Invalid, &["0ns"]);
}

#[tokio::test]
async fn combinations_that_make_no_sense() {
    let client = client().await;
    says(client.multi([]).lock().await.unwrap_err(), Kind::Invalid, &["at least one"]);
    let two_ways = client.multi([Part::mutex("a"), Part::permits("a", 1, 2)]);
    says(two_ways.lock().await.unwrap_err(), Kind::Invalid, &["\"a\"", "one kind"]);
    says(client.striped("s", 0).lock("k").await.unwrap_err(), Kind::Invalid, &["0 stripes", "1 to 4096"]);
    says(client.striped("s", 5000).lock_all().await.unwrap_err(), Kind::Invalid, &["5000"]);
}

#[cfg(all(feature = "mysql", feature = "postgres"))]
#[test]
fn transactions_are_a_matter_of_sql_stores() {
    for url in ["mysql://a@b/c", "mariadb://a@b/c", "postgres://a@b/c", "postgresql://a@b/c"] {
        let locks = leasehold::transaction_locks(url).expect("locks");
        assert!(locks.named("x").expect("a name").wait.starts_with("SELECT "));
        assert_eq!(locks.setup().is_empty(), url.starts_with("postgres"), "{url}");
    }
    for url in ["memory:", "postgres://bob:secret@h:port/db", "nonsense", "mysql://bob:secret@h"] {
        let error = leasehold::transaction_locks(url).expect_err("no SQL store");
        assert_eq!(error.kind(), leasehold::Kind::Invalid, "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
