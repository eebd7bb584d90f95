//! What a SQL server can be asked for, whatever its make.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::servers::{MariaDb, Postgres, until};

/// A running server with a superuser who needs no password.
pub trait SqlServer: Send + Sync + 'static {
    /// What stands before the names of tables for whoever is not in the database of the locks.
    const DATABASE: &'static str;

    /// The statement that tells a connection its own number.
    const OWN_ID: &'static str;

    /// Whether it knows `UPDATE … RETURNING` and `ON CONFLICT`.
    const RETURNING: bool;

    /// Its time: microseconds since 1970.
    const NOW: &'static str;

    /// How the sort of database is called by `leasehold schema`.
    const SORT: &'static str;

    /// Where the superuser finds the locks.
    fn url(&self) -> String;

    /// The address it answers on.
    fn address(&self) -> SocketAddr;

    /// Runs statements as the superuser: the rows as lines, columns separated by `|`. Panics if they fail.
    fn sql(&self, statements: &str) -> String;

    /// The same, for what may fail.
    fn try_sql(&self, statements: &str) -> Result<String, String>;

    /// Runs the statements that create tables, where the locks are.
    fn apply(&self, ddl: &str) {
        let database = Self::DATABASE.trim_end_matches('.');
        self.sql(&if database.is_empty() { ddl.to_owned() } else { format!("USE {database}; {ddl}") });
    }

    /// How many transactions of usual statements there were, or a few more.
    fn transactions(&self) -> u64;

    /// Ends the connection with this number.
    fn kill_backend(&self, id: &str);

    /// Ends all connections but the one that asks. Tells how many there were.
    fn kill_backends(&self) -> u32;

    /// Kills it, and starts it again with the data that it left on disk.
    fn restart(&self);

    /// Stops its clock.
    fn pause(&self);

    /// Lets it go on.
    fn resume(&self);

    /// Adds a user, with the password `secret`, who may use all tables that are there, and create none.
    fn add_user(&self, name: &str);

    /// Adds a user, with the password `secret`, who can only read.
    fn add_reader(&self, name: &str);

    /// Ends each statement of a user that has waited for a row for 200 ms.
    fn cut_short(&self, user: &str);

    /// Removes the index that keeps the order of those that wait.
    fn drop_line_index(&self, prefix: &str);

    /// Lets a user use all tables that are there.
    fn allow(&self, user: &str);

    /// Whom those trust who want to reach it encrypted.
    fn ca(&self) -> PathBuf;

    /// Lets a user in only over encrypted connections.
    fn insist_on_tls(&self, user: &str);

    /// Takes a right on all tables from a user.
    fn revoke(&self, right: &str, user: &str);

    /// The URL of the superuser, for another one.
    fn for_user(&self, url: &str, name: &str) -> String {
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let (_, place) = rest.split_once('@').expect("a user");
        format!("{scheme}://{name}:secret@{place}")
    }

    /// The same place, reached at another address.
    fn through(&self, url: &str, address: SocketAddr) -> String {
        url.replace(&self.address().to_string(), &address.to_string())
    }
}

impl SqlServer for Postgres {
    const DATABASE: &'static str = "";
    const OWN_ID: &'static str = "SELECT pg_backend_pid()";
    const RETURNING: bool = true;
    const SORT: &'static str = "postgres";
    const NOW: &'static str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

    fn url(&self) -> String {
        self.url()
    }

    fn address(&self) -> SocketAddr {
        (**self).address()
    }

    fn sql(&self, statements: &str) -> String {
        self.sql(statements)
    }

    fn try_sql(&self, statements: &str) -> Result<String, String> {
        self.try_sql(statements)
    }

    fn transactions(&self) -> u64 {
        self.sql("SELECT txid_current()").parse().expect("a number")
    }

    fn kill_backend(&self, id: &str) {
        self.sql(&format!("SELECT pg_terminate_backend({id})"));
    }

    fn kill_backends(&self) -> u32 {
        self.kill_backends()
    }

    fn restart(&self) {
        self.restart();
    }

    fn pause(&self) {
        self.pause();
    }

    fn resume(&self) {
        self.resume();
    }

