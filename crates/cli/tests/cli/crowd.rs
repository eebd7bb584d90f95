//! Many at once: the number that they count together is exact, also when some are killed, and whatever mix of claims
//! meets on one name.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::house::{House, Running};

/// Reads the number, takes its time, writes the next one. The log is its own history: a lost update or a double hold shows as a
/// number that is there twice, and one short write can't be torn by a kill.
const COUNT: &str = "n=$(tail -n 1 log); sleep 0.001; echo $((n + 1)) >> log";

fn counted(house: &House) -> Vec<usize> {
    house.read("log").lines().map(|n| n.parse().expect("a number")).collect()
}

#[test]
fn eight_times_two_hundred_increments_are_exact() {
    const PROCESSES: usize = 8;
    const ROUNDS: usize = 200;
    let house = House::new();
    std::fs::write(house.path("log"), "0\n").expect("a file");
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    house.run(["run", "counter", "--", "sh", "-c", COUNT]).expect(0);
                }
            });
        }
    });
    assert_eq!(counted(&house), (0..=PROCESSES * ROUNDS).collect::<Vec<_>>());
}

#[test]
fn twenty_killed_at_random_moments_harm_nobody_else() {
    const PROCESSES: usize = 8;
    const ROUNDS: usize = 200;
    const KILLS: usize = 20;
    let house = House::new();
    std::fs::write(house.path("log"), "0\n").expect("a file");
    let running: Vec<Mutex<Option<Pid>>> = (0..PROCESSES).map(|_| Mutex::new(None)).collect();
    let (finished, killed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let over = AtomicBool::new(false);
    let mut random = Random::new();
    thread::scope(|scope| {
        let workers: Vec<_> = running
            .iter()
            .map(|mine| {
                let (house, finished, killed) = (&house, &finished, &killed);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let mut child = house.leasehold(["run", "counter", "--", "sh", "-c", COUNT]);
                        let child = child.stdout(Stdio::null()).spawn().expect("it starts");
                        *mine.lock().expect("unpoisoned") = Some(Pid::from_child(&child));
                        let running = Running::of(child);
                        let done = finish(running, mine);
                        match done.code() {
                            0 => finished.fetch_add(1, Ordering::Relaxed),
                            -9 => killed.fetch_add(1, Ordering::Relaxed),
                            _ => panic!("{done:#?}"),
                        };
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut kills = 0;
            while kills < KILLS && !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_micros(random.below(200_000)));
                let victim = running[random.below(PROCESSES as u64) as usize].lock().expect("unpoisoned");
                if let Some(pid) = *victim {
                    kills += usize::from(kill_process(pid, Signal::KILL).is_ok());
                }
            }
        });
        for worker in workers {
            worker.join().expect("no worker fails");
        }
        over.store(true, Ordering::Relaxed);
    });
    let (finished, killed) = (finished.into_inner(), killed.into_inner());
    assert!(killed >= KILLS / 2, "the kills hit somebody: {killed}");
    assert_eq!(finished + killed, PROCESSES * ROUNDS);
    // One that was killed may have counted before that, but nobody counts twice or over another.
    let counted = counted(&house);
    let last = *counted.last().expect("a number");
    assert_eq!(counted, (0..=last).collect::<Vec<_>>());
    assert!((finished..=finished + killed).contains(&last), "{finished} <= {last} <= {finished} + {killed}");
    let lock = house.show("counter");
    assert_eq!(
        (lock["holders"].as_array().map(Vec::len), lock["waiters"].as_array().map(Vec::len)),
        (Some(0), Some(0))
    );
}

/// Waits for the end; the slot is emptied before the process is collected, so that nobody kills a stranger with its id.
fn finish(mut running: Running, slot: &Mutex<Option<Pid>>) -> crate::house::Done {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let pid = running.pid();
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let limit = Instant::now() + Duration::from_secs(60);
    while waitid(WaitId::Pid(pid), options).expect("a child").is_none() {
        assert!(Instant::now() < limit, "a run did not end in time");
        thread::sleep(Duration::from_millis(1));
    }
    *slot.lock().expect("unpoisoned") = None;
    assert!(!running.is_running());
    running.done()
}

#[test]
fn a_mix_of_claims_on_one_name_never_breaks_exclusion() {
    const ROUNDS: usize = 12;
    let house = Arc::new(House::new());
    // A writer must find no one else inside; a reader must find no writer. A folder is made or not made: that is atomic.
    let writer = "mkdir inside || echo broken >> log; ls readers >> log; sleep 0.002; rmdir inside || echo broken >> log; echo w >> done";
    let reader = "mkdir -p readers; echo > readers/$$; [ ! -e inside ] || echo broken >> log; sleep 0.002; rm readers/$$; echo r >> done";
    let kinds: [&[&str]; 6] = [
        &[],
        &["--shared"],
        &["--order", "barge"],
        &["--shared", "--order", "barge"],
        &["--order", "spin"],
        &["--lease", "60s"],
    ];
    std::fs::create_dir(house.path("readers")).expect("a folder");
    let threads: Vec<_> = kinds
        .into_iter()
        .map(|options| {
            let house = Arc::clone(&house);
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    let script = if options.contains(&"--shared") { reader } else { writer };
                    let args = ["run", "x"]
                        .into_iter()
                        .chain(options.iter().copied())
                        .chain(["--", "sh", "-c", script]);
                    house.run(args).expect(0);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread fails");
    }
    assert_eq!(house.read("log"), "");
    let done = house.read("done");
    let count = |what| done.lines().filter(|line| *line == what).count();
    assert_eq!((count("w"), count("r")), (4 * ROUNDS, 2 * ROUNDS));
}

/// Xorshift: random moments need no more.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |d| d.as_nanos() as u64);
        Random(seed | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
