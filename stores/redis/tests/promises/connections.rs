//! Two connections and one channel for each session, and one connection more for each runtime that locks, however much it does.

use leasehold_client::{Budget, Client};
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::wait::eventually;

use crate::common::play::{connect, fresh_url, granted, lock, on, release, waiter};

/// The names of the connections of all sessions, sorted.
fn connections(server: &Redis) -> Vec<String> {
    let list = server.cli(&["CLIENT", "LIST"]);
    let name = |line: &str| line.split(' ').find_map(|word| word.strip_prefix("name=").map(str::to_owned));
    let mut names: Vec<String> = list.lines().filter_map(name).filter(|name| !name.is_empty()).collect();
    names.sort();
    names
}

/// Waits until these are all: one for pushes gets its name after it has subscribed, and nobody waits for that.
async fn named(server: &Redis, names: &[&str]) {
    eventually("these connections are there, and no others", || async {
        let seen = connections(server);
        if seen == names { Ok(()) } else { Err(seen) }
    })
    .await;
}

fn channels(server: &Redis) -> Vec<String> {
    server.cli(&["PUBSUB", "CHANNELS"]).lines().map(str::to_owned).collect()
}

#[test]
fn connections_and_channels_do_not_depend_on_how_many_locks_there_are() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    let client_url = url.clone();
    on(server, &url, |stage, server| async move {
        let holder = stage.client("holder").await;
        let mut held = Vec::new();
        for n in 0..50 {
            held.push(lock(&holder.mutex(format!("lock {n}"))).await);
        }
        // One entry at the store for each of these.
        let client = connect(&client_url, Client::builder().local_queue(Budget::off())).await;
        let mut guards = Vec::new();
        for n in 0..200 {
            guards.push(lock(&client.mutex(format!("own {n}"))).await);
        }
        let waiting: Vec<_> = (0..50).map(|n| waiter(&client.mutex(format!("lock {n}")))).collect();
        for n in 0..50 {
            stage.waiters(&format!("lock {n}"), 1).await;
        }
        // The observer, the holder and the client; the latter two lock in this runtime.
        let (commands, pushes) = (["leasehold"; 5], ["leasehold-push"; 3]);
        named(&server, &[&commands[..], &pushes[..]].concat()).await;
        let channels_now = channels(&server);
        assert_eq!(channels_now.len(), 3, "{channels_now:?}");
        assert!(channels_now.iter().any(|name| name.ends_with(&format!("s:{}", client.session()))));
        assert_eq!(server.cli(&["PUBSUB", "NUMPAT"]), "0");

        for guard in held {
            release(guard).await;
        }
        for waiter in waiting {
            release(granted(waiter).await).await;
        }
        drop(guards);
        client.close().await.expect("a close");
        holder.close().await.expect("a close");
        eventually("what was closed is gone", || async {
            let left = (connections(&server), channels(&server).len());
            if left == (vec!["leasehold".into(), "leasehold-push".into()], 1) { Ok(()) } else { Err(left) }
        })
        .await;
    });
}

#[test]
fn a_watcher_adds_one_channel_and_no_connection() {
    let server = Redis::start(RedisOptions::new());
    let url = fresh_url(&server.url(), "");
    on(server, &url, |stage, server| async move {
        let client = stage.client("watcher").await;
        let mut watch = client.watch("").await.expect("a watch");
        let second = client.watch("x").await.expect("a watch");
        named(&server, &["leasehold", "leasehold", "leasehold-push", "leasehold-push"]).await;
        let all = channels(&server);
        assert_eq!(all.iter().filter(|name| name.ends_with("e:0")).count(), 1, "{all:?}");
        assert_eq!(all.len(), 3, "{all:?}");
        release(lock(&client.mutex("x")).await).await;
        watch.next().await.expect("an event").expect("an event");
        drop((watch, second));
        client.close().await.expect("a close");
        eventually("the channels are gone", || async {
            let left = channels(&server);
            if left.len() == 1 { Ok(()) } else { Err(left) }
        })
        .await;
    });
}
