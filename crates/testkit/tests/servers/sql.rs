//! PostgreSQL, PgBouncer and MariaDB.

use leasehold_testkit::servers::{MariaDb, MariaDbOptions, PgBouncer, Postgres, PostgresOptions, until};

#[test]
fn a_killed_postgres_finds_its_data_again() {
    let server = Postgres::start(PostgresOptions::new());
    server.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (7)");
    server.restart();
    assert_eq!(server.sql("SELECT n FROM t"), "7");
    assert!(server.try_sql("SELECT nothing").unwrap_err().contains("nothing"));
    server.pause();
    server.resume();
    assert_eq!(server.sql("SELECT n FROM t"), "7");
    server.restart_empty();
    assert!(server.try_sql("SELECT n FROM t").is_err());
}

#[test]
fn a_pooler_lends_a_connection_for_a_transaction() {
    let server = Postgres::start(PostgresOptions::new());
    let pooler = PgBouncer::start(server.address(), 2);
    assert!(pooler.url().ends_with(&format!(":{}/postgres", pooler.port())));
    let seen = server
        .sql("SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid()");
    assert_eq!(seen, "1", "the connection that the pooler keeps");
    assert_eq!(server.kill_backends(), 1);
    pooler.restart();
}

#[test]
fn a_killed_mariadb_finds_its_data_again() {
    let server = MariaDb::start(MariaDbOptions::new());
    server.sql("CREATE TABLE locks.t (n int) ENGINE=InnoDB; INSERT INTO locks.t VALUES (7)");
    server.restart();
    assert_eq!(server.sql("SELECT n FROM locks.t"), "7");
    assert!(server.try_sql("SELECT nothing").unwrap_err().contains("nothing"));
    until("nobody else is connected", || match server.kill_backends() {
        0 => Ok(()),
        others => Err(others),
    });
}
