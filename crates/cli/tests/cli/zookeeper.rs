//! Commands under a lock of ZooKeeper, whose leases are as long as its sessions, and not as others.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};

use crate::house::House;

/// A server for all tests that leave it alone. The longest session is 20 ticks.
static SERVER: LazyLock<ZooKeeper> =
    LazyLock::new(|| ZooKeeper::start(ZooKeeperOptions::new().tick(Duration::from_millis(500))));

/// A store that no other test uses, with sessions of this length.
fn store(session: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let root = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("zookeeper://{}?root=cli{root}&session={session}", SERVER.address())
}

#[test]
fn a_command_is_left_alone_while_its_lease_is_renewed() {
    let (house, url) = (House::new(), store("10s"));
    let done =
        house.run(["--store", &url, "run", "orders", "--", "sh", "-c", "sleep 4; echo done"]).expect(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("done\n", ""));
}

/// The grace is taken from the end of the lease, and not from the part of it that the session is certain of at a time.
#[test]
fn a_lease_longer_than_the_session_leaves_the_command_alone() {
    let (house, url) = (House::new(), store("4s"));
    let script = "echo $LEASEHOLD_DEADLINE; sleep 5; echo done";
    let millis = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_millis();
    let before = millis();
    let done = house.run(["--store", &url, "run", "x", "--lease", "60s", "--", "sh", "-c", script]).expect(0);
    let (deadline, rest) = done.stdout.split_once('\n').expect("two lines");
    assert_eq!((rest, done.stderr.as_str()), ("done\n", ""));
    let deadline: u128 = deadline.parse().expect("a number");
    assert!(deadline > before + 55_000 && deadline < millis() + 60_000, "{deadline} of {before}");
}

#[test]
fn a_lease_longer_than_the_session_stops_the_command_before_it_ends() {
    let (house, url) = (House::new(), store("2s"));
    let script = "trap 'echo term; exit 0' TERM; while :; do sleep 0.01; done";
    let args = ["--store", &url, "run", "x", "--lease", "5s", "--grace", "1s", "--", "sh", "-c", script];
    let began = Instant::now();
    let done = house.run(args).expect(76).says(&["lost", "lease"]);
    assert_eq!(done.stdout, "term\n");
    assert!(began.elapsed() > Duration::from_millis(3900), "{:?}", began.elapsed());
}

#[test]
fn a_wait_of_zero_is_one_try() {
    let (house, url) = (House::new(), store("4s"));
    for order in ["queue", "barge", "spin"] {
        let run = |script: &str| {
            house
                .run(["--store", &url, "run", "x", "--wait", "0", "--order", order, "--", "sh", "-c", script])
        };
        assert_eq!(run("echo mine").expect(0).stdout, "mine\n", "{order}");
        let inner = format!("{} --store '{url}' run x --wait 0 -- true", env!("CARGO_BIN_EXE_leasehold"));
        run(&inner).expect(75).says(&["busy"]);
    }
}
