//! Requests that travel together.
//!
//! To the client crate a request costs two system calls and some wake-ups, however small it is, and to the server a place in its
//! log. So where many of a client's tasks lock and release at a time, over the one connection that they share, the deletes that
//! came in one turn of the runtime are one request, and so are the lists that belong to their creates. Nobody waits for others
//! to come: what is there at the end of the turn leaves, and what is alone leaves as it would have.
//!
//! - A request with many deletes is carried out as a whole or not at all. Where one of the nodes is not there, nothing has
//!   happened, and the others are asked for again, each alone. An answer that is lost leaves each of them unknown, as if it had
//!   been alone.
//! - The lists leave behind the deletes, and behind all creates that they belong to. ZooKeeper answers the requests of a session
//!   in their order, so each list shows what it would have shown alone.
//! - Creates don't travel together: servers (3.8, for one) don't tell the `czxid` of a node then, and it is the token.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::Either;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::link::Life;

/// With fewer requests under way than this, each leaves at once.
const MANY: usize = 6;

/// How many deletes, or lists, one request carries, so that a server is not kept from others for long.
const TOGETHER: usize = 64;

type Deleted = Result<(), zk::Error>;
type Names = Result<Vec<String>, zk::Error>;

/// The deletes and lists of one ZooKeeper session.
#[derive(Default)]
pub(crate) struct Together {
    /// How many creates and deletes wait for their answers.
    under_way: AtomicUsize,
    /// What leaves at the end of this turn.
    next: Mutex<Wishes>,
}

#[derive(Default)]
struct Wishes {
    deletes: Vec<Wish<Deleted>>,
    lists: Vec<Wish<Names>>,
    /// Whether somebody will see to them.
    seen_to: bool,
}

struct Wish<T> {
    path: Arc<str>,
    answer: oneshot::Sender<T>,
}

/// Somebody waits for the answer to a create or a delete.
pub(crate) struct UnderWay<'a>(&'a Together);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Together {
    /// A create or a delete begins. It ends when the answer is dropped.
    pub(crate) fn under_way(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a wish, if there is company. `None` if it should leave alone, now.
    fn wish<T>(
        life: &Arc<Life>,
        path: &Arc<str>,
        kind: impl FnOnce(&mut Wishes) -> &mut Vec<Wish<T>>,
    ) -> Option<oneshot::Receiver<T>> {
        let mut wishes = life.together.wishes();
        // Behind what leaves at the end of the turn already, so that nothing overtakes it.
        if !wishes.seen_to && life.together.under_way.load(Ordering::Relaxed) < MANY {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        kind(&mut wishes).push(Wish { path: path.clone(), answer });
        if !mem::replace(&mut wishes.seen_to, true) {
            drop(wishes);
            tokio::spawn(see_to_them(life.clone()));
        }
        Some(answered)
    }
}

/// Lists the children of a node, as they are after all that was asked before. The request is on its way when this returns, or will
/// be at the end of this turn of the runtime.
pub(crate) fn list<'a>(life: &'a Arc<Life>, path: &Arc<str>) -> impl Future<Output = Names> + Send + use<'a> {
    let list = match Together::wish(life, path, |wishes| &mut wishes.lists) {
        Some(list) => Either::Left(list),
        None => Either::Right(life.client.list_children(path)),
    };
    async move {
        match list {
            // Nobody is left to answer only if the runtime is shutting down.
            Either::Left(list) => list.await.unwrap_or(Err(zk::Error::ConnectionLoss)),
            Either::Right(list) => list.await,
        }
    }
}

/// Deletes a node. The request is on its way after the first poll, or will be at the end of that turn of the runtime; it is carried
/// out also if nobody waits for it any more.
pub(crate) async fn delete(life: &Arc<Life>, path: &Arc<str>) -> Deleted {
    let _under_way = life.together.under_way();
    match Together::wish(life, path, |wishes| &mut wishes.deletes) {
        Some(deleted) => deleted.await.unwrap_or(Err(zk::Error::ConnectionLoss)),
        None => life.client.delete(path, None).await,
    }
}

