//! One server: a connection for commands that is kept up.
//!
//! A task of its own connects, watches the connection, and connects again. Callers find the connection or wait a moment for
//! it; they never connect themselves, so a thousand of them cost a server that comes back one connection.
//!
//! # Layout
//!
//! - `supervisor`: the task.
//! - `pulse`: how it learns that calls are not answered.
//! - `source`: what answers come from, and how callers learn that none will come any more.

mod pulse;
mod source;
mod supervisor;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::call::Call;
use super::check::Expected;
use super::target::Target;
use super::task::Task;
use super::trouble::{self, Verdict};
use crate::config::{Address, Server};
use pulse::Pulse;
pub(crate) use source::Source;
use supervisor::Supervisor;

/// How long a call waits for a connection. A restart takes less; who waits longer had better be told.
const PATIENCE: Duration = Duration::from_millis(500);

/// How much later than its limit the end of an attempt may be seen.
const GRACE: Duration = Duration::from_millis(200);

/// A supervised connection to one server, or to whichever server is the master.
pub struct Link {
    state: watch::Receiver<State>,
    signals: Arc<Signals>,
    task: Task,
}

/// What the supervisor says.
#[derive(Clone)]
enum State {
    /// There was no connection yet, and no attempt has failed.
    New(Error),
    /// There is no connection, and why.
    Down(Error),
    /// There is one.
    Up(Up),
}

/// An open connection.
#[derive(Clone)]
struct Up {
    conn: MultiplexedConnection,
    source: Arc<Source>,
    /// Ends the task that drives it.
    driver: AbortHandle,
}

/// What callers say to the supervisor.
#[derive(Default)]
struct Signals {
    /// Somebody waits for a connection.
    wanted: Notify,
    /// Somebody's command was not answered, or the connection is to be left.
    doubted: Notify,
    /// The connection to be left.
    unwanted: AtomicU64,
    /// Who waits for an answer, and since when.
    pulse: Pulse,
}

/// An answer, and the connection that it came by.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) generation: u64,
}

/// What became of a call: an answer, or what a refusal asks for; or it was not sent, or not answered.
pub(crate) type Outcome = Result<Result<Answer, Verdict>>;

