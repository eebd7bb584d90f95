//! The timers under a boot clock that runs apart from the monotonic one, as it does after a suspend.
//!
//! A clock can't be made to jump under a process with threads, but a process can be started in a time namespace whose boot clock is a
//! day ahead. A deadline of the one clock on a timer of the other would come a day late, or at once.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_background::Background;
use leasehold_core::Clock;

const INSIDE: &str = "LEASEHOLD_IN_TIME_NAMESPACE";
const DAY: u64 = 24 * 60 * 60;

#[test]
fn timers_and_leases_are_on_one_clock() {
    if std::env::var_os(INSIDE).is_some() {
        return sleep_inside();
    }
    let before = Clock::system().now();
    let inside = Command::new("unshare")
        .args(["--map-root-user", "--time", "--boottime", &DAY.to_string(), "--fork", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "timers_and_leases_are_on_one_clock", "--nocapture"])
        .env(INSIDE, before.0.to_string())
        .output()
        .expect("`unshare` of util-linux: please run: apt-get install util-linux");
    assert!(inside.status.success(), "{}", String::from_utf8_lossy(&inside.stderr));
}

fn sleep_inside() {
    let outside: u64 = std::env::var(INSIDE).unwrap().parse().unwrap();
    let now = Clock::system().now();
    assert!(now.0 > outside + Duration::from_secs(DAY).as_nanos() as u64, "the boot clock is a day ahead");
    let background = Background::get().unwrap();
    let began = Instant::now();
    background.runtime().block_on(background.sleep_until(now + Duration::from_millis(50)));
    let slept = began.elapsed();
    assert!(slept >= Duration::from_millis(40), "it came too early: {slept:?}");
    assert!(Clock::system().now() >= now + Duration::from_millis(50));
}
