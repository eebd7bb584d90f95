//! One name that many want: 64 tasks of one process, 4 processes of 16 tasks, and the hand-off from one client to another.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::Client;
use leasehold_testkit::servers::redis::Redis;
use tokio::runtime::{Builder, Runtime};

use super::{floor, message};
use crate::Done;
use crate::measure::{Report, Target, median, nanos, time};
use crate::processes::{our_hand_offs, percentiles};

/// The first argument of a process that is started as one of many.
pub(crate) const CHILD: &str = "one-of-many";

pub(crate) fn run(report: &mut Report, server: &Redis) -> Done {
    report.section("redis: one name that all want");
    let length = Duration::from_millis(report.work(2_000) as u64);
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let (mut round_trips, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        round_trips.push(floor::round_trip(server, report.work(20_000))?);
        pairs.push(length.as_nanos() as f64 / contend(&runtime, &client, 64, length)? as f64);
    }
    runtime.block_on(client.close())?;
    let (trip, pair) = (median(round_trips.into_iter()), median(pairs.into_iter()));
    report.line("a round trip (EVALSHA, one at a time)", time(trip), "");
    report.line("64 tasks of one process", time(pair), "a pair");
    report.target(
        "redis: one name, 64 tasks, pairs in a round trip",
        trip / pair,
        "×",
        Target::AtLeast(20.0),
        "",
    );
    let pair = length.as_nanos() as f64 / four_processes(&server.url(), length)? as f64;
    report.line("4 processes of 16 tasks", time(pair), format!("a pair; {:.1} in a round trip", trip / pair));
    Ok(())
}

fn contend(runtime: &Runtime, client: &Client, tasks: usize, length: Duration) -> Done<u64> {
    let until = Instant::now() + length;
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let hot = client.mutex("hot");
            runtime.spawn(async move {
                let mut count = 0;
                while Instant::now() < until {
                    let guard = hot.lock().await?;
                    tokio::task::yield_now().await;
                    guard.release().await?;
                    count += 1;
                }
                leasehold::Result::<u64>::Ok(count)
            })
        })
        .collect();
    let mut count = 0;
    for task in running {
        count += runtime.block_on(task)??;
    }
    Ok(count)
}

fn four_processes(url: &str, length: Duration) -> Done<u64> {
    let millis = length.as_millis().to_string();
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([CHILD, url, &millis]).stdout(Stdio::piped()).spawn()
    };
    let children = (0..4).map(|_| start()).collect::<std::io::Result<Vec<_>>>()?;
    let mut count = 0;
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        count += text.trim().parse::<u64>().map_err(|_| format!("a process said {text:?}"))?;
    }
    Ok(count)
}

/// What each of the processes does.
pub(crate) fn child(args: &[&str]) -> Done {
    let [url, millis] = args else { return Err("this is started by the benchmark itself".into()) };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(leasehold::connect(url))?;
    println!("{}", contend(&runtime, &client, 16, Duration::from_millis(millis.parse()?))?);
    Ok(runtime.block_on(client.close())?)
}

/// From the beginning of a release to the return of the one that waited, in another process; against the round trip of a
/// release that nobody waits for, by the same client.
pub(crate) fn hand_off(report: &mut Report, server: &Redis) -> Done {
    report.section("redis: hand-off between processes");
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (mut bare, mut trips, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    let (mut hand_offs, mut tails) = (Vec::new(), Vec::new());
    for _ in 0..report.rounds() {
        bare.push(floor::round_trip(server, report.work(20_000))?);
        trips.push(percentiles(releases(&runtime, &server.url(), report.work(500))?).0);
        messages.push(percentiles(message::hand_offs(server.address(), report.work(500))?).0);
        let (p50, p99) = percentiles(our_hand_offs(&runtime, &server.url(), report.work(500))?);
        hand_offs.push(p50);
        tails.push(p99);
    }
    let ratio = median(hand_offs.iter().zip(&trips).map(|(ours, trip)| ours / trip));
    let hand_off = median(hand_offs.into_iter());
    let bare = median(bare.into_iter());
    report.line(
        "redis-benchmark's round trip (EVALSHA)",
        time(bare),
        format!("hand-off: {:.1} of them", hand_off / bare),
    );
    report.line("a release that nobody waits for, p50", time(median(trips.into_iter())), "one round trip");
    let message = median(messages.into_iter());
    let of = format!("hand-off: {:.1} of it", hand_off / message);
    report.line("a bare message of a script to a process, p50", time(message), of);
    let tail = format!("p99 {}", time(median(tails.into_iter())));
    report.line("release to the waiter's return, p50", time(hand_off), tail);
    report.target("redis: hand-off in round trips, p50", ratio, "×", Target::AtMost(1.3), "");
    Ok(())
}

fn releases(runtime: &Runtime, url: &str, times: usize) -> Done<Vec<f64>> {
    runtime.block_on(async {
        let client = leasehold::connect(url).await?;
        let mut took = Vec::with_capacity(times);
        for _ in 0..times {
            let guard = client.mutex("alone").lock().await?;
            // In the rhythm of a hand-off: what was asleep wakes slowly.
            std::thread::sleep(Duration::from_micros(200));
            client.inspect("alone").await?;
            let began = Instant::now();
            guard.release().await?;
            took.push(nanos(began.elapsed()));
        }
        client.close().await?;
        Ok(took)
    })
}
