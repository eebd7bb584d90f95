//! ZooKeeper servers: one alone, or an ensemble.
//!
//! They run from the jars of Debian's package, which starts no service by itself. A tick is short, so that sessions may be
//! short too; nothing waits for a disk, yet a killed server finds its data again, as the kernel outlives it.
//!
//! # Layout
//!
//! - this file: a single server, how it is set up, and what can be seen of it.
//! - [`ensemble`]: three that vote.
//! - [`words`]: what a server says of itself, in its four letter words.
//! - [`jute`]: a tiny client, to look at nodes and to take over sessions.

pub mod ensemble;
pub mod jute;
pub mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use self::ensemble::Ensemble;
pub use self::jute::Jute;

use super::certificates::Certificates;
use super::network::{Link, RemoteHost};
use super::poll::until;
use super::port::Port;
use super::process::{Process, Program};

/// Where Debian's packages put jars.
const JARS: &str = "/usr/share/java";

/// The server, which names the other jars that it needs; two that it forgets, for TLS; and its log.
const CLASS_PATH: [&str; 5] =
    ["zookeeper.jar", "netty-codec.jar", "netty-resolver.jar", "slf4j-log4j12.jar", "log4j-1.2.jar"];

/// The user that the handle itself logs in as. It may do everything, whatever the rights of a node are.
const SUPER: (&str, &str) = ("super", "of-the-testkit");

/// The same as ZooKeeper wants it: `super:` and the hash of `super:of-the-testkit`.
const SUPER_DIGEST: &str = "super:FaxQaMf3U82tEiSPMN+UO74WPdY=";

/// How long the clock of sessions ticks. The shortest session is two of them.
const TICK: Duration = Duration::from_millis(200);

/// What every server has. All tests of a machine come from one address, so connections are not limited by it.
const BASE: &str = "\
dataDir={folder}/data
clientPortAddress=127.0.0.1
clientPort={port}
maxClientCnxns=0
maxSessionTimeout=60000
admin.enableServer=false
4lw.commands.whitelist=*
";

/// The log goes to standard output, which is the log of the process.
const LOG: &str = "\
log4j.rootLogger=INFO, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
";

/// Short starts matter more here than top speed, and small heaps more than both. The container check is what makes empty
/// containers vanish; by default it comes once a minute.
const JAVA: [&str; 10] = [
    "-Xmx128m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dlog4j.configuration=file:{folder}/log4j.properties",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=64",
    "-Dzookeeper.extendedTypesEnabled=true",
    "-Dznode.container.checkIntervalMs=500",
];

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct ZooKeeperOptions {
    lines: Vec<String>,
    java: Vec<String>,
    tick: Option<Duration>,
    users: Vec<(String, String)>,
    tls: Option<bool>,
    /// A member of an ensemble: its number, and the lines that name all members.
    member: Option<(usize, Vec<String>)>,
    /// Where it runs, if not here.
    host: Option<Arc<RemoteHost>>,
}

impl ZooKeeperOptions {
    /// No TLS, everybody may do everything, sessions of 400 ms to a minute.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of configuration, such as `maxSessionTimeout=5000`. It overrules an earlier one.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// An option of Java, such as `-Djute.maxbuffer=4096`. It overrules an earlier one.
    pub fn java(mut self, option: impl Into<String>) -> Self {
        self.java.push(option.into());
        self
    }

