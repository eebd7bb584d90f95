//! Lock and release of names that nobody else wants, by so many tasks at a time.

use leasehold::Client;
use tokio::runtime::Runtime;

use crate::Done;

/// A name for each lock.
pub(crate) fn a_new_one(task: usize, n: usize) -> String {
    format!("orders/{task}-{n}")
}

/// A name for each task, again and again.
pub(crate) fn its_own(task: usize, _: usize) -> String {
    format!("orders/{task}")
}

/// Each task locks and releases so many times, the n-th time what `name` says.
pub(crate) fn lock_and_release(
    runtime: &Runtime,
    client: &Client,
    tasks: usize,
    each: usize,
    name: fn(usize, usize) -> String,
) -> Done {
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let client = client.clone();
            runtime.spawn(async move {
                for n in 0..each {
                    let guard = client.mutex(name(task, n)).lock().await?;
                    guard.release().await?;
                }
                leasehold::Result::<()>::Ok(())
            })
        })
        .collect();
    for task in running {
        runtime.block_on(task)??;
    }
    Ok(())
}
