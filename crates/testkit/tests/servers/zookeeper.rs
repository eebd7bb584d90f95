//! A single ZooKeeper server, and an ensemble.

use std::io;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use leasehold_testkit::servers::zookeeper::jute::{Jute, Kind};
use leasehold_testkit::servers::{Ensemble, ZooKeeper, ZooKeeperOptions, until};

const A_SESSION: Duration = Duration::from_secs(10);

static SHARED: LazyLock<ZooKeeper> = LazyLock::new(|| ZooKeeper::start(ZooKeeperOptions::new()));

fn guest(server: &ZooKeeper) -> Jute {
    Jute::connect(server.address(), A_SESSION).unwrap()
}

#[test]
fn a_server_answers_as_soon_as_it_is_started() {
    let server = ZooKeeper::start(ZooKeeperOptions::new());
    assert_eq!(server.mode().as_deref(), Some("standalone"));
    assert_eq!(server.url(), format!("zookeeper://127.0.0.1:{}", server.port()));
    let mut jute = guest(&server);
    assert_eq!(jute.create("/a", b"one", Kind::Persistent).unwrap(), "/a");
    assert_eq!(jute.create("/a/b-", b"", Kind::EphemeralSequential).unwrap(), "/a/b-0000000000");
    assert!(jute.create("/a", b"", Kind::Persistent).is_err());
    assert_eq!(jute.data("/a").unwrap().unwrap(), b"one");
    assert_eq!(jute.data("/b").unwrap(), None);
    assert!(jute.set_data("/a", b"two").unwrap() && !jute.set_data("/b", b"two").unwrap());
    assert_eq!(jute.data("/a").unwrap().unwrap(), b"two");
    let stat = jute.stat("/a/b-0000000000").unwrap().unwrap();
    assert_eq!((stat.owner, stat.children, stat.version), (jute.session(), 0, 0));
    let parent = jute.stat("/a").unwrap().unwrap();
    assert!(parent.children == 1 && parent.version == 1 && stat.czxid > parent.czxid);
    assert_eq!(jute.children("/a").unwrap().unwrap(), ["b-0000000000"]);
    assert_eq!(jute.children("/b").unwrap(), None);
    assert_eq!(server.nodes(), ["/a", "/a/b-0000000000"]);
    assert!(jute.delete("/a/b-0000000000").unwrap() && !jute.delete("/a/b-0000000000").unwrap());
    assert_eq!(server.nodes(), ["/a"]);
}

#[test]
fn ephemeral_nodes_and_sessions_are_seen() {
    let mut jute = guest(&SHARED);
    jute.create("/seen", b"", Kind::Ephemeral).unwrap();
    assert!(SHARED.ephemerals()[&jute.session()].contains("/seen"));
    assert!(SHARED.connected_sessions().contains(&jute.session()));
    assert!(SHARED.session_count() >= 1);
    let session = jute.session();
    jute.close().unwrap();
    assert!(!SHARED.ephemerals().contains_key(&session));
    assert!(!SHARED.nodes().contains(&"/seen".to_owned()));
}

#[test]
fn short_sessions_are_allowed_and_end_by_themselves() {
    let mut jute = Jute::connect(SHARED.address(), Duration::from_millis(400)).unwrap();
    assert_eq!(jute.timeout(), Duration::from_millis(400));
    jute.create("/short", b"", Kind::Ephemeral).unwrap();
    let began = Instant::now();
    until("a silent session ends", || match SHARED.ephemerals().contains_key(&jute.session()) {
        false => Ok(()),
        true => Err("alive"),
    });
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
}

#[test]
fn an_empty_container_vanishes() {
    let mut jute = guest(&SHARED);
    jute.create("/box", b"", Kind::Container).unwrap();
    jute.create("/box/one", b"", Kind::Ephemeral).unwrap();
    jute.delete("/box/one").unwrap();
    until("the container is gone", || match jute.stat("/box").unwrap() {
        None => Ok(()),
        Some(stat) => Err(format!("{stat:?}")),
    });
}

