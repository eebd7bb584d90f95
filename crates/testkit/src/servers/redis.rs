//! A single Redis server.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;

use super::certificates::Certificates;
use super::port::Port;
use super::process::{Process, Program};
use super::resp::{Connection, Reply};

/// The user that the handle itself logs in as when a test makes users of its own, and perhaps locks out the default one.
const KEEPER: (&str, &str) = ("testkit", "of-the-testkit");

/// What every server has. Nothing is persisted unless asked for, and a replica is served at once.
const BASE: &str = "\
bind 127.0.0.1
port {port}
dir {folder}/data
protected-mode no
daemonize no
save \"\"
enable-debug-command yes
repl-diskless-sync yes
repl-diskless-sync-delay 0
repl-ping-replica-period 1
";

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    lines: Vec<String>,
    password: Option<String>,
    users: Vec<String>,
    unix_socket: bool,
    tls: Option<bool>,
}

impl RedisOptions {
    /// No password, no TLS, nothing persisted.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of configuration, such as `maxmemory-policy noeviction`.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// The password of the default user.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// A user by its ACL rules, such as `ana on >secret ~lh:* +@all`. May be `default`.
    pub fn user(mut self, rules: impl Into<String>) -> Self {
        self.users.push(rules.into());
        self
    }

    /// It listens on a unix socket too.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
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

    /// Every write is on disk before it is answered, so [`restart`](Process::restart) finds everything again.
    pub fn append_only(self) -> Self {
        self.line("appendonly yes").line("appendfsync always")
    }

    /// How much memory it may use for data, such as `2mb`. More is refused.
    pub fn max_memory(self, size: &str) -> Self {
        self.line(format!("maxmemory {size}")).line("maxmemory-policy noeviction")
    }

    /// The servers of a set replicate each other, so each knows the password of all.
    pub(crate) fn in_a_set(self) -> Self {
        match self.password.clone() {
            Some(password) => self.line(format!("masterauth {password}")),
            None => self,
        }
    }

    /// The user and password that the handle logs in with.
    fn login(&self) -> Option<Vec<String>> {
        if !self.users.is_empty() {
            return Some(vec![KEEPER.0.to_owned(), KEEPER.1.to_owned()]);
        }
        self.password.clone().map(|password| vec![password])
    }

    /// The text of its configuration file.
    fn config(&self, tls: Option<&Tls>) -> String {
        let mut config = BASE.to_owned();
        let mut add = |line: String| config.extend([&line, "\n"]);
        if let Some(password) = &self.password {
            add(format!("requirepass {password}"));
        }
        if !self.users.is_empty() {
            add(format!("user {} on >{} ~* &* +@all", KEEPER.0, KEEPER.1));
        }
        self.users.iter().for_each(|rules| add(format!("user {rules}")));
        if self.unix_socket {
            add("unixsocket {folder}/redis.sock".to_owned());
        }
        if let Some(tls) = tls {
            add(format!("tls-port {}", tls.port.number()));
            add(format!("tls-ca-cert-file {}", tls.certificates.ca().display()));
            add(format!("tls-cert-file {}", tls.certificates.server().display()));
            add(format!("tls-key-file {}", tls.certificates.server_key().display()));
            add(format!("tls-auth-clients {}", if self.tls == Some(true) { "yes" } else { "optional" }));
        }
        self.lines.iter().for_each(|line| add(line.clone()));
        config
    }
}

struct Tls {
    port: Port,
    certificates: Certificates,
}

/// A running Redis server. Its [`Process`] has the methods to kill, pause and restart it.
pub struct Redis {
    process: Process,
    password: Option<String>,
    login: Option<Vec<String>>,
    tls: Option<Tls>,
}

impl Deref for Redis {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Redis {
    /// Starts a server and waits until it answers.
    pub fn start(options: RedisOptions) -> Redis {
        let tls = options.tls.map(|_| Tls { port: Port::reserve(), certificates: Certificates::make() });
        let login = options.login();
        let login_when_ready = login.clone();
        let process = Process::start(Program {
            name: "redis-server",
            package: "redis-server",
            args: vec!["{folder}/redis.conf".to_owned()],
            files: vec![("redis.conf", options.config(tls.as_ref()))],
            ready: Box::new(move |address| answers(address, login_when_ready.as_deref())),
        });
        Redis { process, password: options.password, login, tls }
    }

