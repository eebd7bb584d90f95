//! What the crate `zookeeper-client` does when things go wrong, as far as this store relies on it or works around it.
//! `docs/zookeeper-client.md` has the same in words. A test that goes red after an update of the crate says which of our
//! habits to think over.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::zookeeper::jute::{Kind, op};
use leasehold_testkit::servers::{Ensemble, ZooKeeper, ZooKeeperOptions};
use leasehold_testkit::wait::{A_WHILE, eventually, not_yet, soon};
use zookeeper_client::{
    Acls, AddWatchMode, Client, CreateMode, CreateOptions, Error, EventType, MultiWriteError,
    MultiWriteResult, OneshotWatcher, SessionState, StateWatcher,
};

static SERVER: LazyLock<ZooKeeper> = LazyLock::new(|| ZooKeeper::start(ZooKeeperOptions::new()));

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

/// Long enough that nothing expires where nothing should.
const LONG: Duration = Duration::from_secs(30);

async fn connect(address: SocketAddr, timeout: Duration) -> Client {
    let connector = Client::connector().with_session_timeout(timeout);
    soon("a connection", connector.connect(&address.to_string())).await.unwrap()
}

async fn stage(timeout: Duration) -> (Proxy, Client) {
    let proxy = Proxy::to_zookeeper(SERVER.address());
    let client = connect(proxy.address(), timeout).await;
    (proxy, client)
}

/// States that come in quick succession are seen as the last one.
async fn reaches(states: &mut StateWatcher, wanted: SessionState) {
    let arrived = async {
        while states.peek_state() != wanted {
            states.changed().await;
        }
    };
    soon(&format!("the client is {wanted}"), arrived).await;
}

async fn exists(path: &str) -> bool {
    SERVER.connect().unwrap().stat(path).unwrap().is_some()
}

fn plant(path: &str) {
    SERVER.connect().unwrap().create(path, b"", Kind::Persistent).unwrap();
}

async fn appears(path: &str) {
    eventually("the node is there", || async { exists(path).await.then_some(()).ok_or(path) }).await;
}

async fn watched(path: &str, wanted: bool) {
    let look = || async {
        let watches = SERVER.watches();
        if watches.contains_key(path) == wanted { Ok(()) } else { Err(watches) }
    };
    eventually(&format!("{path} is watched: {wanted}"), look).await;
}

/// An error that leaves open whether the server did what was asked.
fn is_unknown<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Custom(_) | Error::ConnectionLoss))
}

mod sending {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_is_sent_when_its_future_is_made_and_not_when_it_is_polled() {
        let (_proxy, client) = stage(LONG).await;
        let unpolled = client.create("/unpolled", b"", &EPHEMERAL);
        appears("/unpolled").await;
        unpolled.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_whose_future_is_dropped_has_its_effect_all_the_same() {
        let (_proxy, client) = stage(LONG).await;
        drop(client.create("/dropped", b"", &EPHEMERAL));
        appears("/dropped").await;
    }

