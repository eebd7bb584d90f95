//! The floor: the bare requests that a lock on ZooKeeper is made of, by the client crate that Leasehold uses.

use std::net::SocketAddr;

use leasehold::Clock;
use tokio::runtime::{Builder, Runtime};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::Done;
use crate::measure::nanos;
use crate::processes::{OtherSide, SETTLE, answer};

const FOLDER: &str = "/floor";

/// A client with a folder to work in.
pub(crate) async fn connect(address: &str) -> Done<Client> {
    let client = Client::connect(address).await?;
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    match client.create(FOLDER, b"", &persistent).await {
        Ok(_) | Err(zookeeper_client::Error::NodeExists) => Ok(client),
        Err(e) => Err(e.into()),
    }
}

/// Each task creates and deletes an ephemeral node so many times.
pub(crate) fn create_and_delete(runtime: &Runtime, client: &Client, tasks: usize, each: usize) -> Done {
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let client = client.clone();
            runtime.spawn(async move {
                let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
                let path = format!("{FOLDER}/{task}");
                for _ in 0..each {
                    client.create(&path, b"0123456789abcdef0123456789abcdef", &ephemeral).await?;
                    client.delete(&path, None).await?;
                }
                Result::<(), zookeeper_client::Error>::Ok(())
            })
        })
        .collect();
    for task in running {
        runtime.block_on(task)??;
    }
    Ok(())
}

/// Nanoseconds from before a node is deleted to when another process, which watches it, has its event.
pub(crate) fn hand_offs(runtime: &Runtime, address: SocketAddr, times: usize) -> Done<Vec<f64>> {
    let client = runtime.block_on(connect(&address.to_string()))?;
    let mut other = OtherSide::start("event", &address.to_string())?;
    let mut latencies = Vec::with_capacity(times);
    let path = format!("{FOLDER}/watched");
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    for _ in 0..times {
        runtime.block_on(client.create(&path, b"", &ephemeral))?;
        other.go()?;
        // It says when it watches.
        other.entered()?;
        std::thread::sleep(SETTLE);
        runtime.block_on(client.check_stat(&path))?;
        let began = Clock::system().now();
        runtime.block_on(client.delete(&path, None))?;
        latencies.push(nanos(other.entered()?.since(began)));
    }
    Ok(latencies)
}

/// What the other process does.
pub(crate) fn watch(address: &str) -> Done {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(connect(address))?;
    let path = format!("{FOLDER}/watched");
    answer(|| {
        let (_, watcher) = runtime.block_on(client.check_and_watch_stat(&path))?;
        println!("{}", Clock::system().now().0);
        runtime.block_on(watcher.changed());
        Ok(Clock::system().now())
    })
}