    fn add_user(&self, name: &str) {
        self.sql(&format!(
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE {name} LOGIN PASSWORD 'secret'"
        ));
        self.allow(name);
    }

    fn add_reader(&self, name: &str) {
        self.sql(&format!(
            "CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'secret'; ALTER ROLE {name} SET default_transaction_read_only = on"
        ));
    }

    fn cut_short(&self, user: &str) {
        self.sql(&format!("ALTER ROLE {user} SET lock_timeout = '200ms'"));
    }

    fn drop_line_index(&self, prefix: &str) {
        self.sql(&format!("DROP INDEX {prefix}entries_line"));
    }

    fn revoke(&self, right: &str, user: &str) {
        self.sql(&format!("REVOKE {right} ON ALL TABLES IN SCHEMA public FROM {user}"));
    }

    fn allow(&self, user: &str) {
        self.sql(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {user}"));
    }

    fn ca(&self) -> PathBuf {
        self.certificates().ca()
    }

    fn insist_on_tls(&self, user: &str) {
        let rules = self.data().join("db/pg_hba.conf");
        let usual = std::fs::read_to_string(&rules).expect("the rules of the server");
        let first = format!("hostnossl all {user} 127.0.0.1/32 reject\n");
        std::fs::write(&rules, first + &usual).expect("other rules");
        self.sql("SELECT pg_reload_conf()");
        // It is read soon, and not at once.
        until("the rules are in force", || {
            let told = self.sql("SELECT count(*) FROM pg_hba_file_rules WHERE type = 'hostnossl'");
            if told == "1" { Ok(()) } else { Err(told) }
        });
    }
}

impl SqlServer for MariaDb {
    const DATABASE: &'static str = "locks.";
    const OWN_ID: &'static str = "SELECT CONNECTION_ID()";
    const RETURNING: bool = false;
    const SORT: &'static str = "mysql";
    const NOW: &'static str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

    fn url(&self) -> String {
        self.url()
    }

    fn address(&self) -> SocketAddr {
        (**self).address()
    }

    fn sql(&self, statements: &str) -> String {
        self.sql(statements).replace('\t', "|")
    }

    fn try_sql(&self, statements: &str) -> Result<String, String> {
        self.try_sql(statements).map(|rows| rows.replace('\t', "|"))
    }

    fn transactions(&self) -> u64 {
        let told = self.sql(
            "SELECT CAST(SUM(variable_value) AS INTEGER) FROM information_schema.global_status \
             WHERE variable_name IN ('COM_STMT_EXECUTE', 'COM_COMMIT')",
        );
        told.parse().expect("a number")
    }

    fn kill_backend(&self, id: &str) {
        self.sql(&format!("KILL {id}"));
    }

    fn kill_backends(&self) -> u32 {
        self.kill_backends()
    }

    fn restart(&self) {
        (**self).restart();
    }

    fn pause(&self) {
        (**self).pause();
    }

    fn resume(&self) {
        (**self).resume();
    }

    fn add_user(&self, name: &str) {
        self.sql(&format!("CREATE USER {name} IDENTIFIED BY 'secret'"));
        self.allow(name);
    }

    fn add_reader(&self, name: &str) {
        self.sql(&format!("CREATE USER {name} IDENTIFIED BY 'secret'; GRANT SELECT ON locks.* TO {name}"));
    }

    fn cut_short(&self, user: &str) {
        self.sql(&format!("ALTER USER {user} WITH MAX_STATEMENT_TIME 0.2"));
    }

    fn drop_line_index(&self, prefix: &str) {
        self.sql(&format!("ALTER TABLE {prefix}entries DROP KEY line"));
    }

    fn revoke(&self, right: &str, user: &str) {
        self.sql(&format!("REVOKE {right} ON locks.* FROM {user}"));
    }

    fn allow(&self, user: &str) {
        self.sql(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO {user}"));
    }

    fn ca(&self) -> PathBuf {
        self.certificates().ca()
    }

    fn insist_on_tls(&self, user: &str) {
        self.sql(&format!("ALTER USER {user} REQUIRE SSL"));
    }
}
