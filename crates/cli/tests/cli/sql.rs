//! SQL stores: tables made by hand from what `schema` prints, and what `doctor` finds about real databases.

use std::sync::LazyLock;

use leasehold_testkit::servers::{MariaDb, MariaDbOptions, Postgres, PostgresOptions};
use leasehold_testkit::sql::{SqlServer, fresh_url};
use serde_json::Value;

use crate::house::{Done, House};

static POSTGRES: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(PostgresOptions::new().durable()));
static MARIADB: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::start(MariaDbOptions::new().durable()));

/// The grade of a check, as JSON has it.
#[track_caller]
fn grade(done: &Done, check: &str) -> String {
    let report = done.json();
    let findings = report["findings"].as_array().expect("an array");
    let found = findings.iter().find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no {check}: {report:#}"));
    found["grade"].as_str().expect("a grade").to_owned()
}

fn doctor(url: &str) -> Done {
    House::new().run(["--store", url, "--format", "json", "doctor"])
}

/// A user who may not create tables is told so, gets them from an administrator who was given what is printed, and locks.
fn tables_by_hand<S: SqlServer>(server: &S) {
    let (house, admin) = (House::new(), fresh_url(server));
    server.add_user("bob");
    let url = server.for_user(&admin, "bob");
    let run = |url: &str| house.run(["--store", url, "run", "orders", "--", "echo", "mine"]);
    run(&url).expect(77).says(&["refused", &format!("leasehold schema {}", S::SORT)]);
    let done = doctor(&url).expect(1);
    assert_eq!((grade(&done, "tables").as_str(), grade(&done, "locking").as_str()), ("note", "danger"));

    let printed = house.run(["--store", &admin, "schema", S::SORT]).expect(0);
    assert_eq!(printed.stderr, "");
    server.apply(&printed.stdout);
    // Once more does no harm.
    server.apply(&printed.stdout);
    server.allow("bob");
    assert_eq!(run(&format!("{url}&create=no")).expect(0).stdout, "mine\n");
    let done = doctor(&url).expect(0);
    for check in ["tables", "indexes", "rights", "writable", "wake-up"] {
        assert_eq!(grade(&done, check), "good", "{check}: {done:#?}");
    }
    assert_ne!(done.json()["worst"], Value::from("danger"));
    assert!(!done.stdout.contains("secret") && done.stderr.is_empty(), "{done:#?}");
}

#[test]
fn tables_of_postgres_can_be_made_by_hand() {
    tables_by_hand(&*POSTGRES);
}

#[test]
fn tables_of_mysql_can_be_made_by_hand() {
    tables_by_hand(&*MARIADB);
}

#[test]
fn the_prefix_of_the_store_is_the_one_that_is_printed() {
    let house = House::new();
    for (sort, url) in [
        ("postgres", "postgres://a@b/c?prefix=ours_&schema=s"),
        ("postgres", "postgresql://a@b/c?prefix=ours_"),
        ("mysql", "mysql://a@b/c?prefix=ours_"),
        ("mysql", "mariadb://a@b/c?prefix=ours_"),
    ] {
        let printed = house.run(["--store", url, "schema", sort]).expect(0).stdout;
        assert!(printed.contains("ours_locks") && !printed.contains("leasehold_"), "{printed}");
        // Another store's URL says nothing about this one.
        assert!(house.run(["schema", sort]).expect(0).stdout.contains("leasehold_locks"));
    }
    house.run(["schema", "oracle"]).expect(64);
}

#[test]
fn a_database_that_can_only_be_read_is_exit_code_1() {
    let url = fresh_url(&*POSTGRES);
    doctor(&url).expect(0);
    POSTGRES.add_reader("eve");
    let done = doctor(&POSTGRES.for_user(&url, "eve")).expect(1);
    assert_eq!(grade(&done, "writable"), "danger");
    let url = fresh_url(&*MARIADB);
    doctor(&url).expect(0);
    MARIADB.add_reader("eve");
    let done = doctor(&MARIADB.for_user(&url, "eve")).expect(1);
    assert_eq!(grade(&done, "rights"), "danger");
}

#[test]
fn a_database_that_is_not_there_is_the_usual_error() {
    for url in ["postgres://a:secret@127.0.0.1:1/c", "mysql://a:secret@127.0.0.1:1/c"] {
        let done = House::new().run(["--store", url, "doctor"]).expect(69);
        assert!(done.stdout.is_empty() && !done.stderr.contains("secret"), "{done:#?}");
    }
}
