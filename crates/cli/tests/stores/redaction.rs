//! No part of a password is printed: not in an error, its Debug form or its causes, not in a log line or a span, not in the
//! URL that a store shows, not by the program. The URLs are random, and most are malformed.

use std::error::Error as _;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{Client, connect_with, open_store, redact};
use leasehold_testkit::servers::{
    MariaDb, MariaDbOptions, Postgres, PostgresOptions, Redis, RedisOptions, ZooKeeper, ZooKeeperOptions,
    until,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::log::Log;

/// A URL, and the pieces of the password in it.
#[derive(Debug, Clone)]
struct Given {
    url: String,
    pieces: Vec<String>,
}

impl Given {
    /// Fails if a piece of the password is in the text, whatever its case.
    #[track_caller]
    fn hides(&self, text: &str) {
        let text = text.to_lowercase();
        for piece in &self.pieces {
            let is_number = piece.starts_with(|c: char| c.is_ascii_digit());
            let mut numbers = text.split(|c: char| !c.is_ascii_digit());
            let shown = if is_number {
                numbers.any(|number| number == piece)
            } else {
                text.contains(&piece.to_lowercase())
            };
            assert!(!shown, "{piece} of {self:?} is in:\n{text}");
        }
    }
}

/// What can stand between the pieces of a password: all that means something in a URL, and in the URLs of our stores.
const BETWEEN: &[&str] = &[
    "",
    "?",
    "@",
    "/",
    "//",
    ":",
    "#",
    "%",
    "%4",
    "%40",
    "%3A",
    "%2C",
    "%zz",
    "&",
    "=",
    ",",
    ";",
    "+",
    " ",
    "\"",
    "'",
    "\\",
    "[",
    "]",
    "{",
    "}",
    "|",
    "^",
    "`",
    "~",
    "!",
    "$",
    "*",
    "(",
    ")",
    "<",
    ">",
    "é",
    "\u{7f}",
    "://",
    "@h:1/",
    "?x=",
    "&x=",
    "&timeout=",
    "&prefix=",
    "&pool=",
    "&acl=",
    "?timeout=",
    "@[",
    ":/",
    "/@",
    "?@",
    "#@",
    "@?",
    "&&",
    "?password=",
    "&password=",
];

/// A password in pieces. Letters that no message has, and numbers that a port could be.
fn password() -> impl Strategy<Value = (String, Vec<String>)> {
    let piece = prop_oneof!["Q[ZXJ]{3}[A-Z]{2}Q", "6[2-4][0-9]{2}[1-9]"];
    let between = proptest::sample::select(BETWEEN);
    let rest = proptest::collection::vec((between, piece.clone()), 0..4);
    let ends = (proptest::sample::select(BETWEEN), proptest::sample::select(BETWEEN));
    (piece, rest, ends).prop_map(|(first, rest, (before, after))| {
        let mut pieces = vec![first.clone()];
        let mut word = format!("{before}{first}");
        for (between, piece) in rest {
            word.extend([between, &piece]);
            pieces.push(piece);
        }
        (word + after, pieces)
    })
}

/// Where a password can be. `{}` is it.
const FORMS: &[&str] = &[
    "//u:{}@127.0.0.1:1",
    "//u:{}@127.0.0.1:1/0",
    "//u:{}@127.0.0.1:1/app",
    "//:{}@127.0.0.1:1/app",
    "//u:{}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/app",
    "//u:{}@127.0.0.1:1/app?timeout=100ms",
    "//u:{}@127.0.0.1:1/app?nonsense=1",
    "//u:{}@127.0.0.1:port/app",
    "//u:{}@",
    "//u:{}@/app",
    "//u:{}@h o s t/app",
    "//u:{}@[::1/app",
    "//u:{}@@127.0.0.1:1/app",
    "//u%:{}@127.0.0.1:1/app",
    "/u:{}@127.0.0.1:1/app",
    "u:{}@127.0.0.1:1/app",
    "//u@127.0.0.1:1/app?password={}",
    "//u@127.0.0.1:1/app?timeout=100ms&password={}",
    "//127.0.0.1:1/app?user=u&password={}&timeout=100ms",
    "//127.0.0.1:1/app?password={}&nonsense=1",
    "//u@127.0.0.1:1/app?pasword={}",
    "//u@127.0.0.1:1/m?sentinel-password={}",
    "//u:{}@127.0.0.1:1/app?password=x",
    "//u:{}@127.0.0.1:1/app?password-file=/nonexistent",
    "//{}@127.0.0.1:1/app",
    "//{}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/app",
    "//u%3A{}@127.0.0.1:1/app",
    "//u%3A{}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/app",
    "//u:x@127.0.0.1:1/app?{}",
    "//u@127.0.0.1:1/app?{}",
    "//u@127.0.0.1:1/app?{}=1",
    "//u:6379?{}%40h",
    "redis://u:1,{}:x@127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3",
    "redis://u:{}@127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3",
    "redis://u:{}@127.0.0.1:1",
];

const SCHEMES: &[&str] = &[
    "redis",
    "rediss",
    "unix",
    "redis+unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "redlock",
    "redlocks",
    "postgres",
    "postgresql",
    "mysql",
    "zookeeper",
    "zk",
    "zookeeper+tls",
    "memory",
    "file",
    "REDIS",
    "nosuch",
    "re dis",
    "",
];

fn given() -> impl Strategy<Value = Given> {
    let scheme = proptest::sample::select(SCHEMES);
    (scheme, proptest::sample::select(FORMS), password()).prop_map(|(scheme, form, (word, pieces))| {
        // Behind a question mark this is no part of a password any more, but a parameter that is right, and shown.
        let word =
            if form.contains("={}") || form.contains("?{}") { word.replace("&prefix=", "&x=") } else { word };
        // What stands before a colon is the user, who is shown.
        let word = if form.starts_with("//{}@") { word.replace(':', ";") } else { word };
        let url = format!("{scheme}:{}", form.replace("{}", &word));
        Given { url, pieces }
    })
}

/// An error as anybody could print it.
fn printed(error: &leasehold::Error) -> String {
    let mut text = format!("{error}\n{error:?}\n{error:#?}");
    let mut cause = error.source();
    while let Some(why) = cause {
        let _ = write!(text, "\n{why}\n{why:?}");
        cause = why.source();
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_part_of_a_password_is_in_what_is_said_of_a_url(given in given()) {
        given.hides(&redact(&given.url));
        // Nothing is connected by this.
        let opened = futures_util::FutureExt::now_or_never(open_store(&given.url)).expect("it is done at once");
        match opened {
            Ok(store) => given.hides(&store.url()),
            Err(error) => given.hides(&printed(&error)),
        }
        for sql in [leasehold::schema(&given.url).err(), leasehold::transaction_locks(&given.url).err()] {
            sql.iter().for_each(|error| given.hides(&printed(error)));
        }
    }
}

/// So many URLs that can be read, and some that can't.
fn some(count: usize) -> Vec<Given> {
    let mut runner = TestRunner::deterministic();
    let all = given();
    let mut drawn = std::iter::repeat_with(|| all.new_tree(&mut runner).expect("a URL").current());
    let can_be_read = |given: &Given| {
        futures_util::FutureExt::now_or_never(open_store(&given.url)).is_some_and(|opened| opened.is_ok())
    };
    let mut some: Vec<Given> = drawn.by_ref().filter(can_be_read).take(count).collect();
    some.extend(drawn.take(count / 4));
    some
}

#[tokio::test]
async fn no_part_of_a_password_is_in_the_error_of_a_connection_or_in_a_log() {
    let log = Log::of_this_process();
    let some = some(150);
    let connecting = some.iter().map(|given| async move {
        let options = Client::builder().label("test").retry_for(Duration::from_millis(1));
        let connecting = connect_with(options, &given.url);
        // What takes longer has logged what it had to.
        let Ok(connected) = tokio::time::timeout(Duration::from_secs(3), connecting).await else { return };
        match connected {
            Ok(client) => given.hides(&format!("{client:?} {}", client.store_url())),
            Err(error) => given.hides(&printed(&error)),
        }
    });
    futures_util::future::join_all(connecting).await;
    let logged = log.text();
    assert!(logged.contains("no connection"), "something is logged:\n{logged}");
    some.iter().for_each(|given| given.hides(&logged));
}

#[test]
fn the_program_prints_no_part_of_a_password() {
    let mut started = Vec::new();
    for given in some(8) {
        for (format, by_argument) in [("text", true), ("json", true), ("text", false)] {
            let mut program = Command::new("timeout");
            program.args(["60", env!("CARGO_BIN_EXE_leasehold"), "--format", format, "show", "x"]);
            program.env_remove("LEASEHOLD_STORE").env("RUST_BACKTRACE", "1");
            if by_argument {
                program.args(["--store", &given.url]);
            } else {
                program.env("LEASEHOLD_STORE", &given.url);
            }
            program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            started.push((given.clone(), program.spawn().expect("it starts")));
        }
    }
    for (given, program) in started {
        let output = program.wait_with_output().expect("its end");
        assert!(!output.status.success(), "nothing answers at {given:?}");
        given.hides(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    }
}

#[test]
fn a_url_where_none_belongs_is_not_printed_by_the_program() {
    let one = |url: &str| Given { url: url.to_owned(), pieces: vec!["QZXJ".into(), "QXXQ".into()] };
    let mut all = some(16);
    all.extend(
        [
            "redis://u:QZXJ@QXXQ?Q@127.0.0.1:1",
            "redis://h?password=QZXJ",
            "QZXJ:x@127.0.0.1:1",
            "redis://u:QZXJ\nQXXQ@127.0.0.1:1",
            "redis://u:QZXJ\n\nQXXQ@127.0.0.1:1",
        ]
        .map(one),
    );
    let mut started = Vec::new();
    for given in all {
        let with = |option: &str| format!("{option}{}", given.url);
        for args in [
            &[given.url.as_str(), "ls"][..],
            &["--stroe", &given.url, "ls"],
            &[&with("--stroe="), "ls"],
            &["--format", &given.url, "ls"],
            &[&with("--format="), "ls"],
            &["ls", "a", &given.url],
            &["run", "x", "--wait", &given.url, "--", "true"],
            &["run", "x", &with("-n"), "--", "true"],
            &["run", "x", &given.url, "--", "true"],
            &["completions", &given.url],
            &["man", &given.url],
            &["schema", &given.url],
        ] {
            let mut program = Command::new("timeout");
            program.args(["60", env!("CARGO_BIN_EXE_leasehold")]).args(args);
            program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            started.push((given.clone(), args, program.spawn().expect("it starts")));
        }
        for (given, args, program) in started.drain(..) {
            let output = program.wait_with_output().expect("its end");
            assert!(!output.status.success(), "{args:?}");
            given.hides(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
        }
    }
}

#[test]
fn a_url_that_is_not_text_is_not_printed_by_the_program() {
    let pieces = vec!["QZXJ".to_owned(), "QXXQ".to_owned()];
    let given = Given { url: "redis://u:QZXJ\\xffQXXQ@h".to_owned(), pieces };
    let mut started = Vec::new();
    for url in
        [&b"redis://u:QZXJ\xffQXXQ@h"[..], b"redis://h?password=QZXJ'\xc3\"QXXQ", b"QZXJ:\xe2\x82QXXQ@h"]
    {
        let not_text = |option: &str| OsString::from_vec([option.as_bytes(), url].concat());
        for format in ["text", "json"] {
            for args in [
                vec![not_text("")],
                vec!["ls".into(), "a".into(), not_text("")],
                vec!["show".into(), not_text("")],
                vec!["run".into(), "x".into(), not_text(""), "--".into(), "true".into()],
                vec!["run".into(), "x".into(), not_text("-n"), "--".into(), "true".into()],
                vec!["run".into(), "x".into(), "--wait".into(), not_text(""), "--".into(), "true".into()],
                vec![not_text("--format="), "ls".into()],
                vec![not_text("--stroe="), "ls".into()],
                vec![not_text("--store="), "ls".into()],
                vec!["completions".into(), not_text("")],
                vec!["man".into(), not_text("")],
                vec!["schema".into(), not_text("")],
            ] {
                let mut program = Command::new("timeout");
                program.args(["60", env!("CARGO_BIN_EXE_leasehold"), "--format", format]).args(&args);
                program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                started.push((args, program.spawn().expect("it starts")));
            }
        }
        for (args, program) in started.drain(..) {
            let output = program.wait_with_output().expect("its end");
            assert_eq!(output.status.code(), Some(64), "{args:?}: {output:?}");
            given.hides(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
        }
    }
}

/// What the crates log that speak to the servers, too, at every level.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_a_login_that_succeeds_has_no_password() {
    let given = Given { url: String::new(), pieces: vec!["QZXJAAQ".to_owned()] };
    let (postgres, mysql, zookeeper) = tokio::task::block_in_place(|| {
        let postgres = Postgres::start(PostgresOptions::new());
        postgres.sql("CREATE USER ana PASSWORD 'QZXJAAQ'");
        postgres.sql("CREATE DATABASE locks OWNER ana");
        let rules = "host all postgres 127.0.0.1/32 trust\nhost all ana 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(postgres.sql("SHOW hba_file"), rules).expect("written rules");
        postgres.sql("SELECT pg_reload_conf()");
        let mysql = MariaDb::start(MariaDbOptions::new());
        mysql.sql("CREATE USER ana@'%' IDENTIFIED BY 'QZXJAAQ'; GRANT ALL ON locks.* TO ana@'%'");
        let zookeeper = ZooKeeper::start(ZooKeeperOptions::new().user("ana", "QZXJAAQ").only_users());
        (postgres, mysql, zookeeper)
    });
    let log = Log::of_this_process();
    for url in [
        format!("postgres://ana:QZXJAAQ@{}/locks", postgres.address()),
        format!("mysql://ana:QZXJAAQ@{}/locks", mysql.address()),
        format!("zookeeper://ana:QZXJAAQ@{}?auth=sasl", zookeeper.address()),
        format!("zookeeper://ana:QZXJAAQ@{}?auth=digest&acl=creator", zookeeper.address()),
    ] {
        let client = leasehold::connect(&url).await;
        let client = match client {
            Ok(client) => client,
            // A server that wants SASL refuses a digest.
            Err(error) if url.contains("digest") => {
                given.hides(&printed(&error));
                continue;
            }
            Err(error) => panic!("{url}: {error}"),
        };
        client.mutex("x").lock().await.expect("a lock").release().await.expect("a release");
        given.hides(&format!("{client:?} {}", client.store_url()));
        client.close().await.expect("an end");
    }
    let logged = log.text();
    assert!(!logged.is_empty(), "something is logged");
    given.hides(&logged);
}

/// The password of a server that is used, and not only of one that can't be reached.
#[test]
fn a_lock_that_is_held_shows_no_password_to_others() {
    let given = Given { url: String::new(), pieces: vec!["QZXJAAQ".to_owned(), "QXXJBBQ".to_owned()] };
    let server = Redis::start(RedisOptions::new().user("ana on >QZXJAAQ/#QXXJBBQ ~* &* +@all"));
    let url = format!("redis://ana:QZXJAAQ/#QXXJBBQ@{}", server.address());
    let folder = tempfile::tempdir().expect("a folder");
    let leasehold = |args: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        program.args(args).env("LEASEHOLD_STORE", &url).current_dir(folder.path());
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        program
    };
    let script = "echo > held; until [ -e done ]; do sleep 0.01; done";
    let holder = leasehold(&["run", "x", "--", "sh", "-c", script]).spawn().expect("it starts");
    let is_held = || folder.path().join("held").exists().then_some(()).ok_or("not yet");
    until("the command runs", is_held);
    for args in [
        &["show", "x"][..],
        &["--format", "json", "show", "x"],
        &["ls"],
        &["--format", "json", "ls"],
        &["run", "x", "--try", "--", "true"],
        &["release", "x", "--ask"],
        &["doctor"],
        &["--format", "json", "doctor"],
    ] {
        let output = leasehold(args).output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        assert!(!said.is_empty(), "{args:?}");
        given.hides(&String::from_utf8_lossy(&said));
    }
    let everything = Command::new("ps").args(["-eo", "args", "-ww"]).output().expect("ps runs");
    given.hides(&String::from_utf8_lossy(&everything.stdout));
    std::fs::write(folder.path().join("done"), "").expect("a file");
    let output = holder.wait_with_output().expect("its end");
    assert!(output.status.success(), "{output:?}");
    given.hides(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
}
