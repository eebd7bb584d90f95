//! Bad input: one clear line (kind, what, what to do) and the right exit code.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::house::House;

#[test]
fn an_unknown_scheme_is_bad_usage() {
    let house = House::new();
    house.run(["--store", "carrier-pigeon:coop", "run", "x", "--", "true"]).expect(64).says(&["file"]);
    house.run(["--store", "no scheme at all", "ls"]).expect(64).says(&["scheme"]);
}

#[test]
fn a_folder_that_is_a_file_is_a_clear_error() {
    let house = House::new();
    house.touch("plain");
    let store = format!("file:{}", house.path("plain").display());
    let done = house.run(["--store", &store, "run", "x", "--", "true"]).says(&["plain"]);
    assert!([64, 69, 77].contains(&done.code()), "{done:?}");
}

#[test]
fn a_name_has_1_to_1024_bytes() {
    let house = House::new();
    house.run(["run", "", "--", "true"]).expect(64).says(&["invalid", "empty", "1 to 1024 bytes"]);
    let long = "x".repeat(1025);
    house.run(["run", &long, "--", "true"]).expect(64).says(&["1025 bytes", "1 to 1024 bytes"]);
    house.run(["run", "ok", "--also", "", "--", "true"]).expect(64).says(&["empty"]);
    house.run(["show", ""]).expect(64).says(&["empty"]);
    house.run(["release", "", "--force", "--yes"]).expect(64).says(&["empty"]);
    house.run(["run", &"x".repeat(1024), "--", "true"]).expect(0);
}

#[test]
fn a_name_that_is_not_utf8_is_bad_usage() {
    let house = House::new();
    let bad = OsStr::from_bytes(b"caf\xe9");
    house.run([OsStr::new("run"), bad, OsStr::new("--"), OsStr::new("true")]).expect(64).says(&["UTF-8"]);
}

#[test]
fn permits_are_at_least_one_and_at_most_the_limit() {
    let house = House::new();
    let ask = |n, of| house.run(["run", "x", "--permits", n, "--of", of, "--", "true"]);
    ask("0", "3").expect(64).says(&["invalid", "0 permits", "at least 1"]);
    ask("4", "3").expect(64).says(&["4 permits", "only 3", "fewer"]);
    ask("1", "0").expect(64).says(&["limit of 0", "at least 1"]);
    ask("-1", "3").expect(64);
    ask("3", "3").expect(0);
    house.run(["run", "x", "--permits", "1", "--", "true"]).expect(64).says(&["--of"]);
    house
        .run(["run", "x", "--shared", "--permits", "1", "--of", "2", "--", "true"])
        .expect(64)
        .says(&["--shared"]);
}

#[test]
fn mixed_limits_are_refused_clearly() {
    let house = House::new();
    let _holder = house.hold(&["x", "--permits", "1", "--of", "3"], "done");
    house.run(["run", "x", "--permits", "1", "--of", "4", "--", "true"]).expect(64).says(&[
        "mismatch",
        "limit of 3",
        "4",
    ]);
}

#[test]
fn a_lease_that_the_store_can_not_keep_is_bad_usage() {
    let house = House::new();
    house.run(["run", "x", "--lease", "0", "--", "true"]).expect(64).says(&["invalid", "lease"]);
    house.run(["run", "x", "--lease", "1us", "--", "true"]).expect(64).says(&["invalid", "lease"]);
    house.run(["run", "x", "--lease", "1000 years", "--", "true"]).expect(64).says(&["invalid", "lease"]);
}

#[test]
fn times_that_contradict_each_other_are_bad_usage() {
    let house = House::new();
    let run = |options: &[&str]| {
        let mut args = vec!["run", "x"];
        args.extend(options);
        args.extend(["--", "true"]);
        house.run(args).expect(64)
    };
    run(&["--try", "--wait", "1s"]).says(&["--try", "--wait"]);
    run(&["--lease", "2s", "--grace", "2s"]).says(&["--grace", "--lease"]);
    run(&["--lease", "2s", "--min-hold", "3s"]).says(&["--min-hold"]);
    run(&["--min-hold", "2s", "--max-hold", "1s"]).says(&["--max-hold", "--min-hold"]);
    run(&["--max-hold", "0"]).says(&["--max-hold"]);
    run(&["--wait", "soon"]).says(&["soon", "30s"]);
    run(&["--also", "y", "--also", "y"]).says(&["\"y\"", "twice"]);
    run(&["--also", "x"]).says(&["\"x\"", "twice"]);
}

#[test]
fn arguments_that_are_not_understood_are_one_line_and_64() {
    let house = House::new();
    house.run(["run", "x", "--", "true", "--not-ours"]).expect(0);
    house
        .run(["run", "x", "--wiat", "1s", "--", "true"])
        .expect(64)
        .says(&["--wiat", "leasehold run --help"]);
    house.run(["run", "x"]).expect(64).says(&["CMD"]);
    house.run(["run", "x", "--order", "random", "--", "true"]).expect(64).says(&["random", "queue"]);
    house.run(["lock", "x"]).expect(64).says(&["lock", "leasehold --help"]);
    house.run(["--format", "yaml", "ls"]).expect(64).says(&["yaml", "json"]);
    house.run::<&str>([]).expect(64).says(&["subcommand", "run, ls", "leasehold --help"]);
}

#[test]
fn errors_are_json_if_json_was_asked_for() {
    let house = House::new();
    for args in [&["--format", "json", "show", ""][..], &["--format=json", "run", "x", "--wiat"]] {
        let done = house.run(args).expect(64);
        let error: serde_json::Value =
            serde_json::from_str(&done.stderr).unwrap_or_else(|e| panic!("{e}: {done:?}"));
        for field in ["kind", "what", "advice"] {
            assert!(error["error"][field].is_string(), "{field}: {error}");
        }
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let house = House::new();
    assert!(house.run(["--help"]).expect(0).stdout.contains("Exit codes"));
    assert!(house.run(["run", "--help"]).expect(0).stdout.contains("LEASEHOLD_TOKEN"));
    assert!(house.run(["--version"]).expect(0).stdout.starts_with("leasehold "));
}

#[test]
fn the_password_of_a_store_is_not_printed() {
    let house = House::new();
    let done = house.run(["--store", "nosuch://bob:sesame@host/0", "ls"]).expect(64);
    assert!(!format!("{done:?}").contains("sesame"), "{done:?}");
    let mut help = house.leasehold(["--help"]);
    let help = help.env("LEASEHOLD_STORE", "nosuch://bob:sesame@host").output().expect("it runs");
    assert!(!String::from_utf8_lossy(&help.stdout).contains("sesame"));
}
