//! One server: a connection for commands that is kept up.
//!
//! A task of its own connects, watches the connection, and connects again. Callers find the connection or wait a moment for
//! it; they never connect themselves, so a thousand of them cost a server that comes back one connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::backoff::Backoff;
use super::call::Call;
use super::check::{self, Expected};
use super::dial::{Dialed, Purpose, dial};
use super::target::Target;
use super::task::Task;
use super::trouble::{self, Verdict};
use crate::config::{Address, Server};

/// How long a call waits for a connection. A restart takes less; who waits longer had better be told.
const PATIENCE: Duration = Duration::from_millis(500);

/// How much later than its limit the end of an attempt may be seen.
const GRACE: Duration = Duration::from_millis(200);

/// How long a connection in doubt has to answer a `PING`.
const PING_TIME: Duration = Duration::from_millis(500);

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
pub(crate) struct Up {
    conn: MultiplexedConnection,
    source: Arc<Source>,
}

/// What answers came from.
#[derive(Debug)]
pub(crate) struct Source {
    /// Where the connection goes.
    pub(crate) address: Address,
    /// Counts the connections of a link, from 1.
    pub(crate) generation: u64,
    /// The server's process, if our user may know it.
    process: Option<String>,
}

impl Source {
    /// Whether both are connections to the same server, as far as can be known.
    pub(crate) fn is_same_server(&self, other: &Source) -> bool {
        self.address == other.address && self.process == other.process
    }
}

/// What callers say to the supervisor.
#[derive(Default)]
struct Signals {
    /// Somebody waits for a connection.
    wanted: Notify,
    /// Somebody's command was not answered in time, or the connection is to be left.
    doubted: Notify,
    /// The connection to be left.
    unwanted: AtomicU64,
}

/// An answer, and the connection that it came by.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) generation: u64,
}

impl Link {
    /// A connection to this server, which has to be a master and no part of a cluster. It is opened in the background.
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
        let supervisor = Supervisor { target, timeout, tell, signals: signals.clone(), generation: 0 };
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

    /// As [`run`](Link::run), and leaves it to the caller what to do about a refusal.
    pub(crate) async fn call(&self, call: &Call, deadline: Instant) -> Result<Result<Answer, Verdict>> {
        let mut up = self.up_for_call(deadline).await?;
        let value = self.send(&mut up, &call.cmd, deadline).await?;
        match up.read(value) {
            Err(Verdict::NoScript) => match call.in_full() {
                None => Ok(Err(Verdict::NoScript)),
                Some(cmd) => {
                    let value = self.send(&mut up, &cmd, deadline).await?;
                    Ok(up.read(value))
                }
            },
            answer => Ok(answer),
        }
    }

    /// As [`call`](Link::call), on a node that a slot is being moved to. Nothing may come between the two commands.
    pub(crate) async fn call_asking(
        &self,
        call: &Call,
        deadline: Instant,
    ) -> Result<Result<Answer, Verdict>> {
        let mut answer = self.asking(call.cmd.clone(), deadline).await?;
        if let (Err(Verdict::NoScript), Some(cmd)) = (&answer, call.in_full()) {
            answer = self.asking(cmd, deadline).await?;
        }
        Ok(answer)
    }