    /// So create and list are asked together. They are two packets, and as the crate leaves Nagle's algorithm on, the kernel
    /// may hold the second until the first is acknowledged.
    #[tokio::test(flavor = "multi_thread")]
    async fn requests_go_out_in_order_before_the_first_is_answered() {
        let (proxy, client) = stage(LONG).await;
        proxy.swallow_answers();
        let _create = client.create("/together", b"", &EPHEMERAL);
        let _list = client.list_children("/");
        let sent = || async {
            let sent = proxy.requests_by_op();
            if sent.contains_key(&op::CREATE2) && sent.contains_key(&op::GET_CHILDREN) {
                Ok(())
            } else {
                Err(sent)
            }
        };
        eventually("both are sent", sent).await;
        proxy.cut();
        proxy.pass();
        let (create, list) = eventually("it is back", || async {
            let _ = client.delete("/together", None).await;
            let (create, list) = (client.create("/together", b"", &EPHEMERAL), client.list_children("/"));
            Ok::<_, Error>((create.await?, list.await?))
        })
        .await;
        assert!(list.contains(&"together".to_owned()), "{create:?} {list:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn deletes_in_one_request_happen_together_or_not_at_all_and_the_one_that_fails_is_named() {
        let (_proxy, client) = stage(LONG).await;
        let delete = async |paths: &[&str]| {
            let mut all = client.new_multi_writer();
            for path in paths {
                all.add_delete(path, None).unwrap();
            }
            all.commit().await.map(|done| done.len())
        };
        plant("/first");
        plant("/third");
        let failed = MultiWriteError::OperationFailed { index: 1, source: Error::NoNode };
        assert_eq!(delete(&["/first", "/second", "/third"]).await, Err(failed));
        assert!(exists("/first").await && exists("/third").await);
        assert_eq!(delete(&["/first", "/third"]).await, Ok(2));
        assert!(!exists("/first").await && !exists("/third").await);
    }

    /// So creates, whose `czxid` are tokens, are asked for one by one.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_create_among_others_comes_back_without_its_czxid() {
        let (_proxy, client) = stage(LONG).await;
        let mut all = client.new_multi_writer();
        all.add_create("/among-others", b"", &EPHEMERAL).unwrap();
        let made = all.commit().await.unwrap();
        let [MultiWriteResult::Create { stat, .. }] = &made[..] else { panic!("one create: {made:?}") };
        assert!(stat.is_invalid(), "{stat:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_idle_client_pings_and_keeps_its_session() {
        let timeout = Duration::from_secs(2);
        let (proxy, client) = stage(timeout).await;
        client.create("/idle", b"", &EPHEMERAL).await.unwrap();
        // Twice as long as it would live without them. A busy machine may interrupt the connection, not the session.
        tokio::time::sleep(timeout * 2).await;
        assert!(proxy.requests_of(op::PING) >= 6, "{:?}", proxy.requests_by_op());
        assert!(!client.state().is_terminated());
        assert!(exists("/idle").await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_last_clone_that_is_dropped_closes_the_session() {
        let (proxy, client) = stage(LONG).await;
        client.create("/closed", b"", &EPHEMERAL).await.unwrap();
        let other = client.clone();
        drop(client);
        assert!(other.check_stat("/closed").await.unwrap().is_some());
        drop(other);
        let gone = || async { (!exists("/closed").await).then_some(()).ok_or("still there") };
        eventually("the session is closed", gone).await;
        assert_eq!(proxy.requests_of(op::CLOSE), 1);
    }

    /// It is as if the drop came after the reconnect.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_that_is_dropped_while_disconnected_closes_its_session_when_it_is_back() {
        let (proxy, client) = stage(LONG).await;
        client.create("/closed-late", b"", &EPHEMERAL).await.unwrap();
        let mut states = client.state_watcher();
        proxy.refuse();
        reaches(&mut states, SessionState::Disconnected).await;
        drop(client);
        proxy.pass();
        let gone = || async { (!exists("/closed-late").await).then_some(()).ok_or("still there") };
        eventually("the session is closed", gone).await;
    }
}

mod connecting {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_at_the_port_is_no_host_at_once_or_a_timeout_late() {
        let (proxy, _client) = stage(LONG).await;
        proxy.refuse();
        let address = proxy.address().to_string();
        let timeout = Duration::from_millis(1200);
        let connector = || Client::connector().with_session_timeout(timeout);
        let began = Instant::now();
        let eager = connector().with_fail_eagerly().connect(&address).await.map(drop);
        assert_eq!(eager, Err(Error::NoHosts));
        assert!(began.elapsed() < timeout, "{:?}", began.elapsed());
        let patient = soon("an end", connector().connect(&address)).await.map(drop);
        assert_eq!(patient, Err(Error::Timeout));
        assert!(began.elapsed() >= timeout, "{:?}", began.elapsed());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_server_decides_how_long_a_session_may_be() {
        let address = SERVER.address().to_string();
        // So short a time is also the time for the connection itself, which may not be enough.
        let short = || Client::connector().with_session_timeout(Duration::from_millis(200)).connect(&address);
        let client = eventually("a connection", short).await;
        assert_eq!(client.session_timeout(), Duration::from_millis(400));
        let client = connect(SERVER.address(), Duration::from_secs(3600)).await;
        assert_eq!(client.session_timeout(), Duration::from_secs(60));
    }
}

mod reset {
    use super::*;

    /// So many connections are tried in an outage of this length, by a client that knows the address so often.
    async fn tries(copies: usize, outage: Duration) -> u64 {
        let proxy = Proxy::to_zookeeper(SERVER.address());
        let addresses = vec![proxy.address().to_string(); copies].join(",");
        let connector = Client::connector().with_session_timeout(LONG);
        let client = soon("a connection", connector.connect(&addresses)).await.unwrap();
        // Nothing listens there: each connection is closed as soon as it is made.
        proxy.lead_to(([127, 0, 0, 1], 1).into());
        let before = proxy.traffic().connections;
        proxy.cut();
        tokio::time::sleep(outage).await;
        let tried = proxy.traffic().connections - before;
        drop(client);
        tried
    }

    /// So the store gives each address many times.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_pauses_between_rounds_of_tries_double_and_those_in_a_round_do_not() {
        let outage = Duration::from_secs(4);
        let (once, often) = tokio::join!(tries(1, outage), tries(14, outage));
        // At once, and after 0.1, 0.3, 0.7, 1.5 and 3.1 seconds or a little later.
        assert!((2..=7).contains(&once), "{once} tries");
        // At once 14 times; then after a second, and a pause that grows by 50 ms each time.
        assert!(often >= 18, "{often} tries");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lost_answer_is_an_unknown_outcome_and_the_session_goes_on() {
        let (proxy, client) = stage(LONG).await;
        let session = client.session_id();
        proxy.lose_answer_to(op::CREATE2);
        let lost = client.create("/lost", b"", &EPHEMERAL).await;
        assert!(is_unknown(lost));
        assert!(exists("/lost").await, "it had its effect");
        proxy.cut_before(op::CREATE2);
        let lost = soon("an end", client.create("/never", b"", &EPHEMERAL)).await;
        assert!(is_unknown(lost), "the same error, and it had none");
        assert!(client.check_stat("/never").await.unwrap().is_none());
        // Not retried by the crate.
        assert_eq!(proxy.requests_of(op::CREATE2), 1);
        let stat = client.check_stat("/lost").await.unwrap().unwrap();
        assert_eq!(stat.ephemeral_owner, client.session_id().0);
        assert_eq!(client.session_id(), session);
    }

    /// An own limit on the wait is needed, and what runs into it may still happen.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_made_while_disconnected_waits_and_is_sent_after_the_reconnect() {
        let (proxy, client) = stage(LONG).await;
        let mut states = client.state_watcher();
        proxy.refuse();
        reaches(&mut states, SessionState::Disconnected).await;
        let mut waiting = Box::pin(client.create("/waited", b"", &EPHEMERAL));
        not_yet("an answer without a connection", &mut waiting).await;
        drop(client.create("/waited-by-nobody", b"", &EPHEMERAL));
        proxy.pass();
        soon("the answer after the reconnect", waiting).await.unwrap();
        appears("/waited-by-nobody").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn two_logins_are_repeated_after_a_reconnect() {
        let proxy = Proxy::to_zookeeper(SERVER.address());
        let connector = Client::connector().with_auth("digest", b"ana:1").with_auth("digest", b"bob:2");
        let client = connector.connect(&proxy.address().to_string()).await.unwrap();
        proxy.cut();
        let users = eventually("it is back", || client.list_auth_users()).await;
        let digests = users.iter().filter(|user| user.scheme() == "digest").count();
        assert_eq!(digests, 2, "{users:?}");
        assert_eq!(proxy.requests_of(op::AUTH), 4);
    }
}

mod silence {
    use super::*;

    /// The crate notices after 2/5 of the timeout, and believes in its session until 7/5: longer than the server does. So the
    /// store has a clock of its own.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_silent_server_is_noticed_late_and_the_end_of_the_session_too_late() {
        let timeout = Duration::from_secs(2);
        let (proxy, client) = stage(timeout).await;
        client.create("/silent", b"", &EPHEMERAL).await.unwrap();
        let mut states = client.state_watcher();
        let began = Instant::now();
        proxy.hang();
        let lost = client.create("/silent-too", b"", &EPHEMERAL);
        assert!(is_unknown(soon("an end", lost).await));
        let noticed = began.elapsed();
        assert!(noticed >= timeout / 4, "{noticed:?}");
        reaches(&mut states, SessionState::Disconnected).await;
        reaches(&mut states, SessionState::Expired).await;
        let ended = began.elapsed();
        assert!(ended >= timeout * 6 / 5, "{ended:?}");
        assert!(!exists("/silent").await, "the server had ended it before");
        assert_eq!(client.check_stat("/").await.map(drop), Err(Error::SessionExpired));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_paused_server_that_goes_on_in_time_finds_the_same_session() {
        let server = ZooKeeper::start(ZooKeeperOptions::new());
        let client = connect(server.address(), Duration::from_secs(4)).await;
        client.create("/a", b"", &EPHEMERAL).await.unwrap();
        let mut states = client.state_watcher();
        server.pause();
        reaches(&mut states, SessionState::Disconnected).await;
        server.resume();
        reaches(&mut states, SessionState::SyncConnected).await;
        let stat = soon("an answer", client.check_stat("/a")).await.unwrap().unwrap();
        assert_eq!(stat.ephemeral_owner, client.session_id().0);
    }
}

mod expiry {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_session_ended_from_outside_ends_the_client_for_good() {
        let (proxy, client) = stage(LONG).await;
        let mut states = client.state_watcher();
        client.create("/outside", b"", &EPHEMERAL).await.unwrap();
        let (_, _, watcher) = client.get_and_watch_data("/outside").await.unwrap();
        let session = client.session_id().0;
        tokio::task::spawn_blocking(move || SERVER.end_session(session)).await.unwrap();
        reaches(&mut states, SessionState::Expired).await;
        // What its watcher sees first depends on who is quicker: the end of the node, or that of the session.
        let event = soon("an event", watcher.changed()).await;
        assert!(event.event_type == EventType::NodeDeleted || event.session_state == SessionState::Expired);
        assert_eq!(client.create("/more", b"", &EPHEMERAL).await.map(drop), Err(Error::SessionExpired));
        let connections = proxy.traffic().connections;
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(proxy.traffic().connections, connections, "it doesn't come back by itself");
    }
}

mod watches {
    use super::*;

    /// What happened to the node meanwhile is told after the reconnect.
    #[tokio::test(flavor = "multi_thread")]
    async fn one_shot_watches_live_through_a_reconnect() {
        let (proxy, client) = stage(LONG).await;
        ["/w-deleted", "/w-changed", "/w-parent", "/w-later"].into_iter().for_each(plant);
        let (_, deleted) = client.check_and_watch_stat("/w-deleted").await.unwrap();
        let (_, _, changed) = client.get_and_watch_data("/w-changed").await.unwrap();
        let (_, created) = client.check_and_watch_stat("/w-created").await.unwrap();
        let (_, children) = client.list_and_watch_children("/w-parent").await.unwrap();
        let (_, _, later) = client.get_and_watch_data("/w-later").await.unwrap();
        let mut later = Box::pin(later.changed());

        let mut states = client.state_watcher();
        proxy.refuse();
        reaches(&mut states, SessionState::Disconnected).await;
        let mut jute = SERVER.connect().unwrap();
        jute.delete("/w-deleted").unwrap();
        jute.set_data("/w-changed", b"new").unwrap();
        jute.create("/w-created", b"", Kind::Ephemeral).unwrap();
        jute.create("/w-parent/child", b"", Kind::Ephemeral).unwrap();
        proxy.pass();

        let event = |watcher: OneshotWatcher| async { soon("an event", watcher.changed()).await.event_type };
        assert_eq!(event(deleted).await, EventType::NodeDeleted);
        assert_eq!(event(changed).await, EventType::NodeDataChanged);
        assert_eq!(event(created).await, EventType::NodeCreated);
        assert_eq!(event(children).await, EventType::NodeChildrenChanged);
        not_yet("an event where nothing happened", &mut later).await;
        jute.set_data("/w-later", b"new").unwrap();
        assert_eq!(soon("an event", later).await.event_type, EventType::NodeDataChanged);
    }

    /// `index = index.max(index)` in the crate's `resend_watches`: they are never part of what is sent again.
    #[tokio::test(flavor = "multi_thread")]
    async fn persistent_watches_are_forgotten_at_a_reconnect() {
        let (proxy, client) = stage(LONG).await;
        plant("/w-persistent");
        let mut watcher = client.watch("/w-persistent", AddWatchMode::Persistent).await.unwrap();
        watched("/w-persistent", true).await;
        proxy.cut();
        let seen = [SessionState::Disconnected, SessionState::SyncConnected];
        for state in seen {
            assert_eq!(soon("an event", watcher.changed()).await.session_state, state);
        }
        client.set_data("/w-persistent", b"new", None).await.unwrap();
        not_yet("an event of a persistent watch", &mut Box::pin(watcher.changed())).await;
        watched("/w-persistent", false).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_is_left_watching_for_a_watcher_that_is_dropped() {
        let (_proxy, client) = stage(LONG).await;
        plant("/w-dropped");
        let watch = || client.get_and_watch_data("/w-dropped");
        // The watcher itself.
        let (_, _, watcher) = watch().await.unwrap();
        watched("/w-dropped", true).await;
        drop(watcher);
        watched("/w-dropped", false).await;
        // Its future, half way.
        let (_, _, watcher) = watch().await.unwrap();
        let mut changed = Box::pin(watcher.changed());
        not_yet("an event", &mut changed).await;
        drop(changed);
        watched("/w-dropped", false).await;
        // The request that would have set it.
        drop(watch());
        client.sync("/").await.unwrap();
        watched("/w-dropped", false).await;
        // One of two on the same path.
        let ((_, _, one), (_, _, other)) = (watch().await.unwrap(), watch().await.unwrap());
        drop(one);
        client.sync("/").await.unwrap();
        watched("/w-dropped", true).await;
        drop(other);
        watched("/w-dropped", false).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_watcher_that_is_dropped_while_disconnected_is_gone_after_the_reconnect() {
        let (proxy, client) = stage(LONG).await;
        plant("/w-away");
        let (_, _, watcher) = client.get_and_watch_data("/w-away").await.unwrap();
        let mut states = client.state_watcher();
        proxy.refuse();
        reaches(&mut states, SessionState::Disconnected).await;
        drop(watcher);
        proxy.pass();
        reaches(&mut states, SessionState::SyncConnected).await;
        client.sync("/").await.unwrap();
        watched("/w-away", false).await;
    }

    /// More than 128 KiB of paths are sent as two requests with the same number, and the second answer breaks the connection:
    /// such a client never gets back in, and its session ends. The store keeps the paths of its watches short.
    #[tokio::test(flavor = "multi_thread")]
    async fn too_many_watched_paths_keep_a_client_from_coming_back() {
        let (proxy, client) = stage(Duration::from_secs(3)).await;
        let watch = |at: usize| client.check_and_watch_stat(&format!("/w-{}-{at:03}", "x".repeat(193)));
        let mut watchers = Vec::new();
        for request in (0..640).map(watch).collect::<Vec<_>>() {
            watchers.push(request.await.unwrap());
        }
        proxy.cut();
        eventually("it is back with 128,000 bytes", || client.sync("/")).await;
        for request in (640..680).map(watch).collect::<Vec<_>>() {
            watchers.push(request.await.unwrap());
        }
        let mut states = client.state_watcher();
        proxy.cut();
        reaches(&mut states, SessionState::Expired).await;
        assert!(proxy.requests_of(op::SET_WATCHES) >= 3, "{:?}", proxy.requests_by_op());
    }
}

mod ensemble {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_moves_to_another_server_with_its_session_and_its_watches() {
        let ensemble = Ensemble::start();
        let connector = Client::connector().with_session_timeout(LONG);
        let client = connector.connect(&ensemble.addresses()).await.unwrap();
        client.create("/mine", b"", &EPHEMERAL).await.unwrap();
        client.create("/watched", b"", &PERSISTENT).await.unwrap();
        let (_, _, watcher) = client.get_and_watch_data("/watched").await.unwrap();
        let session = client.session_id();
        let before = ensemble.member_of(session.0).expect("the server of the client");
        before.kill();
        ensemble.wait_until_ready();
        let stat = soon("an answer", async {
            loop {
                if let Ok(stat) = client.check_stat("/mine").await {
                    return stat;
                }
            }
        });
        assert_eq!(stat.await.unwrap().ephemeral_owner, session.0);
        let after = ensemble.member_of(session.0).expect("another server");
        assert_ne!(after.port(), before.port());
        client.set_data("/watched", b"new", None).await.unwrap();
        assert_eq!(soon("an event", watcher.changed()).await.event_type, EventType::NodeDataChanged);
    }

    /// Nobody is connected while there is no quorum, and a session that outlives it goes on.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_session_lives_through_the_loss_of_a_quorum() {
        let ensemble = Ensemble::start();
        let connector = Client::connector().with_session_timeout(LONG);
        let client = connector.connect(&ensemble.addresses()).await.unwrap();
        client.create("/mine", b"", &EPHEMERAL).await.unwrap();
        let mut states = client.state_watcher();
        ensemble[0].kill();
        ensemble[1].kill();
        reaches(&mut states, SessionState::Disconnected).await;
        ensemble[0].restart();
        ensemble.wait_until_ready();
        reaches(&mut states, SessionState::SyncConnected).await;
        let stat = soon("an answer", client.check_stat("/mine")).await.unwrap().unwrap();
        assert_eq!(stat.ephemeral_owner, client.session_id().0);
    }
}
