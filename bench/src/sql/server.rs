//! A server of either kind.

use leasehold_testkit::servers::{MariaDb, MariaDbOptions, Postgres, PostgresOptions};

/// A running server.
pub(crate) enum Server {
    Mysql(MariaDb),
    Postgres(Postgres),
}

impl Server {
    /// MariaDB. Its commits wait for the disk, or not.
    pub(crate) fn mysql(durable: bool) -> Server {
        let options = MariaDbOptions::new();
        Server::Mysql(MariaDb::start(if durable { options.durable() } else { options }))
    }

    /// PostgreSQL. Its commits wait for the disk, or not.
    pub(crate) fn postgres(durable: bool) -> Server {
        let options = PostgresOptions::new();
        Server::Postgres(Postgres::start(if durable { options.durable() } else { options }))
    }

    /// What it is called in the report.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Server::Mysql(_) => "mysql",
            Server::Postgres(_) => "postgres",
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Server::Mysql(server) => server.url(),
            Server::Postgres(server) => server.url(),
        }
    }

    /// It does nothing by itself from now on that counts as a statement.
    pub(crate) fn rest(&self) {
        if let Server::Postgres(server) = self {
            server.sql("ALTER SYSTEM SET autovacuum = off");
            server.sql("SELECT pg_reload_conf()");
        }
    }

    /// How many statements it has run so far, the one that asks among them.
    pub(crate) fn statements(&self) -> u64 {
        let told = match self {
            Server::Mysql(server) => server.sql(
                "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Questions'",
            ),
            Server::Postgres(server) => server.sql(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()",
            ),
        };
        told.trim().parse().unwrap_or(0)
    }
}
