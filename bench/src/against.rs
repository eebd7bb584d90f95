//! This revision of the library against another one: lock and release of free names, by one task and by 64, and what an idle
//! client with one lock costs, on every store. Both are `leasehold-pairs`, built at its revision, and take turns on the same servers.

use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::servers::{
    Cluster, Independent, MariaDb, MariaDbOptions, Postgres, PostgresOptions, Sentinels, ZooKeeper,
    ZooKeeperOptions,
};

use crate::Done;
use crate::measure::{Pair, Report, Target, time};

/// Where locks are: a URL, and what keeps its servers running.
type Place = (String, Box<dyn std::any::Any>);

/// Starts a place.
type Start = fn() -> Place;

const PLACES: [(&str, Start); 11] = [
    ("memory", || ("memory:".to_owned(), Box::new(()))),
    ("file", || {
        let folder = tempfile::tempdir().expect("a folder");
        (format!("file:{}", folder.path().display()), Box::new(folder))
    }),
    ("redis", || {
        let server = Redis::start(RedisOptions::new());
        (server.url(), Box::new(server))
    }),
    ("sentinel", || {
        let servers = Sentinels::start();
        (servers.url(), Box::new(servers))
    }),
    ("cluster", || {
        let servers = Cluster::start(3, 1);
        (servers.url(), Box::new(servers))
    }),
    ("redlock", || {
        let servers = Independent::start(3);
        (servers.url(), Box::new(servers))
    }),
    ("zookeeper", || {
        let server = ZooKeeper::start(ZooKeeperOptions::new().java("-XX:TieredStopAtLevel=4"));
        (server.url(), Box::new(server))
    }),
    ("postgres", || {
        let server = Postgres::start(PostgresOptions::new());
        (server.url(), Box::new(server))
    }),
    ("postgres-disk", || {
        let server = Postgres::start(PostgresOptions::new().durable());
        (server.url(), Box::new(server))
    }),
    ("mysql", || {
        let server = MariaDb::start(MariaDbOptions::new());
        (server.url(), Box::new(server))
    }),
    ("mysql-disk", || {
        let server = MariaDb::start(MariaDbOptions::new().durable());
        (server.url(), Box::new(server))
    }),
];

/// How much slower than the other revision a pair may be.
const LIMIT: Target = Target::AtMost(1.05);

/// The names of the places.
pub(crate) fn parts() -> Vec<&'static str> {
    PLACES.iter().map(|(name, _)| *name).collect()
}

/// Compares with the program at `other`.
pub(crate) fn run(report: &mut Report, other: &Path, only: Option<&str>) -> Done {
    let ours = beside_this_program("leasehold-pairs")?;
    for (name, start) in PLACES.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        let (url, _servers) = start();
        report.section(&format!("{name}: lock and release of free names, the other revision and this one"));
        for tasks in ["1", "64"] {
            let millis = if report.quick() { "300" } else { "1000" };
            let pair =
                |program: &Path| -> Done<f64> { Ok(ask(program, &["pairs", &url, tasks, millis])?.parse()?) };
            let times = Pair::alternate(report.rounds(), || pair(other), || pair(&ours))?;
            let note =
                format!("{} → {}, {}", time(times.floor()), time(times.ours()), times.slower().spread());
            let what = format!("{name}, {tasks} in flight");
            report.target(&what, times.slower().median, "×", LIMIT, note);
        }
        let millis = if report.quick() { "3000" } else { "20000" };
        for (which, program) in [("the other", other), ("this one", &ours)] {
            let figures = ask(program, &["idle", &url, millis])?;
            let [worked, threads, sockets] = *figures.split(' ').collect::<Vec<_>>() else {
                return Err(format!("{} said {figures:?}", program.display()).into());
            };
            let note = format!("in {millis} ms; {threads} threads, {sockets} sockets");
            report.line(&format!("one idle lock, {which}"), format!("{worked} ms CPU"), note);
        }
    }
    Ok(())
}

fn beside_this_program(name: &str) -> Done<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

/// Runs a program that prints one line.
fn ask(program: &Path, args: &[&str]) -> Done<String> {
    let told = Command::new(program).args(args).output()?;
    if !told.status.success() {
        let why = String::from_utf8_lossy(&told.stderr);
        return Err(format!("{} {}: {}", program.display(), args.join(" "), why.trim()).into());
    }
    Ok(String::from_utf8(told.stdout)?.trim().to_owned())
}