impl Link {
    /// A connection to this server, which has to be a master and no part of a cluster. It is opened in the background.
    /// Attempts to connect take up to `timeout`.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn open(server: Server, timeout: Duration) -> Self {
        Link::to(Target::Fixed(Arc::new(server), Expected::Master), timeout)
    }

    /// A connection to this target, which is opened in the background.
    pub(crate) fn to(target: Target, timeout: Duration) -> Self {
        let not_yet = Error::new(Kind::Unavailable, format!("there is no connection to {target} yet"))
            .advice("it takes longer than usual: is the server busy, or the network slow?")
            .retry(Retry::Later);
        let (tell, state) = watch::channel(State::New(not_yet));
        let signals = Arc::new(Signals::default());
        let supervisor = Supervisor::new(target, timeout, tell, signals.clone());
        Link { state, signals, task: Task::spawn(supervisor.run()) }
    }

    /// Sends one call, and a script in full if the server does not know it. Ends within `time` and a little.
    pub async fn run(&self, call: &Call, time: Duration) -> Result<Value> {
        let deadline = Instant::now() + time;
        match self.call(call, deadline).await? {
            Ok(answer) => Ok(answer.value),
            Err(Verdict::Again(e) | Verdict::NotMaster(e) | Verdict::Failed(e)) => Err(e),
            Err(Verdict::NoScript | Verdict::Moved(_) | Verdict::Ask(_)) => {
                Err(Error::new(Kind::Store, "the server answered with something that makes no sense here"))
            }
        }
    }

    /// Waits until there is a connection: [`run`](Link::run) does it by itself, for a short time.
    pub async fn ready(&self, time: Duration) -> Result<()> {
        self.up(Instant::now() + time).await.map(drop)
    }

    /// The usual way: sends a call if there is a connection, within the link's own time, and does nothing else. `None` if
    /// there is no connection; then nothing was sent.
    pub(crate) async fn quick(&self, call: &Call) -> Option<Outcome> {
        let mut up = self.up_now()?;
        let source = up.source.clone();
        let end = source.end()?;
        let _waiting = self.signals.pulse.begin();
        let answer = tokio::select! {
            biased;
            answer = up.conn.send_packed_command(&call.cmd) => answer,
            () = end => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        };
        Some(match answer {
            Ok(value) => Ok(up.read(value)),
            Err(e) => Err(self.lost(&up, &e)),
        })
    }

    /// As [`run`](Link::run), and leaves it to the caller what to do about a refusal.
    pub(crate) async fn call(&self, call: &Call, deadline: Instant) -> Outcome {
        match self.send(&call.cmd, deadline).await? {
            Err(Verdict::NoScript) => self.call_in_full(call, deadline).await,
            answer => Ok(answer),
        }
    }

    /// Sends a script with its text.
    pub(crate) async fn call_in_full(&self, call: &Call, deadline: Instant) -> Outcome {
        match call.in_full() {
            None => Ok(Err(Verdict::NoScript)),
            Some(cmd) => self.send(&cmd, deadline).await,
        }
    }

    /// As [`call`](Link::call), on a node that a slot is being moved to. Nothing may come between the two commands.
    pub(crate) async fn call_asking(&self, call: &Call, deadline: Instant) -> Outcome {
        let mut answer = self.asking(call.cmd.clone(), deadline).await?;
        if let (Err(Verdict::NoScript), Some(cmd)) = (&answer, call.in_full()) {
            answer = self.asking(cmd, deadline).await?;
        }
        Ok(answer)
    }

    async fn asking(&self, cmd: Cmd, deadline: Instant) -> Outcome {
        let (_, mut answers) = self.call_all([redis::cmd("ASKING"), cmd], deadline).await?;
        answers.pop().ok_or_else(|| Error::new(Kind::Store, "there was no answer"))
    }

    /// Sends many in one go. The error means that none was answered.
    pub(crate) async fn call_all(
        &self,
        cmds: impl IntoIterator<Item = Cmd>,
        deadline: Instant,
    ) -> Result<(Arc<Source>, Vec<Result<Answer, Verdict>>)> {
        let cmds = cmds.into_iter();
        let mut pipe = Pipeline::with_capacity(cmds.size_hint().0);
        for cmd in cmds {
            pipe.add_command(cmd);
        }
        let mut up = self.up_for_call(deadline).await?;
        up.conn.set_response_timeout(deadline.saturating_duration_since(Instant::now()));
        match up.conn.send_packed_commands(&pipe, 0, pipe.len()).await {
            Ok(values) if values.len() == pipe.len() => {
                let answers = values.into_iter().map(|value| up.read(value)).collect();
                Ok((up.source, answers))
            }
            Ok(_) => Err(Error::new(Kind::Unavailable, "the server gave fewer answers than questions")),
            Err(e) => Err(self.lost(&up, &e)),
        }
    }

    async fn send(&self, cmd: &Cmd, deadline: Instant) -> Outcome {
        let mut up = self.up_for_call(deadline).await?;
        up.conn.set_response_timeout(deadline.saturating_duration_since(Instant::now()));
        match up.conn.send_packed_command(cmd).await {
            Ok(value) => Ok(up.read(value)),
            Err(e) => Err(self.lost(&up, &e)),
        }
    }

    /// What happened to a command that was on its way: what the supervisor says, if it ended the connection.
    fn lost(&self, up: &Up, e: &RedisError) -> Error {
        self.signals.doubted.notify_one();
        if !e.is_timeout() {
            up.source.die();
        }
        match &*self.state.borrow() {
            State::Down(why) if !e.is_timeout() => trouble::on_the_way(why.what(), e),
            _ if e.is_timeout() => trouble::on_the_way(&unanswered(&up.source.address), e),
            _ => trouble::on_the_way(&ended(&up.source.address, "was lost"), e),
        }
    }

    /// The connection has to be replaced: what it leads to is not what we want.
    pub(crate) fn leave(&self) {
        if let Some(source) = self.source() {
            self.signals.unwanted.store(source.generation, Ordering::Relaxed);
            self.signals.doubted.notify_one();
        }
    }

    /// The connection may be dead: it is looked at.
    pub(crate) fn doubt(&self) {
        self.signals.doubted.notify_one();
    }

    /// The connection, or a moment's wait for it.
    async fn up_for_call(&self, deadline: Instant) -> Result<Up> {
        match self.up_now() {
            Some(up) => Ok(up),
            None => self.up(deadline.min(Instant::now() + PATIENCE)).await,
        }
    }

    fn up_now(&self) -> Option<Up> {
        match &*self.state.borrow() {
            State::Up(up) if !up.source.is_dead() => Some(up.clone()),
            _ => None,
        }
    }

    /// The first connection. A server that refuses is tried for a moment, because it may be starting.
    pub(crate) async fn opened(&self, until: Instant) -> Result<()> {
        let mut state = self.state.clone();
        let tried = state.wait_for(|state| !matches!(state, State::New(_)));
        // The attempt has the same limit, and its own words for what happened.
        let _ = timeout_at(until + GRACE, tried).await;
        self.up(until.min(Instant::now() + PATIENCE)).await.map(drop)
    }

    /// The connection, or a wait for it until then.
    async fn up(&self, until: Instant) -> Result<Up> {
        let mut state = self.state.clone();
        self.signals.wanted.notify_one();
        loop {
            match &*state.borrow_and_update() {
                State::Up(up) if !up.source.is_dead() => return Ok(up.clone()),
                State::Down(e) if e.retry_advice() == Retry::Never => return Err(e.clone()),
                _ => {}
            }
            match timeout_at(until, state.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(closed()),
                Err(_) => return Err(not_in_time(&state.borrow())),
            }
        }
    }

    /// What answers come from now, if there is a connection.
    pub(crate) fn source(&self) -> Option<Arc<Source>> {
        match &*self.state.borrow() {
            State::Up(up) if !self.task.has_ended() && !up.source.is_dead() => Some(up.source.clone()),
            _ => None,
        }
    }

    /// Whether the runtime that it was opened in still runs, and it was not closed.
    pub(crate) fn is_alive(&self) -> bool {
        !self.task.has_ended()
    }

    /// Closes the connection for good. What waits to be written is never written, also if the runtime of the link stands still.
    pub(crate) fn close(&self) {
        self.task.abort();
        if let State::Up(up) = &*self.state.borrow() {
            up.driver.abort();
            up.source.die();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

impl Up {
    fn read(&self, value: Value) -> Result<Answer, Verdict> {
        match value {
            Value::ServerError(e) => Err(trouble::judge(&e, &self.source.address)),
            value => Ok(Answer { value, generation: self.source.generation }),
        }
    }
}

/// There are no connections any more, and there won't be.
pub(crate) fn closed() -> Error {
    Error::new(Kind::Unavailable, "the connections of this session were closed").retry(Retry::Never)
}

fn ended(address: &Address, how: &str) -> String {
    format!("the connection to the server {address} {how}")
}

fn unanswered(address: &Address) -> String {
    format!("the server {address} did not answer in time")
}

/// Nothing was sent, whatever the reason was.
fn not_in_time(state: &State) -> Error {
    match state {
        State::Down(e) | State::New(e) => e.clone().retry(Retry::Later),
        State::Up(up) => {
            let what = ended(&up.source.address, "was closed");
            Error::new(Kind::Unavailable, what).retry(Retry::Later)
        }
    }
}
