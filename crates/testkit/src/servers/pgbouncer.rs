//! A PgBouncer in front of a PostgreSQL server.

use std::net::SocketAddr;
use std::ops::Deref;

use super::postgres::{client, psql};
use super::process::{Process, Program};
use super::spawn;
use super::unprivileged::preamble;

/// A running PgBouncer in transaction mode: a connection has a server's connection only while a transaction runs.
pub struct PgBouncer {
    process: Process,
}

impl Deref for PgBouncer {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl PgBouncer {
    /// Starts one in front of the server at this address, with so many connections to it.
    pub fn start(server: SocketAddr, pool: usize) -> PgBouncer {
        // A missing program is named here, and not by a script that fails.
        let pgbouncer = spawn::find("pgbouncer", "pgbouncer");
        let bin = client();
        let config = format!(
            "[databases]\n\
             * = host={} port={} user=postgres\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {{port}}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             max_client_conn = 1000\n\
             default_pool_size = {pool}\n",
            server.ip(),
            server.port()
        );
        let script = preamble("postgres")
            + "cp '{folder}/pgbouncer.ini' .\n"
            + &format!("exec $as_user '{}' '{{folder}}/data/pgbouncer.ini'\n", pgbouncer.display());
        PgBouncer {
            process: Process::start(Program {
                name: "sh",
                package: "dash",
                args: vec!["{folder}/start.sh".to_owned()],
                files: vec![("start.sh", script), ("pgbouncer.ini", config)],
                ready: Box::new(move |address| psql(&bin, address, "postgres", "SELECT 1").map(drop)),
            }),
        }
    }

    /// `postgres://postgres@127.0.0.1:PORT/postgres`
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }
}
