//! A password that is replaced while a client runs: the server gets the new one and cuts all connections, the file follows a
//! little later, and is empty in between. The client comes back by itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold::{Client, Guard, Retry, connect_with};
use leasehold_testkit::servers::resp::Connection;
use leasehold_testkit::servers::{
    Cluster, Independent, MariaDb, MariaDbOptions, Postgres, PostgresOptions, Redis, RedisOptions, Sentinels,
    ZooKeeper, ZooKeeperOptions,
};
use leasehold_testkit::wait::eventually;

use crate::log::Log;

/// The user of a Redis server, with the first password.
const ANA: &str = "ana on >one ~* &* +@all";

/// What makes the server know the second password only, and cuts its connections.
const ROTATE: [&[&str]; 2] =
    [&["ACL", "SETUSER", "ana", "resetpass", ">two"], &["CLIENT", "KILL", "USER", "ana"]];

struct PasswordFile(tempfile::TempDir);

impl PasswordFile {
    fn new() -> Self {
        let file = PasswordFile(tempfile::tempdir().expect("a folder"));
        file.write("one\n");
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("password")
    }

    /// As Kubernetes does it: the file is always whole.
    fn write(&self, text: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, text).and_then(|()| std::fs::rename(new, self.path())).expect("a written file");
    }
}

/// A client that holds a lock.
async fn holder(url: &str) -> (Client, Guard) {
    let options = Client::builder().retry_for(Duration::from_secs(2));
    let client = connect_with(options, url).await.unwrap_or_else(|e| panic!("{url}: {e}"));
    let guard = client.mutex("held").lock().await.expect("a lock");
    (client, guard)
}

