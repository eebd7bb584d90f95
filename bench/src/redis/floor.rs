//! The floor: what redis-benchmark gets out of the same server with the bare commands that most locks are made of.

use std::process::Command;

use leasehold_testkit::servers::redis::Redis;

use crate::Done;

/// What every client library does to unlock: delete the key if it is still ours.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

const VALUE: &str = "0123456789abcdef0123456789abcdef";
const KEY: &str = "floor:__rand_int__";

/// How many keys the commands draw from: many more than requests, so that few meet twice.
const KEYS: usize = 500_000;

/// How many of them one script writes: a slow machine must not take it for one that hangs.
const AT_ONCE: usize = 20_000;

/// Writes keys, so that the deletes have something to delete.
const FILL: &str =
    "for i = ARGV[2], ARGV[3] - 1 do redis.call('SET', string.format('floor:%012d', i), ARGV[1]) end";

/// Nanoseconds of `SET NX PX` and compare-and-delete together, over one connection with so many commands in flight; and how
/// many of them the server worked.
pub(crate) fn pair(server: &Redis, in_flight: usize, requests: usize) -> Done<(f64, f64)> {
    let digest = server.cli(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]);
    server.cli(&["FLUSHALL"]);
    let began = server_time(server)?;
    let set = command(server.port(), in_flight, requests, &["SET", KEY, VALUE, "NX", "PX", "30000"])?;
    let worked = server_time(server)? - began;
    for first in (0..KEYS).step_by(AT_ONCE) {
        server.cli(&["EVAL", FILL, "0", VALUE, &first.to_string(), &(first + AT_ONCE).to_string()]);
    }
    let began = server_time(server)?;
    let delete = command(server.port(), in_flight, requests, &["EVALSHA", digest.trim(), "1", KEY, VALUE])?;
    let worked = worked + server_time(server)? - began;
    server.cli(&["FLUSHALL"]);
    Ok((set + delete, worked / requests as f64))
}

/// Nanoseconds that the server has worked.
pub(crate) fn server_time(server: &Redis) -> Done<f64> {
    let part = |what: &str| server.info(what).parse::<f64>();
    Ok((part("used_cpu_user")? + part("used_cpu_sys")?) * 1e9)
}

/// Nanoseconds of one round trip to the server by way of this port: the bare unlock, one at a time.
pub(crate) fn round_trip(server: &Redis, port: u16, requests: usize) -> Done<f64> {
    let digest = server.cli(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]);
    command(port, 1, requests, &["EVALSHA", digest.trim(), "1", KEY, VALUE])
}

fn command(port: u16, in_flight: usize, requests: usize, words: &[&str]) -> Done<f64> {
    let (port, in_flight, count) = (port.to_string(), in_flight.to_string(), requests.to_string());
    let keys = KEYS.to_string();
    let output = Command::new("redis-benchmark")
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-c",
            "1",
            "-P",
            &in_flight,
            "-n",
            &count,
            "-r",
            &keys,
            "--csv",
        ])
        .args(words)
        .output()
        .map_err(|e| format!("redis-benchmark could not be run ({e}): apt-get install redis-tools"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // The last line is "command","requests per second",…
    let last = text.lines().last().unwrap_or_default();
    let rate = last.rsplit("\",\"").nth(6).and_then(|rate| rate.trim_matches('"').parse::<f64>().ok());
    rate.map(|rate| 1e9 / rate).ok_or_else(|| format!("redis-benchmark said {text:?}").into())
}