#[test]
fn a_session_is_ended_from_outside() {
    let mut jute = guest(&SHARED);
    let session = jute.session();
    jute.create("/theirs", b"", Kind::Ephemeral).unwrap();
    SHARED.end_session(session);
    assert!(!SHARED.nodes().contains(&"/theirs".to_owned()));
    assert!(jute.data("/theirs").is_err(), "its connection is closed");
    let gone = Jute::resume(SHARED.address(), session).err().expect("no such session");
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_session_outlives_a_killed_server_and_so_does_the_data() {
    let server = ZooKeeper::start(ZooKeeperOptions::new());
    let mut jute = guest(&server);
    jute.create("/mine", b"here", Kind::Ephemeral).unwrap();
    server.kill();
    assert!(jute.data("/mine").is_err());
    server.restart();
    let mut again = Jute::resume(server.address(), jute.session()).unwrap();
    assert_eq!(again.data("/mine").unwrap().unwrap(), b"here");
    server.restart_empty();
    assert!(server.nodes().is_empty());
}

#[test]
fn only_users_who_log_in_are_served_if_so_wanted() {
    let server = ZooKeeper::start(ZooKeeperOptions::new().user("ana", "secret").only_users());
    let refused = Jute::connect(server.address(), A_SESSION).and_then(|mut jute| jute.children("/"));
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(server.mode().as_deref(), Some("standalone"));
}

#[test]
#[should_panic(expected = "doesn't start")]
fn a_server_that_does_not_start_shows_its_log() {
    ZooKeeper::start(ZooKeeperOptions::new().line("tickTime=none"));
}

#[test]
fn an_ensemble_serves_and_goes_on_without_one() {
    let ensemble = Ensemble::start();
    let ports: Vec<u16> = ensemble.members().iter().map(|member| member.port()).collect();
    let [a, b, c] = ports[..] else { panic!("{ports:?}") };
    assert_eq!(ensemble.url(), format!("zookeeper://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}"));
    let leader = ensemble.leader().port();
    let followers = ensemble.followers();
    assert_eq!(followers.len(), 2);
    let mut jute = guest(followers[0]);
    jute.create("/a", b"", Kind::Persistent).unwrap();
    jute.create("/a/mine", b"", Kind::Ephemeral).unwrap();
    assert_eq!(ensemble.member_of(jute.session()).unwrap().port(), followers[0].port());
    for member in ensemble.members() {
        assert_eq!(member.nodes(), ["/a", "/a/mine"]);
    }

    let dead = ensemble.kill_leader();
    assert_eq!(dead.port(), leader);
    ensemble.wait_until_ready();
    assert_ne!(ensemble.leader().port(), leader);
    dead.restart();
    ensemble.wait_until_ready();
    assert_eq!(ensemble.followers().len(), 2);
    assert_eq!(dead.nodes(), ["/a", "/a/mine"]);

    // A session goes from one server to another.
    let mut moved = Jute::resume(dead.address(), jute.session()).unwrap();
    assert!(moved.delete("/a/mine").unwrap());
    moved.close().unwrap();
    guest(dead).delete("/a").unwrap();
    ensemble.wait_until_clean(&[]);
}

#[test]
fn an_ensemble_without_a_quorum_serves_nobody_until_it_is_back() {
    let ensemble = Ensemble::start();
    guest(&ensemble[0]).create("/a", b"", Kind::Persistent).unwrap();
    ensemble[0].kill();
    ensemble[1].kill();
    ensemble.wait_until_lost();
    assert!(Jute::connect(ensemble[2].address(), A_SESSION).is_err());
    ensemble[2].kill();
    ensemble.members().iter().for_each(|member| member.restart());
    ensemble.wait_until_ready();
    assert_eq!(ensemble[2].nodes(), ["/a"]);
}

#[test]
fn an_ensemble_goes_on_while_one_is_paused() {
    let ensemble = Ensemble::start();
    let paused = ensemble.followers()[0];
    paused.pause();
    guest(ensemble.leader()).create("/a", b"", Kind::Persistent).unwrap();
    paused.resume();
    ensemble.wait_until_ready();
    assert_eq!(paused.nodes(), ["/a"]);
}
