//! One name that many want: the tasks of one process, and of four.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::Client;
use tokio::runtime::{Builder, Runtime};

use crate::Done;
use crate::measure::nanos;
use crate::processes::SETTLE;

/// The first argument of a process that is started as one of many.
pub(crate) const CHILD: &str = "one-of-many";

/// How often so many tasks got the name in this time, in all. They queue while the first of them asks the store, so every release finds
/// the next in line.
pub(crate) fn contend(runtime: &Runtime, client: &Client, tasks: usize, length: Duration) -> Done<u64> {
    let until = Instant::now() + length;
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let hot = client.mutex("hot");
            runtime.spawn(async move {
                let mut count = 0;
                while Instant::now() < until {
                    let guard = hot.lock().await?;
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

/// The same for 16 tasks in each of four processes.
pub(crate) fn four_processes(url: &str, length: Duration) -> Done<u64> {
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

/// How long each release took that nobody waited for.
pub(crate) fn releases(runtime: &Runtime, url: &str, times: usize) -> Done<Vec<f64>> {
    runtime.block_on(async {
        let client = leasehold::connect(url).await?;
        let mut took = Vec::with_capacity(times);
        for _ in 0..times {
            let guard = client.mutex("alone").lock().await?;
            // In the rhythm of a hand-off: what was asleep wakes slowly.
            std::thread::sleep(SETTLE);
            client.inspect("alone").await?;
            let began = Instant::now();
            guard.release().await?;
            took.push(nanos(began.elapsed()));
        }
        client.close().await?;
        Ok(took)
    })
}