    /// How long a tick is: a session lasts at least two of them, and ends at the end of one.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = Some(tick);
        self
    }

    /// How often the server looks for empty containers.
    pub fn container_check(self, every: Duration) -> Self {
        self.java(format!("-Dznode.container.checkIntervalMs={}", every.as_millis()))
    }

    /// A user who can log in by SASL with DIGEST-MD5. Others are let in all the same, unless
    /// [`only_users`](Self::only_users) says otherwise.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.users.push((name.into(), password.into()));
        self
    }

    /// Nobody is let in who did not log in by SASL. That shuts out the handle too: it can only ask its four letter words.
    pub fn only_users(self) -> Self {
        self.line("sessionRequireClientSASLAuth=true")
    }

    /// It listens with TLS too, on a second port, with certificates made for it.
    pub fn tls(mut self) -> Self {
        self.tls = Some(false);
        self
    }

    /// The same, and whoever connects with TLS must show a certificate.
    pub fn tls_with_client_certificates(mut self) -> Self {
        self.tls = Some(true);
        self
    }

    /// The text of its configuration file.
    fn config(&self, tls: Option<&Tls>) -> String {
        let mut config = BASE.to_owned();
        let mut add = |line: String| config.extend([&line, "\n"]);
        add(format!("tickTime={}", self.tick.unwrap_or(TICK).as_millis()));
        if !self.users.is_empty() {
            add("authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider".to_owned());
        }
        if let Some(tls) = tls {
            add("serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned());
            add(format!("secureClientPort={}", tls.port.number()));
            add("secureClientPortAddress=127.0.0.1".to_owned());
            add("ssl.keyStore.location={folder}/server.pem".to_owned());
            add(format!("ssl.trustStore.location={}", tls.certificates.ca().display()));
            add(format!("ssl.clientAuth={}", if self.tls == Some(true) { "need" } else { "none" }));
        }
        if let Some((_, members)) = &self.member {
            members.iter().for_each(|line| add(line.clone()));
        }
        if self.host.is_some() {
            add(format!("clientPortAddress={}", Link::Clients.remote()));
        }
        self.lines.iter().for_each(|line| add(line.clone()));
        config
    }

    /// Who can log in by SASL, as Java reads it.
    fn users(&self) -> String {
        let users = self.users.iter().map(|(name, password)| format!(" user_{name}=\"{password}\""));
        let users: String = users.collect();
        format!("Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required{users}; }};\n")
    }

    fn files(&self, tls: Option<&Tls>) -> Vec<(&'static str, String)> {
        let mut files = vec![("zoo.cfg", self.config(tls)), ("log4j.properties", LOG.to_owned())];
        if !self.users.is_empty() {
            files.push(("jaas.conf", self.users()));
        }
        if let Some(tls) = tls {
            files.push(("server.pem", tls.key_and_certificate()));
        }
        if let Some((number, _)) = &self.member {
            files.push(("data/myid", number.to_string()));
        }
        files
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = JAVA.map(str::to_owned).into();
        arguments.push(format!("-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"));
        if !self.users.is_empty() {
            arguments.push("-Djava.security.auth.login.config={folder}/jaas.conf".to_owned());
        }
        arguments.extend(self.java.iter().cloned());
        let jars: Vec<String> = CLASS_PATH.iter().map(|jar| format!("{JARS}/{jar}")).collect();
        arguments.extend(["-cp".to_owned(), jars.join(":")]);
        arguments.push("org.apache.zookeeper.server.quorum.QuorumPeerMain".to_owned());
        arguments.push("{folder}/zoo.cfg".to_owned());
        arguments
    }
}

struct Tls {
    port: Port,
    certificates: Certificates,
}

impl Tls {
    /// ZooKeeper wants both in one file.
    fn key_and_certificate(&self) -> String {
        let read = |path: &Path| std::fs::read_to_string(path).expect("a certificate");
        read(&self.certificates.server_key()) + &read(&self.certificates.server())
    }
}

/// A running ZooKeeper server. Its [`Process`] has the methods to kill, pause and restart it.
pub struct ZooKeeper {
    process: Process,
    tls: Option<Tls>,
}

impl Deref for ZooKeeper {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl ZooKeeper {
    /// Starts a server and waits until it serves. A member of an ensemble needn't serve yet: it may wait for the others.
    pub fn start(options: ZooKeeperOptions) -> ZooKeeper {
        let installed = Path::new(JARS).join(CLASS_PATH[0]).is_file();
        assert!(installed, "ZooKeeper is not installed. Please run: apt-get install libzookeeper-java");
        let tls = options.tls.map(|_| Tls { port: Port::reserve(), certificates: Certificates::make() });
        let alone = options.member.is_none();
        let program = Program {
            name: "java",
            package: "default-jre-headless",
            args: options.arguments(),
            files: options.files(tls.as_ref()),
            ready: Box::new(move |address| match words::ask(address, "srvr") {
                Ok(said) if !alone || words::mode(&said).is_some() => Ok(()),
                other => Err(format!("it answers `srvr` with {other:?}")),
            }),
        };
        ZooKeeper { process: Process::start_on(options.host, program), tls }
    }

    /// `zookeeper://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// Where a server with [`tls`](ZooKeeperOptions::tls) listens with it.
    pub fn tls_address(&self) -> SocketAddr {
        self.tls.as_ref().expect("a server with TLS").port.address()
    }