/// Sends what was wished for in this turn, and brings the answers.
async fn see_to_them(life: Arc<Life>) {
    // Those whose turn comes before ours in this round of the runtime travel with us. On one thread a new task comes last by itself.
    if Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
        tokio::task::yield_now().await;
    }
    let (mut deletes, mut lists) = (Vec::new(), Vec::new());
    {
        // Sent before anybody can wish for more: what comes later leaves later.
        let mut next = life.together.wishes();
        let mut wishes = mem::take(&mut *next);
        while !wishes.deletes.is_empty() {
            deletes.push(send_deletes(&life.client, first_of(&mut wishes.deletes)));
        }
        while !wishes.lists.is_empty() {
            lists.push(send_lists(&life.client, first_of(&mut wishes.lists)));
        }
    }
    for (wishes, deleted) in deletes {
        tell_deleted(&life.client, wishes, deleted.await).await;
    }
    for (answers, listed) in lists {
        tell_listed(answers, listed.await);
    }
}

/// As many as one request carries.
fn first_of<T>(wishes: &mut Vec<Wish<T>>) -> Vec<Wish<T>> {
    let rest = wishes.split_off(wishes.len().min(TOGETHER));
    mem::replace(wishes, rest)
}

fn send_deletes(
    client: &zk::Client,
    wishes: Vec<Wish<Deleted>>,
) -> (Vec<Wish<Deleted>>, impl Future<Output = Result<(), zk::MultiWriteError>> + Send) {
    let (mut alone, mut writer) = (None, client.new_multi_writer());
    let mut asked = Vec::with_capacity(wishes.len());
    let only = wishes.len() == 1;
    for wish in wishes {
        if only {
            alone = Some(client.delete(&wish.path, None));
            asked.push(wish);
            continue;
        }
        match writer.add_delete(&wish.path, None) {
            Ok(()) => asked.push(wish),
            Err(error) => drop(wish.answer.send(Err(error))),
        }
    }
    let all = writer.commit();
    let deleted = async move {
        match alone {
            Some(alone) => alone.await.map_err(zk::MultiWriteError::from),
            None => all.await.map(drop),
        }
    };
    (asked, deleted)
}

async fn tell_deleted(
    client: &zk::Client,
    wishes: Vec<Wish<Deleted>>,
    deleted: Result<(), zk::MultiWriteError>,
) {
    let (failed, error) = match deleted {
        Err(zk::MultiWriteError::OperationFailed { index, source }) => (index, source),
        Err(zk::MultiWriteError::RequestFailed { source }) => {
            return wishes.into_iter().for_each(|wish| drop(wish.answer.send(Err(source.clone()))));
        }
        // Whoever does not wait any more has no use for it.
        Ok(()) => return wishes.into_iter().for_each(|wish| drop(wish.answer.send(Ok(())))),
    };
    // Nothing has happened, because of one of them.
    let mut others = Vec::with_capacity(wishes.len());
    for (at, Wish { path, answer }) in wishes.into_iter().enumerate() {
        if at == failed {
            let _ = answer.send(Err(error.clone()));
        } else {
            others.push((client.delete(&path, None), answer));
        }
    }
    for (deleted, answer) in others {
        let _ = answer.send(deleted.await);
    }
}

fn send_lists(
    client: &zk::Client,
    wishes: Vec<Wish<Names>>,
) -> (Vec<oneshot::Sender<Names>>, impl Future<Output = Result<Vec<zk::MultiReadResult>, zk::Error>> + Send) {
    let mut reader = client.new_multi_reader();
    let mut asked = Vec::with_capacity(wishes.len());
    for Wish { path, answer } in wishes {
        match reader.add_get_children(&path) {
            Ok(()) => asked.push(answer),
            Err(error) => drop(answer.send(Err(error))),
        }
    }
    (asked, reader.commit())
}

fn tell_listed(answers: Vec<oneshot::Sender<Names>>, listed: Result<Vec<zk::MultiReadResult>, zk::Error>) {
    let results = match listed {
        Ok(results) if results.len() == answers.len() => results,
        other => {
            let error = other.err().unwrap_or(zk::Error::RuntimeInconsistent);
            return answers.into_iter().for_each(|answer| drop(answer.send(Err(error.clone()))));
        }
    };
    for (answer, result) in answers.into_iter().zip(results) {
        let names = match result {
            zk::MultiReadResult::Children { children } => Ok(children),
            zk::MultiReadResult::Error { err } => Err(err),
            _ => Err(zk::Error::RuntimeInconsistent),
        };
        let _ = answer.send(names);
    }
}
