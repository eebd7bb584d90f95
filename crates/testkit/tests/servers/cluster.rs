//! A cluster: slots, failover, and slots on their way.

use leasehold_testkit::servers::resp::Reply;
use leasehold_testkit::servers::{Cluster, Redis, RedisOptions};

fn error(node: &Redis, words: &[&str]) -> String {
    match node.ask(words) {
        Ok(Reply::Error(what)) => what,
        other => panic!("{words:?} is answered with {other:?}"),
    }
}

#[test]
fn a_cluster_is_in_order_when_it_is_started() {
    let cluster = Cluster::start(3, 1);
    assert_eq!(cluster.nodes().len(), 6);
    assert!(cluster.url().starts_with(&format!("redis+cluster://127.0.0.1:{},", cluster.nodes()[0].port())));
    assert_eq!(cluster.url().split(',').count(), 6);
    for (slot, at) in [(0, 0), (5460, 0), (5461, 1), (10921, 1), (10922, 2), (16383, 2)] {
        assert_eq!(cluster.owner_of_slot(slot).port(), cluster.nodes()[at].port(), "slot {slot}");
    }
    let slot = cluster.slot_of("a");
    assert_eq!(slot, 15495);
    let owner = cluster.owner_of_slot(slot);
    let mut connection = owner.connect().unwrap();
    connection.ask(&["SET", "a", "1"]).unwrap();
    let moved = error(&cluster.nodes()[0], &["GET", "a"]);
    assert_eq!(moved, format!("MOVED 15495 {}", owner.address()));
    let [replica] = cluster.replicas_of(owner.port())[..] else { panic!("one replica") };
    assert_eq!(connection.ask(&["WAIT", "1", "5000"]).unwrap(), Reply::Int(1));
    assert_eq!(replica.cli(&["DBSIZE"]), "1");
}

#[test]
fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    let cluster = Cluster::start_with(3, 1, RedisOptions::new().password("secret"));
    let slot = cluster.slot_of("a");
    let old = cluster.kill_master_of(slot);
    let new = cluster.wait_for_new_owner(slot, old);
    assert_ne!(new.port(), old);
    assert_eq!(new.cli(&["SET", "a", "1"]), "OK");
    cluster.restart(old);
    let [replica] = cluster.replicas_of(new.port())[..] else { panic!("one replica") };
    assert_eq!(replica.port(), old);
}

#[test]
fn a_replica_can_be_made_master_by_agreement() {
    let cluster = Cluster::start(3, 1);
    let old = cluster.owner_of_slot(0).port();
    let replica = cluster.replicas_of(old)[0].port();
    cluster.failover(replica);
    assert_eq!(cluster.owner_of_slot(0).port(), replica);
    assert_eq!(cluster.node(old).info("role"), "slave");
}

#[test]
fn a_slot_moves_with_its_keys() {
    let cluster = Cluster::start(3, 0);
    let slot = cluster.slot_of("{a}");
    let (old, new) = (cluster.owner_of_slot(slot), &cluster.nodes()[0]);
    for at in 0..250 {
        old.cli(&["SET", &format!("{{a}}{at}"), "1"]);
    }
    cluster.migrate_slot(slot, new.port());
    assert_eq!(cluster.owner_of_slot(slot).port(), new.port());
    assert_eq!(new.cli(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]), "250");
    assert_eq!(old.cli(&["DBSIZE"]), "0");
    assert!(error(old, &["GET", "{a}1"]).starts_with("MOVED"));
}

#[test]
fn in_the_middle_of_a_move_clients_are_sent_to_ask() {
    let cluster = Cluster::start(3, 0);
    let slot = cluster.slot_of("{a}");
    let new = cluster.nodes()[0].port();
    let old = cluster.owner_of_slot(slot);
    old.cli(&["MSET", "{a}1", "one", "{a}2", "two"]);

    let migration = cluster.begin_migration(slot, new);
    migration.move_key("{a}1");
    assert_eq!(old.cli(&["GET", "{a}2"]), "two");
    assert_eq!(error(old, &["GET", "{a}1"]), format!("ASK {slot} 127.0.0.1:{new}"));
    assert!(error(old, &["MGET", "{a}1", "{a}2"]).starts_with("TRYAGAIN"));
    assert!(error(migration.to(), &["GET", "{a}1"]).starts_with("MOVED"));
    let mut asking = migration.to().connect().unwrap();
    assert_eq!(asking.ask(&["ASKING"]).unwrap().to_string(), "OK");
    assert_eq!(asking.ask(&["GET", "{a}1"]).unwrap().to_string(), "one");

    migration.finish();
    assert_eq!(cluster.owner_of_slot(slot).cli(&["MGET", "{a}1", "{a}2"]), "one\ntwo");
}

#[test]
fn an_abandoned_move_leaves_everything_where_it_was() {
    let cluster = Cluster::start(3, 0);
    let slot = cluster.slot_of("{a}");
    let old = cluster.owner_of_slot(slot);
    old.cli(&["MSET", "{a}1", "one", "{a}2", "two"]);
    let migration = cluster.begin_migration(slot, cluster.nodes()[0].port());
    migration.move_key("{a}1");
    migration.abandon();
    assert_eq!(cluster.owner_of_slot(slot).port(), old.port());
    assert_eq!(old.cli(&["MGET", "{a}1", "{a}2"]), "one\ntwo");
}
