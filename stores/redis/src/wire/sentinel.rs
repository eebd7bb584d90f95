//! Which server is the master, by what Sentinels say.
//!
//! - **Asked** for each new connection, in turn; who answered is asked first the next time.
//! - **Heard**: `+switch-master` on one of them, so that a failover is followed at once and not by the first error.
//! - **Not trusted**: the server that they name has to say itself that it is the master.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use redis::aio::{AsyncPushSender, SendError};
use redis::{Cmd, PushInfo, PushKind, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::ask::ask;
use super::backoff::Backoff;
use super::check::{Expected, text};
use super::dial::{Dialed, Purpose, dial};
use super::task::Task;
use crate::config::{Address, Server};

/// How long one Sentinel has to answer, where there are others to ask.
const TURN: Duration = Duration::from_millis(500);

/// How long what was heard of a switch counts more than what a Sentinel says that may not have heard of it.
const NEWS: Duration = Duration::from_secs(2);

/// How often a silent Sentinel is asked whether it is still there.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// How many Sentinels are remembered.
const MOST: usize = 32;

/// Follows the master.
pub(crate) struct Follower {
    known: Arc<Known>,
    ear: Task,
}

/// What is known of the master and of the Sentinels.
struct Known {
    /// What the Sentinels call it.
    name: String,
    /// How to be let in.
    server: Server,
    /// Whom to ask, the best first.
    sentinels: Mutex<Vec<Server>>,
    /// The last that was heard or found.
    master: watch::Sender<Option<Address>>,
    /// When a switch was heard.
    heard: Mutex<Option<Instant>>,
    timeout: Duration,
}

impl Follower {
    /// Starts to listen.
    pub(crate) fn start(sentinels: Vec<Server>, name: String, server: Server, timeout: Duration) -> Self {
        let known = Arc::new(Known {
            name,
            server,
            sentinels: Mutex::new(sentinels),
            master: watch::Sender::new(None),
            heard: Mutex::default(),
            timeout,
        });
        Follower { ear: Task::spawn(listen(known.clone())), known }
    }

    /// What the Sentinels call the master.
    pub(crate) fn name(&self) -> &str {
        &self.known.name
    }

    /// The server to connect to.
    pub(crate) async fn find(&self, deadline: Instant) -> Result<Arc<Server>> {
        let address = match self.known.news() {
            Some(address) => address,
            None => self.known.ask_all(deadline).await?,
        };
        Ok(Arc::new(self.known.server.moved_to(address)))
    }

    /// What was found can't be used: somebody else is asked the next time.
    pub(crate) fn distrust(&self) {
        *lock(&self.known.heard) = None;
        let mut sentinels = lock(&self.known.sentinels);
        if !sentinels.is_empty() {
            sentinels.rotate_left(1);
        }
    }

    /// Ends it for good.
    pub(crate) fn close(&self) {
        self.ear.abort();
    }

    /// Waits until another server than this one is the master.
    pub(crate) async fn left(&self, address: &Address) {
        let mut master = self.known.master.subscribe();
        let other = master.wait_for(|master| master.as_ref().is_some_and(|master| master != address));
        if other.await.is_err() {
            std::future::pending().await
        }
    }
}

impl Known {
    /// The master that a switch named a moment ago.
    fn news(&self) -> Option<Address> {
        let heard = (*lock(&self.heard))?;
        (heard.elapsed() < NEWS).then(|| self.master.borrow().clone()).flatten()
    }

    /// Asks one after the other until one names the master.
    async fn ask_all(&self, deadline: Instant) -> Result<Address> {
        let sentinels = lock(&self.sentinels).clone();
        let mut reason: Option<Error> = None;
        for sentinel in &sentinels {
            match self.ask_one(sentinel, deadline.min(Instant::now() + TURN)).await {
                Ok(address) => {
                    self.prefer(sentinel);
                    self.master.send_replace(Some(address.clone()));
                    return Ok(address);
                }
                // One that can be asked, and can't help, says more than one that can't be reached.
                Err(e) if reason.as_ref().is_none_or(|reason| reason.retry_advice() != Retry::Never) => {
                    reason = Some(e);
                }
                Err(_) => {}
            }
        }
        Err(reason.unwrap_or_else(|| Error::new(Kind::Invalid, "there is no Sentinel to ask")))
    }

    async fn ask_one(&self, sentinel: &Server, deadline: Instant) -> Result<Address> {
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let answer = ask(sentinel, Expected::Sentinel, &cmd, deadline).await?;
        let unknown = || {
            let what = format!("the Sentinel {} knows no master called {:?}", sentinel.address, self.name);
            Error::new(Kind::Invalid, what).advice("check the name: SENTINEL MASTERS lists those it knows")
        };
        let Value::Array(parts) = answer else { return Err(unknown()) };
        let [host, port] = parts.as_slice() else { return Err(unknown()) };
        let port = text(port).parse().map_err(|_| unknown())?;
        Ok(Address::tcp(text(host), port))
    }

    /// Asks this one first from now on.
    fn prefer(&self, sentinel: &Server) {
        let mut sentinels = lock(&self.sentinels);
        if let Some(at) = sentinels.iter().position(|other| other == sentinel) {
            sentinels[..=at].rotate_right(1);
        }
    }

    /// Remembers those that a Sentinel knows of.
    fn learn(&self, like: &Server, answer: &Value) {
        let mut sentinels = lock(&self.sentinels);
        for address in others(answer) {
            let known = sentinels.iter().any(|sentinel| sentinel.address == address);
            if !known && sentinels.len() < MOST {
                sentinels.push(like.moved_to(address));
            }
        }
    }

    /// A message of a Sentinel: `name old-host old-port new-host new-port`.
    fn switched(&self, message: &str) {
        let mut words = message.split(' ');
        if words.next() != Some(&self.name) {
            return;
        }
        if let (Some(host), Some(Ok(port))) = (words.nth(2), words.next().map(str::parse)) {
            let address = Address::tcp(host, port);
            tracing::info!(target: "leasehold", master = %address, "Sentinel: another server is the master");
            *lock(&self.heard) = Some(Instant::now());
            self.master.send_replace(Some(address));
        }
    }
}

/// The addresses in an answer to `SENTINEL SENTINELS`: a list of lists of pairs (or of maps).
fn others(answer: &Value) -> Vec<Address> {
    let Value::Array(list) = answer else { return Vec::new() };
    let field = |item: &Value, key: &str| match item {
        Value::Array(pairs) => {
            pairs.chunks_exact(2).find(|pair| text(&pair[0]) == key).map(|pair| text(&pair[1]))
        }
        Value::Map(pairs) => pairs.iter().find(|pair| text(&pair.0) == key).map(|pair| text(&pair.1)),
        _ => None,
    };
    list.iter()
        .filter_map(|item| Some(Address::tcp(field(item, "ip")?, field(item, "port")?.parse().ok()?)))
        .collect()
}

/// Takes the messages of a Sentinel.
struct Ear(Arc<Known>);

impl AsyncPushSender for Ear {
    fn send(&self, info: PushInfo) -> Result<(), SendError> {
        if let (PushKind::Message, Some(message)) = (info.kind, info.data.get(1)) {
            self.0.switched(&text(message));
        }
        Ok(())
    }
}

/// Keeps a subscription to one of the Sentinels up.
async fn listen(known: Arc<Known>) {
    let mut backoff = Backoff::connecting();
    loop {
        let sentinels = lock(&known.sentinels).clone();
        for sentinel in &sentinels {
            match subscribe(&known, sentinel).await {
                Ok(dialed) => {
                    backoff.reset();
                    stay(dialed, known.timeout).await;
                    tracing::debug!(sentinel = %sentinel.address, "Sentinel: the subscription ended");
                }
                Err(e) => tracing::debug!(sentinel = %sentinel.address, "Sentinel: no subscription: {e}"),
            }
        }
        sleep(backoff.delay()).await;
    }
}

async fn subscribe(known: &Arc<Known>, sentinel: &Server) -> Result<Dialed> {
    let deadline = Instant::now() + known.timeout;
    let ear = Arc::new(Ear(known.clone()));
    let mut dialed = dial(sentinel, Purpose::Pushes(ear), deadline).await?;
    dialed.conn.set_response_timeout(known.timeout);
    say(&mut dialed, redis::cmd("SUBSCRIBE").arg("+switch-master")).await?;
    let answer = say(&mut dialed, redis::cmd("SENTINEL").arg("SENTINELS").arg(&known.name)).await;
    if let Ok(answer) = answer {
        known.learn(sentinel, &answer);
    }
    // What happened before the subscription was not heard.
    if let Ok(address) = known.ask_one(sentinel, deadline).await {
        known.master.send_replace(Some(address));
    }
    Ok(dialed)
}

async fn say(dialed: &mut Dialed, cmd: &Cmd) -> Result<Value> {
    let failed = |why: String| Error::new(Kind::Unavailable, why).retry(Retry::Later);
    match dialed.conn.send_packed_command(cmd).await {
        Ok(Value::ServerError(e)) => Err(failed(e.to_string())),
        Ok(value) => Ok(value),
        Err(e) => Err(failed(e.to_string())),
    }
}

/// Stays until the connection ends or the Sentinel no longer answers.
async fn stay(mut dialed: Dialed, timeout: Duration) {
    dialed.conn.set_response_timeout(timeout.min(HEARTBEAT));
    loop {
        tokio::select! {
            () = dialed.driver.ended() => return,
            () = sleep(HEARTBEAT) => {}
        }
        if dialed.conn.send_packed_command(&redis::cmd("PING")).await.is_err() {
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
