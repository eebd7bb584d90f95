//! A cluster.
//!
//! The tests run on several threads: the handles of the servers block while they wait.

use std::collections::HashSet;

use leasehold_redis::wire::{Call, Script, Slot, channels};
use leasehold_testkit::servers::Cluster;
use redis::Value;

use crate::common::{Bed, Heard, call, connections, eventually, text, until_connections, until_done};

/// One key for each of these slots.
fn key_in(slot: u16) -> String {
    format!("{{{}}}key", channels::tag(Slot(slot)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_on_the_nodes_that_own_them() {
    let servers = Cluster::start(3, 0);
    let bed = Bed::open(&format!("{}?replicas=0", servers.url())).await;
    for number in 0..100 {
        let key = format!("key-{number}");
        bed.wire.run(call(&["SET", &key, "1"])).await.unwrap();
        let slot = Slot::of(key.as_bytes());
        assert_eq!(slot.0, servers.slot_of(&key));
        assert_eq!(servers.owner_of_slot(slot.0).cli(&["GET", &key]).trim(), "1");
    }
    let masters = bed.wire.masters().await.unwrap();
    assert_eq!(masters.len(), 3);
    let posts: HashSet<u64> = masters.iter().map(|slot| bed.wire.post(*slot).node).collect();
    assert_eq!(posts.len(), 3);
    for slot in masters {
        assert_eq!(Slot::of(bed.wire.post(slot).tag.as_bytes()), slot);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_connected_to_when_it_is_first_used() {
    let servers = Cluster::start(3, 0);
    let bed = Bed::open(&format!("{}?replicas=0", servers.url())).await;
    for server in servers.nodes() {
        until_connections(server, &[]).await;
    }
    let slot = bed.wire.masters().await.unwrap()[1];
    bed.wire.run(call(&["SET", &key_in(slot.0), "1"])).await.unwrap();
    let used = servers.owner_of_slot(slot.0);
    until_connections(used, &["leasehold", "leasehold-push"]).await;
    let others = servers.nodes().iter().filter(|node| node.port() != used.port());
    others.for_each(|other| assert!(connections(other).is_empty()));
    drop(bed);
    until_connections(used, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_come_from_the_node_of_the_slot() {
    let servers = Cluster::start(3, 0);
    let bed = Bed::open(&format!("{}?replicas=0", servers.url())).await;
    for slot in bed.wire.masters().await.unwrap() {
        let post = bed.wire.post(slot);
        assert!(bed.wire.listening(post.node).await);
        bed.heard.resumed(post.node).await;
        let word = format!("from {}", slot.0);
        // From a script on a key of the node, as the store does it.
        let script = Script::new("return redis.call('SPUBLISH', ARGV[1], ARGV[2])");
        let publish = Call::script(&script, slot, &[&key_in(slot.0)]).arg(bed.channel(&post.tag)).arg(&word);
        assert_eq!(bed.wire.run(publish).await.unwrap(), Value::Int(1));
        bed.heard.note(&word).await;
    }
    bed.wire.watch_events(true).await.unwrap();
    for slot in bed.wire.masters().await.unwrap() {
        let channel = channels::events("leasehold:", &bed.wire.post(slot).tag, 0);
        let word = format!("event of {}", slot.0);
        assert_eq!(servers.owner_of_slot(slot.0).cli(&["SPUBLISH", &channel, &word]).trim(), "1");
        bed.heard.event(&word).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moved_is_followed() {
    let servers = Cluster::start(3, 0);
    let bed = Bed::open(&format!("{}?replicas=0", servers.url())).await;
    let slots = bed.wire.masters().await.unwrap();
    let (from, to) = (slots[0], slots[1]);
    let slot = from.0 + 7;
    let key = key_in(slot);
    bed.wire.run(call(&["SET", &key, "before"])).await.unwrap();
    servers.migrate_slot(slot, servers.owner_of_slot(to.0).port());
    // The first is redirected; then the map is known.
    assert_eq!(text(bed.wire.run(call(&["GET", &key])).await.unwrap()), "before");
    eventually("the map is new", || match bed.wire.post(Slot(slot)).node {
        node if node == bed.wire.post(to).node => Ok(()),
        node => Err(node.to_string()),
    })
    .await;
    // Who waits there is told to look again.
    bed.heard.next(|heard| *heard == Heard::Resumed(bed.wire.post(to).node)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirected_calls_of_a_pipeline_are_answered_too() {
    let servers = Cluster::start(3, 0);
    let bed = Bed::open(&format!("{}?replicas=0", servers.url())).await;
    let slots = bed.wire.masters().await.unwrap();
    let moved: Vec<u16> = (1..6).map(|number| slots[0].0 + number).collect();
    for slot in &moved {
        bed.wire.run(call(&["SET", &key_in(*slot), &slot.to_string()])).await.unwrap();
    }
    for slot in &moved[..3] {
        servers.migrate_slot(*slot, servers.owner_of_slot(slots[1].0).port());
    }
    let calls = moved.iter().map(|slot| call(&["GET", &key_in(*slot)])).collect();
    for (slot, answer) in moved.iter().zip(bed.wire.run_all(calls).await) {
        assert_eq!(text(answer.unwrap()), slot.to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_moving_is_asked_for_at_both_nodes() {
    let servers = Cluster::start(3, 0);
    let bed = Bed::open(&format!("{}?replicas=0", servers.url())).await;
    let slots = bed.wire.masters().await.unwrap();
    let slot = slots[0].0 + 9;
    let (stays, goes) = (format!("{}-stays", key_in(slot)), format!("{}-goes", key_in(slot)));
    for key in [&stays, &goes] {
        bed.wire.run(call(&["SET", key, key])).await.unwrap();
    }
    let migration = servers.begin_migration(slot, servers.owner_of_slot(slots[1].0).port());
    migration.move_key(&goes);
    for key in [&stays, &goes] {
        assert_eq!(text(bed.wire.run(call(&["GET", key])).await.unwrap()), *key);
        // A script that the other node does not know, after ASKING.
        let script = Script::new("return redis.call('GET', KEYS[1]) .. ARGV[1]");
        let answer = bed.wire.run(Call::script(&script, Slot(slot), &[key]).arg("!")).await.unwrap();
        assert_eq!(text(answer), format!("{key}!"));
    }
    // A key that is new is made at the node that the slot moves to.
    let fresh = format!("{}-new", key_in(slot));
    bed.wire.run(call(&["SET", &fresh, "1"])).await.unwrap();
    assert_eq!(bed.wire.post(Slot(slot)).node, bed.wire.post(slots[0]).node, "the map must not change yet");
    migration.move_keys();
    migration.finish();
    for key in [&stays, &goes, &fresh] {
        assert_ne!(bed.wire.run(call(&["GET", key])).await.unwrap(), Value::Nil);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_keys_are_torn_apart_waits_for_the_slot() {
    let servers = Cluster::start(3, 0);
    let bed = Bed::open(&format!("{}?replicas=0&timeout=30s", servers.url())).await;
    let slots = bed.wire.masters().await.unwrap();
    let slot = slots[0].0 + 11;
    let (stays, goes) = (format!("{}-stays", key_in(slot)), format!("{}-goes", key_in(slot)));
    for key in [&stays, &goes] {
        bed.wire.run(call(&["SET", key, "1"])).await.unwrap();
    }
    let migration = servers.begin_migration(slot, servers.owner_of_slot(slots[1].0).port());
    migration.move_key(&goes);
    let (wire, both) = (bed.wire.clone(), call(&["MGET", &stays, &goes]));
    let asking = tokio::spawn(async move { wire.run(both).await });
    let from = servers.owner_of_slot(slots[0].0);
    eventually("it was told to try again", || match from.cli(&["INFO", "errorstats"]) {
        stats if stats.contains("errorstat_TRYAGAIN") => Ok(()),
        stats => Err(stats),
    })
    .await;
    migration.move_keys();
    migration.finish();
    let answer: Vec<String> = redis::from_redis_value(asking.await.unwrap().unwrap()).unwrap();
    assert_eq!(answer, ["1", "1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_whose_slot_moves_is_subscribed_to_elsewhere() {
    let servers = Cluster::start(3, 0);
    let bed = Bed::open(&format!("{}?replicas=0", servers.url())).await;
    let slots = bed.wire.masters().await.unwrap();
    let (from, to) = (slots[0], slots[1]);
    let old = bed.wire.post(from);
    assert!(bed.wire.listening(old.node).await);
    bed.heard.resumed(old.node).await;
    // The lowest slot of the node, which its channels are named after. Nobody calls.
    servers.migrate_slot(from.0, servers.owner_of_slot(to.0).port());
    let next = Slot(from.0 + 1);
    eventually("the node has another tag", || match bed.wire.post(next) {
        post if post.node == old.node && post.tag != old.tag => Ok(()),
        post => Err(format!("{post:?}")),
    })
    .await;
    bed.heard.resumed(old.node).await;
    let channel = bed.channel(&bed.wire.post(next).tag);
    let node = servers.owner_of_slot(next.0);
    eventually("the new channel is subscribed to", || match node.cli(&["SPUBLISH", &channel, "hello"]) {
        count if count.trim() == "1" => Ok(()),
        count => Err(count),
    })
    .await;
    bed.heard.note("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced_by_its_replica() {
    let servers = Cluster::start(3, 1);
    let bed = Bed::open(&servers.url()).await;
    let slot = bed.wire.masters().await.unwrap()[2];
    let key = key_in(slot.0);
    let (_, mark) = bed.wire.run_marked(call(&["SET", &key, "1"])).await.unwrap();
    bed.wire.replicated_since(mark).await.unwrap();
    let old = bed.wire.post(slot).node;
    assert!(bed.wire.listening(old).await);

    let dead = servers.kill_master_of(slot.0);
    let new = servers.wait_for_new_owner(slot.0, dead);
    assert_eq!(text(until_done(&bed.wire, &["GET", &key]).await), "1");
    until_done(&bed.wire, &["SET", &key, "2"]).await;
    assert_eq!(new.cli(&["GET", &key]).trim(), "2");
    let post = bed.wire.post(slot);
    assert_ne!(post.node, old);
    assert!(bed.wire.listening(post.node).await);
    bed.heard.resumed(post.node).await;
    eventually("messages come from the new master", || {
        match new.cli(&["SPUBLISH", &bed.channel(&post.tag), "hi"]) {
            count if count.trim() == "1" => Ok(()),
            count => Err(count),
        }
    })
    .await;
    bed.heard.note("hi").await;
    // The others were not disturbed, and what the old one answered is not proven by the new one.
    bed.wire.run(call(&["SET", &key_in(bed.wire.masters().await.unwrap()[0].0), "1"])).await.unwrap();
    assert!(bed.wire.replicated_since(mark).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_followed_without_a_call() {
    let servers = Cluster::start(3, 1);
    let bed = Bed::open(&servers.url()).await;
    let slot = bed.wire.masters().await.unwrap()[1];
    let old = bed.wire.post(slot).node;
    assert!(bed.wire.listening(old).await);
    let dead = servers.kill_master_of(slot.0);
    let new = servers.wait_for_new_owner(slot.0, dead);
    until_connections(new, &["leasehold", "leasehold-push"]).await;
    let post = bed.wire.post(slot);
    assert_ne!(post.node, old);
    bed.heard.resumed(post.node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_hand_is_followed_in_a_cluster() {
    let servers = Cluster::start(3, 1);
    let bed = Bed::open(&servers.url()).await;
    let slot = bed.wire.masters().await.unwrap()[0];
    let key = key_in(slot.0);
    bed.wire.run(call(&["SET", &key, "1"])).await.unwrap();
    let old = servers.owner_of_slot(slot.0).port();
    let replica = servers.replicas_of(old)[0].port();
    servers.failover(replica);
    servers.wait_for_new_owner(slot.0, old);
    assert_eq!(text(until_done(&bed.wire, &["GET", &key]).await), "1");
    until_done(&bed.wire, &["SET", &key, "2"]).await;
    // The old one is a replica now, and nothing of ours stays there.
    until_connections(servers.node(old), &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_that_is_down_is_no_trouble() {
    let servers = Cluster::start(3, 0);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bed =
        Bed::open(&format!("redis+cluster://{nobody},127.0.0.1:{}?replicas=0", servers.nodes()[1].port()))
            .await;
    for number in 0..20 {
        bed.wire.run(call(&["SET", &format!("key-{number}"), "1"])).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_leaves_every_node() {
    let servers = Cluster::start(3, 0);
    let bed = Bed::open(&format!("{}?replicas=0", servers.url())).await;
    bed.wire.watch_events(true).await.unwrap();
    for slot in bed.wire.masters().await.unwrap() {
        until_connections(servers.owner_of_slot(slot.0), &["leasehold", "leasehold-push"]).await;
    }
    bed.wire.close().await;
    for server in servers.nodes() {
        until_connections(server, &[]).await;
    }
    assert!(bed.wire.run(call(&["GET", "a"])).await.is_err());
}