/// The client comes back after `rotate`. The lock is still held if `keeps` says so.
async fn comes_back(url: &str, file: &PasswordFile, rotate: impl FnOnce() + Send, keeps: bool) {
    Log::of_this_process();
    let (client, guard) = holder(url).await;
    assert!(client.store_url().contains("password-file="), "{}", client.store_url());
    // Its claim is tried for as long as the rotation takes.
    let options = Client::builder().retry_for(Duration::from_secs(60));
    let second = connect_with(options, url).await.unwrap_or_else(|e| panic!("{url}: {e}"));
    let waiting = tokio::spawn({
        let mutex = second.mutex("held");
        async move { mutex.lock().await }
    });
    eventually("a second client waits", async || {
        let seen = client.inspect("held").await.map_err(|e| e.to_string())?;
        if seen.waiters.is_empty() { Err(format!("{seen:?}")) } else { Ok(()) }
    })
    .await;
    tokio::task::block_in_place(rotate);
    let log = Log::of_this_process();
    let failing = async |words: &str| {
        let is_said = |e: &leasehold::Error| e.to_string().contains(words) || log.text().contains(words);
        eventually(&format!("the client is refused: {words}"), async || {
            match client.inspect("other").await {
                Err(e) if is_said(&e) => {
                    assert_ne!(e.retry_advice(), Retry::Never, "it passes by itself: {e}");
                    Ok(())
                }
                seen => Err(format!("{seen:?}")),
            }
        })
        .await;
    };
    failing("").await;
    file.write("");
    failing(&shown(&file.path())).await;
    std::fs::remove_file(file.path()).expect("it was there");
    failing(&shown(&file.path())).await;
    file.write("two\n");
    eventually("the client comes back", async || {
        let guard = client.mutex("other").try_lock().await.map_err(|e| e.to_string())?;
        guard.ok_or_else(|| "busy".to_owned())?.release().await.map_err(|e| e.to_string())
    })
    .await;
    if keeps {
        assert!(guard.is_held(), "the lock is kept");
        guard.release().await.expect("a release");
        // The one that waited through all of it comes next, and is woken soon.
        let next = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it is woken");
        next.expect("no panic").expect("a lock").release().await.expect("a release");
    } else {
        waiting.abort();
    }
    second.close().await.expect("an end");
    client.close().await.expect("an end");
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn all(words: &[&[&str]], redis: &Redis) {
    words.iter().for_each(|words| drop(redis.ask(words).expect("an answer")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_reads_its_password_file_at_every_connection() {
    let (server, file) = (Redis::start(RedisOptions::new().user(ANA)), PasswordFile::new());
    let url = format!("redis://ana@{}?password-file={}", server.address(), shown(&file.path()));
    comes_back(&url, &file, || all(&ROTATE, &server), true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_master_have_password_files_of_their_own() {
    let (set, file) = (Sentinels::start_with(RedisOptions::new().user(ANA)), PasswordFile::new());
    let tell_sentinels = |words: &[&[&str]]| {
        for sentinel in set.sentinels() {
            let mut sentinel = Connection::tcp(sentinel.address()).expect("a connection");
            words.iter().for_each(|words| drop(sentinel.ask(words).expect("an answer")));
        }
    };
    tell_sentinels(&[&["ACL", "SETUSER", "ana", "on", ">one", "~*", "&*", "+@all"]]);
    let sentinels: Vec<String> = set.sentinels().iter().map(|one| one.address().to_string()).collect();
    let path = shown(&file.path());
    let url = format!(
        "redis+sentinel://ana@{}/{}?password-file={path}&sentinel-user=ana&sentinel-password-file={path}",
        sentinels.join(","),
        set.master_name(),
    );
    let rotate = || {
        tell_sentinels(&ROTATE);
        set.nodes().iter().for_each(|node| all(&ROTATE, node));
    };
    comes_back(&url, &file, rotate, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_reads_its_password_file_at_every_connection() {
    let (cluster, file) = (Cluster::start_with(3, 0, RedisOptions::new().user(ANA)), PasswordFile::new());
    let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    let path = shown(&file.path());
    let url = format!("redis+cluster://ana@{}?replicas=0&password-file={path}", nodes.join(","));
    let rotate = || cluster.nodes().iter().for_each(|node| all(&ROTATE, node));
    comes_back(&url, &file, rotate, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_reads_its_password_file_at_every_connection() {
    let (set, file) = (Independent::start_with(3, RedisOptions::new().user(ANA)), PasswordFile::new());
    let nodes: Vec<String> = set.servers().iter().map(|node| node.address().to_string()).collect();
    let url = format!("redlock://ana@{}?password-file={}", nodes.join(","), shown(&file.path()));
    let (client, guard) = holder(&url).await;
    set.servers().iter().for_each(|node| all(&ROTATE, node));
    file.write("two\n");
    eventually("the client comes back", async || {
        let guard = client.mutex("other").try_lock().await.map_err(|e| e.to_string())?;
        guard.ok_or_else(|| "busy".to_owned())?.release().await.map_err(|e| e.to_string())
    })
    .await;
    assert!(guard.is_held());
    client.close().await.expect("an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_reads_its_password_file_at_every_connection() {
    let (server, file) = (Postgres::start(PostgresOptions::new()), PasswordFile::new());
    server.sql("CREATE USER ana PASSWORD 'one'");
    server.sql("CREATE DATABASE locks OWNER ana");
    let rules = "host all postgres 127.0.0.1/32 trust\nhost all ana 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(server.sql("SHOW hba_file"), rules).expect("written rules");
    server.sql("SELECT pg_reload_conf()");
    let url = format!("postgres://ana@{}/locks?password-file={}", server.address(), shown(&file.path()));
    let rotate = || {
        server.sql("ALTER USER ana PASSWORD 'two'");
        server.kill_backends();
    };
    comes_back(&url, &file, rotate, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_reads_its_password_file_at_every_connection() {
    let (server, file) = (MariaDb::start(MariaDbOptions::new()), PasswordFile::new());
    server.sql("CREATE USER ana@'%' IDENTIFIED BY 'one'; GRANT ALL ON locks.* TO ana@'%'");
    let url = format!("mysql://ana@{}/locks?password-file={}", server.address(), shown(&file.path()));
    let rotate = || {
        server.sql("SET PASSWORD FOR ana@'%' = PASSWORD('two')");
        server.kill_backends();
    };
    comes_back(&url, &file, rotate, true).await;
}

/// A session of ZooKeeper keeps the password that it began with. One that is refused with it ends, and with it what it held; the
/// next has the new password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_reads_its_password_file_for_every_session() {
    let (server, file) =
        (ZooKeeper::start(ZooKeeperOptions::new().user("ana", "one").only_users()), PasswordFile::new());
    let url = format!(
        "zookeeper://ana@{}?auth=sasl&session=4s&password-file={}",
        server.address(),
        shown(&file.path())
    );
    let rotate = || {
        let users = server.folder().join("jaas.conf");
        let text = std::fs::read_to_string(&users).expect("users").replace("\"one\"", "\"two\"");
        std::fs::write(users, text).expect("written users");
        server.kill();
        server.restart();
    };
    comes_back(&url, &file, rotate, false).await;
}

/// What can't be read is not taken for an empty password, and a wrong path is said at once.
#[tokio::test]
async fn a_password_file_that_is_not_there_is_bad_input() {
    for url in [
        "redis://ana@127.0.0.1:1?password-file=/no/such/file",
        "redis+sentinel://127.0.0.1:1/m?sentinel-password-file=/no/such/file",
        "redlock://ana@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?password-file=/no/such/file",
        "postgres://ana@127.0.0.1:1/locks?password-file=/no/such/file",
        "mysql://ana@127.0.0.1:1/locks?password-file=/no/such/file",
        "zookeeper://ana@127.0.0.1:1?password-file=/no/such/file",
    ] {
        let error = leasehold::connect(url).await.expect_err(url);
        assert_eq!(error.kind(), leasehold::Kind::Invalid, "{error}");
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }
}

/// A FIFO that nobody writes to keeps no process past its patience.
#[test]
fn a_password_file_that_is_a_fifo_without_a_writer_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let store = format!("redis://ana@127.0.0.1:1?password-file={}", fifo.display());
    let program =
        ["60", env!("CARGO_BIN_EXE_leasehold"), "--store", &store, "run", "x", "--wait", "1s", "--", "true"];
    let output = Command::new("timeout").args(program).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.lines().count() == 1 && said.contains(&shown(&fifo)), "{said}");
}
