//! A single PostgreSQL server.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use super::certificates::Certificates;
use super::poll::until;
use super::process::{Process, Program};
use super::unprivileged::{children, preamble, run, signal_all, wait_until_gone};

/// Where Debian puts the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Nothing waits for a disk, yet a killed server finds its data again, as the kernel outlives it.
const BASE: &str = "\
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{folder}/data'
max_connections = 400
shared_buffers = 32MB
fsync = off
full_page_writes = off
log_line_prefix = '%m [%p] %a '
";

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    lines: Vec<String>,
    tls: bool,
}

impl PostgresOptions {
    /// Everybody is let in, nothing waits for a disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of configuration, such as `max_connections = 10`. It overrules an earlier one.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Every commit is on disk before it is answered.
    pub fn durable(self) -> Self {
        self.line("fsync = on").line("full_page_writes = on")
    }

    /// It speaks TLS too, on the same port, with certificates made for it.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    fn config(&self) -> String {
        let mut config = BASE.to_owned();
        if self.tls {
            config += "ssl = on\nssl_cert_file = '{folder}/data/server.pem'\nssl_key_file = '{folder}/data/server.key'\n";
        }
        self.lines.iter().for_each(|line| config.extend([line, "\n"]));
        config
    }

    /// The first start makes the data; the program then becomes the server, under the same process id.
    fn script(&self, bin: &str, fill: &str, certificates: Option<&Certificates>) -> String {
        let mut script = String::new();
        if let Some(made) = certificates {
            let (cert, key) = (made.server(), made.server_key());
            script += &format!("cp '{}' '{{folder}}/data/server.pem'\n", cert.display());
            script += &format!("cp '{}' '{{folder}}/data/server.key'\n", key.display());
            script += "chmod 600 '{folder}/data/server.key'\n";
        }
        script += &preamble("postgres");
        script += &format!(
            "[ -d db ] || $as_user '{bin}/'{fill}\n\
             cp '{{folder}}/postgresql.conf' db/postgresql.conf\n\
             exec $as_user '{bin}/postgres' -D '{{folder}}/data/db'\n"
        );
        script
    }
}

/// A running PostgreSQL server: user `postgres`, no password, database `postgres`.
pub struct Postgres {
    process: Process,
    bin: String,
    certificates: Option<Certificates>,
}

impl Deref for Postgres {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Postgres {
    /// Starts a server and waits until it answers.
    pub fn start(options: PostgresOptions) -> Postgres {
        Postgres::launch(options, "initdb -D db -U postgres --auth=trust --no-sync -E UTF8 --locale=C.UTF-8")
    }

    /// Starts a standby of a server: it has all data, gets all changes, and can only be read until it is [promoted](Postgres::promote).
    pub fn standby_of(primary: &Postgres, options: PostgresOptions) -> Postgres {
        let port = primary.port();
        let copy = format!("pg_basebackup -h 127.0.0.1 -p {port} -U postgres -D db -R -c fast --no-sync");
        Postgres::launch(options, &copy)
    }

    /// From now on a commit is answered only when the standby has it too. Waits until it is so.
    pub fn wait_for_standby(&self) {
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("SELECT pg_reload_conf()");
        until("the standby is waited for", || {
            let state = self.sql("SELECT string_agg(sync_state, ',') FROM pg_stat_replication");
            if state == "sync" { Ok(()) } else { Err(state) }
        });
    }

    /// Makes a standby the primary. Returns when it can be written.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t");
    }

    fn launch(options: PostgresOptions, fill: &str) -> Postgres {
        let bin = programs();
        let certificates = options.tls.then(Certificates::make);
        let ready_bin = bin.clone();
        let process = Process::start(Program {
            name: "sh",
            package: "dash",
            args: vec!["{folder}/start.sh".to_owned()],
            files: vec![
                ("start.sh", options.script(&bin, fill, certificates.as_ref())),
                ("postgresql.conf", options.config()),
            ],
            ready: Box::new(move |address| psql(&ready_bin, address, "postgres", "SELECT 1").map(drop)),
        });
        Postgres { process, bin, certificates }
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// The certificates of a server with [`tls`](PostgresOptions::tls).
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("a server with TLS")
    }

    /// Runs statements as the superuser: the rows as lines, columns separated by `|`. Panics if they fail.
    pub fn sql(&self, statements: &str) -> String {
        self.try_sql(statements)
            .unwrap_or_else(|e| panic!("{statements}: {e}; log of the server:\n{}", self.log_tail()))
    }

    /// The same, for what may fail.
    pub fn try_sql(&self, statements: &str) -> Result<String, String> {
        psql(&self.bin, self.address(), "postgres", statements)
    }

    /// Ends all connections but the one that asks. Tells how many there were.
    pub fn kill_backends(&self) -> u32 {
        let killed = self.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        );
        killed.parse().unwrap_or(0)
    }

    /// Kills it (SIGKILL): the server and all of its processes, as a crash of the machine does.
    pub fn kill(&self) {
        if !self.is_running() {
            return;
        }
        let backends = children(self.pid());
        self.process.kill();
        signal_all(&backends, Signal::KILL);
        wait_until_gone(&backends);
    }

    /// Starts it again with the data that it left on disk; kills it first if it runs.
    pub fn restart(&self) {
        self.kill();
        self.process.restart();
    }

    /// Stops the clock of the server and of all of its processes: connections stay open, and nothing is answered.
    pub fn pause(&self) {
        self.process.pause();
        signal_all(&children(self.pid()), Signal::STOP);
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        signal_all(&children(self.pid()), Signal::CONT);
        self.process.resume();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The folder with the programs of the newest version that is installed.
fn programs() -> String {
    let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").is_file())
        .max_by_key(number)
        .unwrap_or_else(|| panic!("PostgreSQL is not installed. Please run: apt-get install postgresql"));
    newest.join("bin").to_str().expect("a folder with a readable name").to_owned()
}

/// Runs statements with the program that comes with the server.
pub(crate) fn psql(bin: &str, address: SocketAddr, user: &str, statements: &str) -> Result<String, String> {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    run(Command::new(format!("{bin}/psql"))
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", &host, "-p", &port])
        .args(["-U", user, "-d", "postgres", "-c", statements])
        .env("PGCONNECT_TIMEOUT", "5"))
}

/// The same for others that speak PostgreSQL's protocol.
pub(crate) fn client() -> String {
    programs()
}
