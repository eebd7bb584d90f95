//! A `leasehold run` inside a `leasehold run`: it finds the store of the outer one, login included.

use std::path::Path;
use std::sync::LazyLock;

use leasehold_testkit::servers::{Redis, RedisOptions};

use crate::house::{House, Running};

const PASSWORD: &str = "s3cret/=&?@";

static SERVER: LazyLock<Redis> = LazyLock::new(|| Redis::start(RedisOptions::new().password(PASSWORD)));

/// Runs a shell under the lock `outer`, in which `leasehold` can be called.
fn outer(house: &House, store: &str, by_variable: bool, script: &str) -> crate::house::Done {
    outer_in(&house.path(""), house, store, by_variable, script)
}

/// The same in another folder than the house's.
fn outer_in(
    folder: &Path,
    house: &House,
    store: &str,
    by_variable: bool,
    script: &str,
) -> crate::house::Done {
    let script = script.replace("LEASEHOLD ", concat!(env!("CARGO_BIN_EXE_leasehold"), " "));
    let mut command = house.leasehold::<&str>([]);
    command.current_dir(folder);
    if by_variable {
        command.env("LEASEHOLD_STORE", store);
    } else {
        command.env_remove("LEASEHOLD_STORE").args(["--store", store]);
    }
    command.args(["run", "outer", "--", "sh", "-c", &script]);
    Running::of(command.spawn().expect("it starts")).done()
}

#[test]
fn an_inner_run_has_the_password_of_the_outer_one() {
    let house = House::new();
    let encoded = "s3cret%2F%3D%26%3F%40";
    let store = format!("redis://:{encoded}@{}?timeout=2s", SERVER.address());
    for by_variable in [true, false] {
        let script = "LEASEHOLD run inner -- sh -c 'echo $LEASEHOLD_NAME'; LEASEHOLD show outer";
        let done = outer(&house, &store, by_variable, script).expect(0);
        assert!(done.stdout.starts_with("inner\nouter: held by 1"), "{done:?}");
        assert_eq!(done.stderr, "");
        let told = outer(&house, &store, by_variable, "echo $LEASEHOLD_STORE").expect(0).stdout;
        assert_eq!(told, format!("{store}\n"));
    }
}

#[test]
fn an_inner_run_has_the_password_file_of_the_outer_one_wherever_it_is_started() {
    let house = House::new();
    std::fs::write(house.path("a & b"), format!("{PASSWORD}\n")).expect("a file can be written");
    for path in ["a %26 b", "./a%20%26%20b", &house.path("a %26 b").display().to_string()] {
        let store = format!("redis://{}?password-file={path}&timeout=2s", SERVER.address());
        let script = "cd /; LEASEHOLD run inner -- sh -c 'cd /tmp; LEASEHOLD run innermost -- echo mine'";
        for by_variable in [true, false] {
            let done = outer(&house, &store, by_variable, script).expect(0);
            assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("mine\n", ""));
        }
    }
}

#[test]
fn an_inner_run_has_the_password_file_of_a_folder_with_any_name() {
    let house = House::new();
    let folder = house.path("a@b %3F?c #&=:d");
    std::fs::create_dir(&folder).expect("a folder can be made");
    std::fs::write(folder.join("pw"), format!("{PASSWORD}\n")).expect("a file can be written");
    let store = format!("redis://{}?password-file=pw&timeout=2s", SERVER.address());
    let script = "cd /; LEASEHOLD run inner -- sh -c 'cd /tmp; LEASEHOLD run innermost -- echo mine'";
    for by_variable in [true, false] {
        let done = outer_in(&folder, &house, &store, by_variable, script).expect(0);
        assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("mine\n", ""));
    }
}

#[test]
fn an_inner_run_has_the_files_of_a_folder_with_any_name() {
    for name in ["a?b", "a:b@c", "a?b@c", "%3F #&=:a@b?retention=1s"] {
        let house = House::new();
        let folder = house.path(name);
        std::fs::create_dir(&folder).expect("a folder can be made");
        let script = "cd /; LEASEHOLD run inner -- LEASEHOLD show outer";
        for by_variable in [true, false] {
            let done = outer_in(&folder, &house, "file:locks", by_variable, script).expect(0);
            assert!(done.stdout.starts_with("outer: held by 1"), "{done:?}");
            assert_eq!(done.stderr, "");
        }
    }
}

#[test]
fn an_inner_run_that_waits_for_any_lock_of_the_outer_one_is_warned() {
    let house = House::new();
    let inner = concat!(env!("CARGO_BIN_EXE_leasehold"), " run c --also b --wait 1s -- true");
    let done = house.run(["run", "a", "--also", "b", "--", "sh", "-c", inner]).expect(75);
    assert!(done.stderr.starts_with("leasehold: warning: deadlock: "), "{done:?}");
    assert!(done.stderr.contains("\"b\""), "{done:?}");
}

#[test]
fn an_inner_run_that_waits_for_the_outer_one_is_warned() {
    let house = House::new();
    let store = format!("redis://:s3cret%2F%3D%26%3F%40@{}", SERVER.address());
    let done = outer(&house, &store, false, "LEASEHOLD run outer --wait 1s -- true").expect(75);
    assert!(done.stderr.starts_with("leasehold: warning: deadlock: "), "{done:?}");
    assert!(!done.stderr.contains("s3cret"), "{done:?}");
}
