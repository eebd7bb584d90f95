//! A single MariaDB server.

use std::net::SocketAddr;
use std::ops::Deref;
use std::process::Command;

use super::certificates::Certificates;
use super::poll::until;
use super::process::{Process, Program};
use super::spawn;
use super::unprivileged::{preamble, run};

/// Nothing waits for a disk, yet a killed server finds its data again, as the kernel outlives it. Its temporary files are its own: a
/// server that starts removes those of all others in the same folder.
const BASE: &str = "\
[mariadbd]
datadir={folder}/data/db
tmpdir={folder}/data
socket={folder}/data/mariadb.sock
pid-file={folder}/data/mariadb.pid
bind-address=127.0.0.1
port={port}
skip-name-resolve
max-connections=400
innodb-buffer-pool-size=64M
innodb-log-file-size=8M
innodb-flush-log-at-trx-commit=2
innodb-flush-method=nosync
innodb-doublewrite=0
performance-schema=off
";

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct MariaDbOptions {
    lines: Vec<String>,
    tls: bool,
}

impl MariaDbOptions {
    /// Root is let in without a password, nothing waits for a disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of configuration, such as `read-only=1`. It overrules an earlier one.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Every commit is on disk before it is answered.
    pub fn durable(self) -> Self {
        self.line("innodb-flush-log-at-trx-commit=1")
            .line("innodb-flush-method=O_DIRECT")
            .line("innodb-doublewrite=1")
    }

    /// It speaks TLS too, on the same port, with certificates made for it.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// It can have a replica, or be one.
    fn with_log(self) -> Self {
        self.line("server-id={port}").line("log-bin=bin").line("log-slave-updates=1")
    }

    fn config(&self) -> String {
        let mut config = BASE.to_owned();
        if self.tls {
            config += "ssl-cert={folder}/data/server.pem\nssl-key={folder}/data/server.key\n";
        }
        self.lines.iter().for_each(|line| config.extend([line, "\n"]));
        config
    }
}

/// The first start makes the data; the program then becomes the server, under the same process id. The data is made by a server too, so
/// it needs a folder of its own for temporary files as well: servers that start at the same time remove each other's.
const SCRIPT: &str = "\
[ -d db ] || $as_user mariadb-install-db --no-defaults --datadir='{folder}/data/db' --tmpdir='{folder}/data' \
  --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve \
  --innodb-flush-method=nosync --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 \
  --innodb-log-file-size=8M
exec $as_user $(command -v mariadbd || echo /usr/sbin/mariadbd) --defaults-file='{folder}/my.cnf'
";

/// The server may not read what is ours, so it gets copies.
fn copies(certificates: &Certificates) -> String {
    let (cert, key) = (certificates.server(), certificates.server_key());
    format!(
        "cp '{}' '{{folder}}/data/server.pem'\ncp '{}' '{{folder}}/data/server.key'\n",
        cert.display(),
        key.display()
    )
}

/// A running MariaDB server: user `root`, no password, database `locks`.
pub struct MariaDb {
    process: Process,
    certificates: Option<Certificates>,
}

impl Deref for MariaDb {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl MariaDb {
    /// Starts a server and waits until it answers.
    pub fn start(options: MariaDbOptions) -> MariaDb {
        // A missing server is named here, and not by a script that fails.
        spawn::find("mariadb-install-db", "mariadb-server");
        let certificates = options.tls.then(Certificates::make);
        let script = certificates.as_ref().map(copies).unwrap_or_default() + &preamble("mysql") + SCRIPT;
        let process = Process::start(Program {
            name: "sh",
            package: "dash",
            args: vec!["{folder}/start.sh".to_owned()],
            files: vec![("start.sh", script), ("my.cnf", options.config())],
            ready: Box::new(|address| query(address, "SELECT 1").map(drop)),
        });
        let server = MariaDb { process, certificates };
        server.sql("CREATE DATABASE IF NOT EXISTS locks");
        server
    }

    /// Starts a primary and its replica. A commit is answered only when the replica has it too.
    pub fn start_with_replica() -> (MariaDb, MariaDb) {
        let primary = MariaDb::start(MariaDbOptions::new().with_log());
        let replica =
            MariaDbOptions::new().with_log().line("read-only=1").line("rpl-semi-sync-slave-enabled=1");
        let replica = MariaDb::start(replica);
        primary.sql("CREATE USER repl; GRANT REPLICATION SLAVE ON *.* TO repl");
        replica.sql(&format!(
            "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {}, master_user = 'repl', \
             master_use_gtid = slave_pos; START SLAVE",
            primary.port()
        ));
        primary.sql(
            "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC', rpl_semi_sync_master_timeout = 60000, \
             rpl_semi_sync_master_enabled = 1",
        );
        until("the replica is waited for", || {
            let clients = primary.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'");
            if clients.ends_with("\t1") { Ok(()) } else { Err(clients + &replica.log_tail()) }
        });
        (primary, replica)
    }

    /// Makes a replica the primary, when it has done all that it has heard of.
    pub fn promote(&self) {
        self.sql("STOP SLAVE IO_THREAD");
        until("all that was heard is done", || {
            let states =
                self.sql("SELECT state FROM information_schema.processlist WHERE user = 'system user'");
            let done = states.contains("Slave has read all relay log");
            if done { Ok(()) } else { Err(states) }
        });
        self.sql("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0");
    }

    /// `mysql://root@127.0.0.1:PORT/locks`
    pub fn url(&self) -> String {
        format!("mysql://root@{}/locks", self.address())
    }

    /// The certificates of a server with [`tls`](MariaDbOptions::tls).
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("a server with TLS")
    }

    /// Runs statements as root: the rows as lines, columns separated by tabs. Panics if they fail.
    pub fn sql(&self, statements: &str) -> String {
        self.try_sql(statements)
            .unwrap_or_else(|e| panic!("{statements}: {e}; log of the server:\n{}", self.log_tail()))
    }

    /// The same, for what may fail.
    pub fn try_sql(&self, statements: &str) -> Result<String, String> {
        query(self.address(), statements)
    }

    /// Ends all connections but the one that asks. Tells how many there were.
    pub fn kill_backends(&self) -> u32 {
        let ids = self.sql(
            "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user <> 'system user'",
        );
        // One may end by itself meanwhile.
        ids.lines().filter(|id| self.try_sql(&format!("KILL {id}")).is_ok()).count() as u32
    }
}

/// Runs statements with the program that comes with the server.
fn query(address: SocketAddr, statements: &str) -> Result<String, String> {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    run(Command::new(spawn::find("mariadb", "mariadb-client"))
        .args([
            "--no-defaults",
            "--protocol=tcp",
            "--skip-ssl",
            "-N",
            "-B",
            "-u",
            "root",
            "-h",
            &host,
            "-P",
            &port,
        ])
        .args(["--connect-timeout=5", "-e", statements]))
}