    /// The certificates of a server with [`tls`](ZooKeeperOptions::tls).
    pub fn certificates(&self) -> &Certificates {
        &self.tls.as_ref().expect("a server with TLS").certificates
    }

    /// The answer to a four letter word, such as `srvr`, `mntr`, `dump`, `cons`, `wchp`.
    pub fn word(&self, word: &str) -> io::Result<String> {
        words::ask(self.address(), word)
    }

    /// The same for what a test expects to work. Panics if it doesn't.
    fn told(&self, word: &str) -> String {
        self.word(word).unwrap_or_else(|e| panic!("{word}: {e}; log of the server:\n{}", self.log_tail()))
    }

    /// `standalone`, `leader` or `follower`; none while it doesn't serve.
    pub fn mode(&self) -> Option<String> {
        words::mode(&self.word("srvr").ok()?).map(str::to_owned)
    }

    /// One figure of `mntr`, such as `zk_watch_count`. Panics if there is none of that name.
    pub fn figure(&self, name: &str) -> u64 {
        let all = self.told("mntr");
        words::figure(&all, name).unwrap_or_else(|| panic!("no {name} in:\n{all}"))
    }

    /// How many watches are set at this server, of all kinds.
    pub fn watch_count(&self) -> u64 {
        self.figure("zk_watch_count")
    }

    /// The paths whose data or existence is watched at this server, and by which sessions. Watches on children are only
    /// in the [`watch_count`](Self::watch_count).
    pub fn watches(&self) -> BTreeMap<String, BTreeSet<i64>> {
        words::watches(&self.told("wchp"))
    }

    /// The ephemeral nodes, by the session that owns them.
    pub fn ephemerals(&self) -> BTreeMap<i64, BTreeSet<String>> {
        words::ephemerals(&self.told("dump"))
    }

    /// The sessions that are connected to this server now.
    pub fn connected_sessions(&self) -> BTreeSet<i64> {
        words::connected(&self.told("cons"))
    }

    /// How many sessions live, connected or not.
    pub fn session_count(&self) -> u64 {
        self.figure("zk_global_sessions")
    }

    /// A connection of one's own with a new session, logged in as the super user.
    pub fn connect(&self) -> io::Result<Jute> {
        let mut jute = Jute::connect(self.address(), Duration::from_secs(10))?;
        jute.log_in("digest", &format!("{}:{}", SUPER.0, SUPER.1))?;
        Ok(jute)
    }

    /// All nodes but those of ZooKeeper itself, with their whole paths, sorted.
    pub fn nodes(&self) -> Vec<String> {
        self.try_nodes().unwrap_or_else(|e| panic!("{e}; log of the server:\n{}", self.log_tail()))
    }

    /// The same for one who waits while servers come and go.
    pub fn try_nodes(&self) -> io::Result<Vec<String>> {
        let mut jute = self.connect()?;
        // A follower may be behind.
        jute.sync("/")?;
        let mut found = Vec::new();
        let mut open = vec![String::new()];
        while let Some(parent) = open.pop() {
            let at = if parent.is_empty() { "/" } else { &parent };
            // It may go while we look.
            for child in jute.children(at)?.unwrap_or_default() {
                open.push(format!("{parent}/{child}"));
            }
            found.push(parent);
        }
        found.retain(|path| !path.is_empty() && path != "/zookeeper" && !path.starts_with("/zookeeper/"));
        found.sort();
        jute.close()?;
        Ok(found)
    }

    /// Ends a session, as if its client had closed it: its ephemeral nodes go, and its client is told that it is expired.
    /// The client is disconnected for a moment before.
    pub fn end_session(&self, session: i64) {
        until("the session is ended", || {
            let mut taken = match Jute::resume(self.address(), session) {
                Ok(taken) => taken,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(e),
            };
            // Its client may come back at once and take it from us; then we try again.
            let _ = taken.close();
            Err(io::Error::other("not gone yet"))
        });
    }

    /// Waits until no node is left but those named, no watch, and no ephemeral. Containers take until the next check.
    pub fn wait_until_clean(&self, but: &[&str]) {
        until("no node and no watch is left", || {
            let mut nodes = self.try_nodes().map_err(|e| e.to_string())?;
            nodes.retain(|path| !but.contains(&path.as_str()));
            let watches = self.watch_count();
            if nodes.is_empty() && watches == 0 {
                return Ok(());
            }
            Err(format!("{watches} watches ({:?}), nodes {nodes:?}", self.watches()))
        });
    }
}