    /// `redis://127.0.0.1:PORT/`, with the password of the default user if there is one.
    pub fn url(&self) -> String {
        format!("redis://{}{}/", self.credentials(), self.address())
    }

    /// `rediss://127.0.0.1:PORT/` for a server with [`tls`](RedisOptions::tls).
    pub fn tls_url(&self) -> String {
        format!("rediss://{}{}/", self.credentials(), self.tls_address())
    }

    /// Where a server with [`tls`](RedisOptions::tls) listens with it.
    pub fn tls_address(&self) -> SocketAddr {
        self.tls.as_ref().expect("a server with TLS").port.address()
    }

    /// The certificates of a server with [`tls`](RedisOptions::tls).
    pub fn certificates(&self) -> &Certificates {
        &self.tls.as_ref().expect("a server with TLS").certificates
    }

    /// The socket of a server with a [`unix_socket`](RedisOptions::unix_socket).
    pub fn socket_path(&self) -> PathBuf {
        self.folder().join("redis.sock")
    }

    /// A connection of one's own, logged in: for transactions, subscriptions, `WAIT`, and
    /// what else is about more than one command.
    pub fn connect(&self) -> io::Result<Connection> {
        connect(self.address(), self.login.as_deref())
    }

    /// Sends one command over a connection of its own. An error that the server reports is an answer too.
    pub fn ask(&self, words: &[&str]) -> io::Result<Reply> {
        self.connect()?.ask(words)
    }

    /// Sends one command and gives its answer as `redis-cli` writes it. Panics if it fails.
    ///
    /// ```no_run
    /// use leasehold_testkit::servers::redis::{Redis, RedisOptions};
    ///
    /// let redis = Redis::start(RedisOptions::new());
    /// assert_eq!(redis.cli(&["DBSIZE"]), "0");
    /// ```
    pub fn cli(&self, words: &[&str]) -> String {
        match self.ask(words) {
            Ok(Reply::Error(what)) => panic!("{}: {what}", words.join(" ")),
            Ok(reply) => reply.to_string(),
            Err(e) => panic!("{}: {e}; log of the server:\n{}", words.join(" "), self.log_tail()),
        }
    }

    /// One field of `INFO`, such as `master_link_status`. Panics if the server has no such field.
    pub fn info(&self, field: &str) -> String {
        self.try_info(field).unwrap_or_else(|what| panic!("{what}; log of the server:\n{}", self.log_tail()))
    }

    /// The same for one who waits: a server that changes its role cuts its connections on the way.
    pub(crate) fn try_info(&self, field: &str) -> Result<String, String> {
        let all = self.ask(&["INFO", "everything"]).map_err(|e| e.to_string())?.to_string();
        field_of(&all, field).map(str::to_owned).ok_or_else(|| format!("no {field} in:\n{all}"))
    }

    /// How often a command was called since the start or the last `CONFIG RESETSTAT`.
    pub fn calls(&self, command: &str) -> u64 {
        let all = self.cli(&["INFO", "commandstats"]);
        let stats = field_of(&all, &format!("cmdstat_{}", command.to_lowercase()));
        let calls = stats.and_then(|stats| stats.strip_prefix("calls=")?.split(',').next()?.parse().ok());
        calls.unwrap_or(0)
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// What stands before the host in a url.
    pub(crate) fn credentials(&self) -> String {
        self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default()
    }
}

/// A field of an answer made of lines `field:value`.
pub(crate) fn field_of<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}

pub(crate) fn connect(address: SocketAddr, login: Option<&[String]>) -> io::Result<Connection> {
    let mut connection = Connection::tcp(address)?;
    if let Some(login) = login {
        let mut words = vec!["AUTH"];
        words.extend(login.iter().map(String::as_str));
        match connection.ask(&words)? {
            Reply::Error(what) => return Err(io::Error::other(what)),
            _ => return Ok(connection),
        }
    }
    Ok(connection)
}

/// Ready is a server that answers and has loaded its data.
pub(crate) fn answers(address: SocketAddr, login: Option<&[String]>) -> Result<(), String> {
    let reply = connect(address, login).and_then(|mut connection| connection.ask(&["PING"]));
    match reply {
        Ok(Reply::Status(pong)) if pong == "PONG" => Ok(()),
        other => Err(format!("it answers a PING with {other:?}")),
    }
}
