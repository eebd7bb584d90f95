//! A set with sentinels: failover by death, by pause, by request.

use leasehold_testkit::servers::resp::Reply;
use leasehold_testkit::servers::{RedisOptions, Sentinels, until};

#[test]
fn a_set_is_in_order_when_it_is_started() {
    let set = Sentinels::start();
    let master = set.nodes()[0].port();
    assert_eq!(set.master(), master);
    let mut connection = set.node(master).connect().unwrap();
    connection.ask(&["SET", "a", "1"]).unwrap();
    assert_eq!(connection.ask(&["WAIT", "2", "5000"]).unwrap(), Reply::Int(2));
    assert_eq!(set.nodes()[2].cli(&["GET", "a"]), "1");
    let [a, b, c] = set.sentinel_ports()[..] else { panic!("three sentinels") };
    let name = set.master_name();
    assert_eq!(set.url(), format!("redis+sentinel://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}/{name}/0"));
}

#[test]
fn a_killed_master_is_replaced_and_comes_back_as_a_replica() {
    let set = Sentinels::start_with(RedisOptions::new().password("secret"));
    let old = set.kill_master();
    let new = set.wait_for_new_master(old);
    assert_ne!(old, new);
    // Before the old master syncs with it, so it is there afterwards.
    assert_eq!(set.node(new).cli(&["SET", "a", "1"]), "OK");
    set.restart(old);
    assert_eq!(set.node(old).info("role"), "slave");
    assert_eq!(set.node(old).cli(&["GET", "a"]), "1");
}

#[test]
fn a_paused_master_is_replaced_and_learns_of_it_when_it_is_resumed() {
    let set = Sentinels::start();
    let old = set.pause_master();
    let new = set.wait_for_new_master(old);
    assert_ne!(old, new);
    set.node(old).resume();
    set.wait_until_ready();
    assert_eq!(set.node(old).info("role"), "slave");
    assert_eq!(set.master(), new);
}

#[test]
fn a_failover_can_be_asked_for_twice() {
    let set = Sentinels::start();
    let first = set.master();
    let second = set.failover();
    assert_ne!(first, second);
    set.wait_until_ready();
    assert_ne!(set.failover(), second);
}

#[test]
fn two_sentinels_are_enough_and_the_third_comes_back() {
    let set = Sentinels::start();
    let gone = set.sentinel_ports()[0];
    set.sentinels()[0].kill();
    let old = set.kill_master();
    let new = set.wait_for_new_master(old);
    set.node(old).restart();
    set.restart_sentinel(gone);
    until("the third sentinel knows the new master", || match set.master() {
        master if master == new => Ok(()),
        master => Err(master),
    });
}
