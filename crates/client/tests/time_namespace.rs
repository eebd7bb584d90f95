//! Guards under a boot clock that runs apart from the monotonic one, as it does after a suspend: see the test of the same name in
//! `leasehold-background`.
#![cfg(target_os = "linux")]

use std::future::pending;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_client::{Client, Clock, Lost};
use leasehold_memory::Memory;

const INSIDE: &str = "LEASEHOLD_IN_TIME_NAMESPACE";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LEASE: Duration = Duration::from_millis(300);
/// Far longer than it takes, and far shorter than a day.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_loss_is_told_by_the_clock_of_leases() {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(lose_inside());
    }
    let before = Clock::system().now();
    let inside = Command::new("unshare")
        .args(["--map-root-user", "--time", "--boottime", &DAY.as_secs().to_string(), "--fork", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_loss_is_told_by_the_clock_of_leases", "--nocapture"])
        .env(INSIDE, before.0.to_string())
        .output()
        .expect("`unshare` of util-linux: please run: apt-get install util-linux");
    assert!(inside.status.success(), "{}", String::from_utf8_lossy(&inside.stderr));
}

async fn lose_inside() {
    let outside: u64 = std::env::var(INSIDE).unwrap().parse().unwrap();
    assert!(Clock::system().now().0 > outside + DAY.as_nanos() as u64, "the boot clock is a day ahead");
    let client = Client::open(Memory::new()).await.unwrap();
    let began = Instant::now();
    let guard = client.mutex("n").lease(LEASE).lock().await.unwrap();
    let protected = tokio::time::timeout(LONG, guard.protect(pending::<()>())).await;
    assert_eq!(protected.expect("it is not a day late"), Err(Lost::Expired));
    assert!(began.elapsed() > LEASE / 2, "it came too early: {:?}", began.elapsed());
    let lost = tokio::time::timeout(LONG, guard.lost()).await;
    assert_eq!(lost.expect("it is not a day late"), Lost::Expired);
}
