//! Waiting until replicas have what a node did (`WAIT`).
//!
//! `WAIT` holds up everything behind it, so it has a connection of its own, made on first use. It looks at the last write of
//! the connection that asks, so a small write goes before it: what was done on the node before that write, by whomever, is
//! older, and replicas take writes in order. Callers at the same time share a round trip: those who come while one is on its
//! way go into the next one, because only that one is certainly behind what they did.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use redis::{Cmd, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::channels;
use super::context::Context;
use super::link::{Answer, Link, Source, closed};
use super::target::Target;
use super::task::Task;
use super::trouble::Verdict;

/// How long the key of the small write is kept: it means nothing, and should not stay for ever.
const KEY_LIFE: Duration = Duration::from_secs(60);

/// The connection that replicas were waited for on.
type Outcome = Result<Arc<Source>>;

/// What waits for the replicas of one node.
pub(crate) struct Replicas {
    ask: mpsc::UnboundedSender<oneshot::Sender<Outcome>>,
    task: Task,
}

impl Replicas {
    /// Connects in the background.
    pub(crate) fn of(target: Target, tag: watch::Receiver<Arc<str>>, context: Arc<Context>) -> Self {
        let (ask, asked) = mpsc::unbounded_channel();
        let time = context.config.timeout() + context.config.replicas_timeout();
        let waiter = Waiter { link: Link::to(target, time), tag, context };
        Replicas { ask, task: Task::spawn(waiter.run(asked)) }
    }

    /// Waits until enough replicas have all that the server had done before this call. It is the caller's to check that this
    /// is the server that it means.
    pub(crate) async fn wait(&self) -> Outcome {
        let (answer, answered) = oneshot::channel();
        self.ask.send(answer).map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Ends it for good.
    pub(crate) fn close(&self) {
        self.task.abort();
    }
}

struct Waiter {
    link: Link,
    tag: watch::Receiver<Arc<str>>,
    context: Arc<Context>,
}

impl Waiter {
    async fn run(self, mut asked: mpsc::UnboundedReceiver<oneshot::Sender<Outcome>>) {
        let mut group = Vec::new();
        while asked.recv_many(&mut group, usize::MAX).await > 0 {
            let outcome = self.wait_once().await;
            for caller in group.drain(..) {
                let _ = caller.send(outcome.clone());
            }
        }
    }

    async fn wait_once(&self) -> Outcome {
        let config = &self.context.config;
        let deadline = Instant::now() + config.timeout() + config.replicas_timeout();
        let (source, answers) = self.link.call_all(self.commands(), deadline).await.map_err(unknown)?;
        let mut answers = answers.into_iter();
        understood(answers.next())?;
        match understood(answers.next())? {
            Value::Int(count) if count >= i64::from(config.replicas()) => Ok(source),
            Value::Int(count) => Err(self.too_few(count)),
            other => Err(Error::new(Kind::Store, format!("WAIT was answered with {other:?}"))),
        }
    }

    fn commands(&self) -> [Cmd; 2] {
        let config = &self.context.config;
        let mut write = redis::cmd("SET");
        write.arg(channels::wait_key(config.prefix(), &self.tag.borrow())).arg(1);
        write.arg("PX").arg(KEY_LIFE.as_millis() as u64);
        let mut wait = redis::cmd("WAIT");
        wait.arg(config.replicas()).arg(config.replicas_timeout().as_millis().max(1) as u64);
        [write, wait]
    }

    fn too_few(&self, count: i64) -> Error {
        let config = &self.context.config;
        let (wanted, time) = (config.replicas(), config.replicas_timeout());
        Error::new(
            Kind::Unavailable,
            format!("not enough replicas: {wanted} wanted, {count} answered within {time:?}"),
        )
        .advice("check the replicas; or set replicas=0 and accept that a failover can lose a lock")
        .retry(Retry::Later)
    }
}

/// The answer to one of the commands. A refusal means that the replicas are not known to have anything.
fn understood(answer: Option<Result<Answer, Verdict>>) -> Result<Value> {
    match answer {
        Some(Ok(answer)) => Ok(answer.value),
        Some(Err(Verdict::Failed(e))) => Err(e),
        Some(Err(Verdict::Again(e) | Verdict::NotMaster(e))) => Err(unknown(e)),
        _ => {
            Err(unknown(Error::new(Kind::Unavailable, "the node changed while its replicas were waited for")))
        }
    }
}

/// Whether replicas have it is not known. Whoever asks again for the same learns it.
fn unknown(error: Error) -> Error {
    if error.retry_advice() == Retry::Never { error } else { error.retry(Retry::SameId) }
}
