//! Any text is a name (scenario 19), and a name that is no longer used leaves nothing behind (scenario 11).

use std::sync::Arc;

use leasehold_client::Client;
use leasehold_core::Kind;
use tokio::task::JoinSet;

use super::take;
use crate::stage::Stage;
use crate::wait::soon;

fn odd_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "plain",
        "{}",
        "{tag}rest",
        "a{b}c{d}",
        ":",
        "a:b:c",
        "/",
        "/a",
        "a/",
        "a//b",
        "../../etc/passwd",
        ".",
        "..",
        " ",
        " two  spaces ",
        "tab\there",
        "line\nbreak",
        "nul\0inside",
        "*",
        "?",
        "%",
        "%2F",
        "'",
        "\"",
        "\\",
        "; DROP TABLE x",
        "$(id)",
        "~",
        "-rf",
        "nächtlich",
        "漢字",
        "🌙🌙",
        "e\u{301}",
        "\u{e9}",
        "\u{202e}rtl",
        "CON",
        "nul",
        "x.lock",
        "x.tmp",
    ]
    .map(String::from)
    .to_vec();
    names.extend(["x".repeat(1024), "🌙".repeat(256), format!("{}y", "x".repeat(1023)), "/".repeat(1024)]);
    names
}

/// Scenario 19: each is a lock of its own, and people read what was written.
pub async fn names_of_every_sort_are_locks_of_their_own(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let names = odd_names();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(take(&a, name).await);
    }
    for name in &names {
        let tried = soon("a try", b.mutex(name).try_lock()).await.expect("a try");
        assert!(tried.is_none(), "{name:?} was got twice");
        let seen = stage.look(name).await;
        assert_eq!((seen.name.as_str(), seen.holders.len()), (name.as_str(), 1));
    }
    let mut expected = names.clone();
    expected.sort();
    let listed: Vec<String> = stage.all().await.iter().map(|seen| seen.name.as_str().to_owned()).collect();
    assert_eq!(listed, expected, "all names, in byte order");
    for guard in guards {
        guard.release().await.expect("a release");
    }
}

/// Scenario 19.
pub async fn names_that_differ_only_in_case_are_two(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let guards =
        [take(&client, "orders").await, take(&client, "Orders").await, take(&client, "ORDERS").await];
    assert_eq!(stage.all().await.len(), 3);
    for guard in guards {
        guard.release().await.expect("a release");
    }
}

/// A bad name is an error of the verb, which says what is wrong and what to do.
pub async fn an_empty_or_too_long_name_is_invalid(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    for name in [String::new(), "x".repeat(1025), "🌙".repeat(257)] {
        let errors = [
            client.mutex(&name).lock().await.err(),
            client.mutex(&name).try_lock().await.err(),
            client.rwlock(&name).read().await.err(),
            client.rwlock(&name).write().await.err(),
            client.semaphore(&name, 1).acquire(1).await.err(),
            client.leader(&name).campaign().await.err(),
            client.striped(&name, 4).lock(&"key").await.err(),
            client.inspect(&name).await.err(),
            client.force_release(&name, None).await.err(),
        ];
        for (verb, error) in errors.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("verb {verb} took a name of {} bytes", name.len()));
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
            assert!(error.advice_text().is_some(), "{error} says what to do");
        }
    }
}

/// A namespace is a prefix that its own clients never see.
pub async fn namespaces_keep_names_apart(stage: Arc<Stage>) {
    let a = stage.open(Client::builder().namespace("a/")).await;
    let b = stage.open(Client::builder().namespace("b/")).await;
    let (one, two) = (take(&a, "x").await, take(&b, "x").await);
    assert_eq!(one.name(), "x");
    assert_eq!(a.inspect("x").await.expect("a look").name.as_str(), "x");
    let mut list = a.list("");
    let first = list.next().await.expect("one name").expect("a list");
    assert_eq!(first.name.as_str(), "x");
    assert!(list.next().await.is_none(), "the names of others are not listed");
    assert_eq!(stage.look("a/x").await.holders.len(), 1);
    one.release().await.expect("a release");
    assert!(two.is_held());
    two.release().await.expect("a release");
}

/// Scenario 11.
pub async fn many_names_over_one_client_leave_nothing_behind(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let mut all = JoinSet::new();
    for n in 0..400u32 {
        let client = client.clone();
        all.spawn(async move {
            for round in 0..2 {
                let name = format!("many/{}", (n * 7 + round) % 300);
                client.mutex(name).lock().await.expect("a lock").release().await.expect("a release");
            }
        });
    }
    while let Some(done) = soon("many names", all.join_next()).await {
        done.expect("a task");
    }
    assert_eq!(stage.all().await, []);
}