    async fn asking(&self, cmd: Cmd, deadline: Instant) -> Result<Result<Answer, Verdict>> {
        let mut answers = self.call_all([redis::cmd("ASKING"), cmd], deadline).await?;
        answers.1.pop().ok_or_else(|| Error::new(Kind::Store, "there was no answer"))
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

    async fn send(&self, up: &mut Up, cmd: &Cmd, deadline: Instant) -> Result<Value> {
        up.conn.set_response_timeout(deadline.saturating_duration_since(Instant::now()));
        match up.conn.send_packed_command(cmd).await {
            Ok(value) => Ok(value),
            Err(e) => Err(self.lost(up, &e)),
        }
    }

    fn lost(&self, up: &Up, e: &RedisError) -> Error {
        self.signals.doubted.notify_one();
        trouble::on_the_way(&up.source.address, e)
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
        if let State::Up(up) = &*self.state.borrow() {
            return Ok(up.clone());
        }
        self.up(deadline.min(Instant::now() + PATIENCE)).await
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
    pub(crate) async fn up(&self, until: Instant) -> Result<Up> {
        let mut state = self.state.clone();
        self.signals.wanted.notify_one();
        loop {
            match &*state.borrow_and_update() {
                State::Up(up) => return Ok(up.clone()),
                State::Down(e) if e.retry_advice() == Retry::Never => return Err(e.clone()),
                State::Down(_) | State::New(_) => {}
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
            State::Up(up) if !self.task.has_ended() => Some(up.source.clone()),
            _ => None,
        }
    }

    /// Closes the connection for good.
    pub(crate) fn close(&self) {
        self.task.abort();
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

/// The task that keeps the connection up.
struct Supervisor {
    target: Target,
    timeout: Duration,
    tell: watch::Sender<State>,
    signals: Arc<Signals>,
    generation: u64,
}

impl Supervisor {
    async fn run(mut self) {
        let mut backoff = Backoff::connecting();
        loop {
            match self.connect().await {
                Ok((up, dialed)) => {
                    backoff.reset();
                    self.tell.send_replace(State::Up(up.clone()));
                    let why = self.watch(&up, dialed.driver).await;
                    tracing::debug!("{why}");
                    self.tell.send_replace(State::Down(why));
                }
                Err(e) => {
                    tracing::debug!("no connection: {e}");
                    self.target.distrust();
                    self.tell.send_replace(State::Down(self.soften(e)));
                }
            }
            self.pause(backoff.delay()).await;
        }
    }

    /// What was right once can become right again.
    fn soften(&self, e: Error) -> Error {
        if self.generation > 0 { e.retry(Retry::Later) } else { e }
    }

    async fn connect(&mut self) -> Result<(Up, Dialed)> {
        let deadline = Instant::now() + self.timeout;
        let server = self.target.find(deadline).await?;
        let mut dialed = dial(&server, Purpose::Commands, deadline).await?;
        let process = check::greet(&mut dialed.conn, &server, self.target.expected(), deadline).await?;
        self.generation += 1;
        let source = Source { address: server.address.clone(), generation: self.generation, process };
        Ok((Up { conn: dialed.conn.clone(), source: Arc::new(source) }, dialed))
    }

    /// Watches a connection until it ends, and tells why.
    async fn watch(&self, up: &Up, mut driver: Task) -> Error {
        let Source { address, generation, .. } = &*up.source;
        loop {
            tokio::select! {
                () = driver.ended() => return ended(address, "was closed"),
                () = self.target.left(address) => return ended(address, "was left: another is the master"),
                () = self.signals.doubted.notified() => {}
            }
            if self.signals.unwanted.load(Ordering::Relaxed) == *generation {
                return ended(address, "was left");
            }
            if !answers(up).await {
                return ended(address, "hangs");
            }
        }
    }

    /// Waits before the next attempt, less if somebody wants it: never so long that a caller's patience ends before it, nor
    /// so short that callers bring many clients to the server at once.
    async fn pause(&self, delay: Duration) {
        let wanted = async {
            sleep(delay / 4).await;
            self.signals.wanted.notified().await;
        };
        let _ = timeout(delay, wanted).await;
    }
}

async fn answers(up: &Up) -> bool {
    let mut conn = up.conn.clone();
    conn.set_response_timeout(PING_TIME);
    conn.send_packed_command(&redis::cmd("PING")).await.is_ok()
}

fn ended(address: &Address, how: &str) -> Error {
    Error::new(Kind::Unavailable, format!("the connection to the server {address} {how}")).retry(Retry::Later)
}

pub(crate) fn closed() -> Error {
    Error::new(Kind::Unavailable, "the connections of this session were closed").retry(Retry::Never)
}

/// Nothing was sent, whatever the reason was.
fn not_in_time(state: &State) -> Error {
    match state {
        State::Down(e) | State::New(e) => e.clone().retry(Retry::Later),
        State::Up(up) => ended(&up.source.address, "came too late"),
    }
}
