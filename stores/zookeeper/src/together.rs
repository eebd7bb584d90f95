//! Lists that travel together.
//!
//! Whoever creates a node asks for a list of its lock right behind it. To the client crate a request costs two system calls and
//! some wake-ups, however small it is; so where many create at a time, over the one connection that they share, the lists of all
//! that came in one turn of the runtime are one request. It leaves behind all their creates, and ZooKeeper answers the requests
//! of a session in their order: each list shows what it would have shown alone.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::link::Life;

/// With fewer creates under way than this, each list leaves at once.
const MANY: usize = 6;

/// How many lists one request asks for.
const TOGETHER: usize = 128;

type Names = Result<Vec<String>, zk::Error>;

/// The lists of one ZooKeeper session.
#[derive(Default)]
pub(crate) struct Lists {
    /// How many creates wait for their answers.
    creating: AtomicUsize,
    /// What is asked for with the next request.
    next: Mutex<Vec<Wish>>,
}

struct Wish {
    path: String,
    answer: oneshot::Sender<Names>,
}

/// Somebody waits for the answers to a create and its list.
pub(crate) struct Creating<'a>(&'a Lists);

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        self.0.creating.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lists {
    /// A create begins. Ends when the answer is dropped.
    pub(crate) fn creating(&self) -> Creating<'_> {
        self.creating.fetch_add(1, Ordering::Relaxed);
        Creating(self)
    }

    fn is_busy(&self) -> bool {
        self.creating.load(Ordering::Relaxed) >= MANY
    }

    fn wishes(&self) -> std::sync::MutexGuard<'_, Vec<Wish>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lists the children of a node, as they are after all that was asked before. The request is on its way when this returns, or will
/// be in this turn of the runtime.
pub(crate) fn list<'a>(life: &'a Arc<Life>, path: &str) -> impl Future<Output = Names> + Send + use<'a> {
    let alone =
        if life.lists.is_busy() { Err(together(life, path)) } else { Ok(life.client.list_children(path)) };
    async move {
        match alone {
            Ok(list) => list.await,
            // Nobody is left to answer only if the runtime is shutting down.
            Err(list) => list.await.unwrap_or(Err(zk::Error::ConnectionLoss)),
        }
    }
}

fn together(life: &Arc<Life>, path: &str) -> oneshot::Receiver<Names> {
    let (answer, answered) = oneshot::channel();
    let (count, full) = {
        let mut wishes = life.lists.wishes();
        wishes.push(Wish { path: path.to_owned(), answer });
        let count = wishes.len();
        (count, (count >= TOGETHER).then(|| mem::take(&mut *wishes)))
    };
    if let Some(full) = full {
        let life = life.clone();
        tokio::spawn(async move { ask(&life, full).await });
    } else if count == 1 {
        let life = life.clone();
        tokio::spawn(async move {
            // Those whose turn comes before ours in this round of the runtime travel with us.
            if Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
                // Else a new task comes last by itself.
                tokio::task::yield_now().await;
            }
            let wishes = mem::take(&mut *life.lists.wishes());
            ask(&life, wishes).await;
        });
    }
    answered
}

async fn ask(life: &Life, wishes: Vec<Wish>) {
    let mut reader = life.client.new_multi_reader();
    let mut asked = Vec::with_capacity(wishes.len());
    for Wish { path, answer } in wishes {
        match reader.add_get_children(&path) {
            Ok(()) => asked.push(answer),
            Err(error) => drop(answer.send(Err(error))),
        }
    }
    if asked.is_empty() {
        return;
    }
    match reader.commit().await {
        Ok(results) if results.len() == asked.len() => {
            for (answer, result) in asked.into_iter().zip(results) {
                let names = match result {
                    zk::MultiReadResult::Children { children } => Ok(children),
                    zk::MultiReadResult::Error { err } => Err(err),
                    _ => Err(zk::Error::RuntimeInconsistent),
                };
                // Whoever does not wait any more has no use for it.
                let _ = answer.send(names);
            }
        }
        Ok(_) => asked.into_iter().for_each(|answer| drop(answer.send(Err(zk::Error::RuntimeInconsistent)))),
        Err(error) => asked.into_iter().for_each(|answer| drop(answer.send(Err(error.clone())))),
    }
}
