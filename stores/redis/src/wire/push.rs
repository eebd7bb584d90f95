//! One server: a connection for pushes that is kept up.
//!
//! It is apart from the connection for commands because messages must not wait behind answers, and because an unasked-for
//! `sunsubscribe` (a slot that leaves its node) makes redis-rs give answers to the wrong callers. Here nobody else waits for
//! an answer, and the connection is replaced when one comes.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout_at};

use super::backoff::Backoff;
use super::channels;
use super::check::{self, Role};
use super::context::Context;
use super::dial::{Purpose, dial};
use super::link::closed;
use super::target::Target;
use super::task::Task;
use super::trouble::{self, Verdict};
use crate::config::Address;

/// How often a silent connection is asked whether it is still there.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// How long to wait after the server refused the subscription: only an administrator can change that.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// A supervised subscription to the channels of one session on one node.
pub(crate) struct Push {
    state: watch::Receiver<Hearing>,
    task: Task,
}

/// Whether messages arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hearing {
    NotYet,
    /// They do; with or without those of the channel of events.
    Yes {
        events: bool,
    },
    /// The server does not let us.
    Refused,
}

/// What the subscription has to know of its node.
pub(crate) struct Place {
    /// The number of the node.
    pub(crate) node: u64,
    /// Where it is.
    pub(crate) target: Target,
    /// Its tag, which changes when its lowest slot does.
    pub(crate) tag: watch::Receiver<Arc<str>>,
    /// Told when something is wrong with the node, so that its other connection is looked at too.
    pub(crate) alarm: Arc<dyn Fn(Alarm) + Send + Sync>,
}

/// What a subscription notices of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// It does not answer.
    Silent,
    /// It is no longer the one that we want: a replica, or without the slot of its tag.
    Changed,
}

impl Push {
    /// Subscribes in the background.
    pub(crate) fn to(place: Place, context: Arc<Context>) -> Self {
        let (tell, state) = watch::channel(Hearing::NotYet);
        let supervisor = Supervisor { place, context, tell };
        Push { state, task: Task::spawn(supervisor.run()) }
    }

    /// Waits until messages arrive. `false` if they don't until then, or can't at all.
    pub(crate) async fn listening(&self, until: Instant) -> bool {
        let mut state = self.state.clone();
        let settled = state.wait_for(|hearing| *hearing != Hearing::NotYet);
        match timeout_at(until, settled).await {
            Ok(Ok(hearing)) => matches!(*hearing, Hearing::Yes { .. }) && !self.task.has_ended(),
            _ => false,
        }
    }

    /// Waits until the messages of the channel of events arrive, or no longer do.
    pub(crate) async fn events_are(&self, on: bool, until: Instant) -> Result<()> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|hearing| match hearing {
            Hearing::NotYet => !on,
            Hearing::Yes { events } => *events == on,
            Hearing::Refused => true,
        });
        match timeout_at(until, settled).await {
            Ok(Ok(hearing)) if on && *hearing == Hearing::Refused => {
                Err(Error::new(Kind::Refused, "the server does not let our user subscribe to a channel")
                    .advice("give it the rights that the documentation of the Redis store lists"))
            }
            Ok(Ok(_)) => Ok(()),
            _ => {
                Err(Error::new(Kind::Unavailable, "the channel of events could not be subscribed to in time")
                    .retry(Retry::Later))
            }
        }
    }

    /// Ends it for good.
    pub(crate) fn close(&self) {
        self.task.abort();
    }
}

/// The channels of one connection.
#[derive(Clone)]
struct Names {
    session: String,
    events: String,
}

/// Takes what the server sends, in the task that drives the connection: messages stay in order, and reach the session
/// without a detour.
struct Ear {
    names: Names,
    context: Arc<Context>,
    /// The server ended a subscription unasked.
    dropped: Arc<Notify>,
}

impl AsyncPushSender for Ear {
    fn send(&self, info: PushInfo) -> Result<(), SendError> {
        let channel = match info.data.first() {
            Some(Value::BulkString(channel)) => channel.as_slice(),
            _ => return Ok(()),
        };
        let own = channel == self.names.session.as_bytes();
        match (info.kind, info.data.get(1)) {
            (PushKind::Message | PushKind::SMessage, Some(Value::BulkString(payload))) => {
                if own {
                    self.context.pushes.note(payload);
                } else if channel == self.names.events.as_bytes() {
                    self.context.pushes.event(payload);
                }
            }
            // We end the one of events ourselves, and only when nobody wants it.
            (PushKind::Unsubscribe | PushKind::SUnsubscribe, _) if own || *self.context.events.borrow() => {
                self.dropped.notify_one();
            }
            _ => {}
        }
        Ok(())
    }
}

/// The task that keeps the subscription up.
struct Supervisor {
    place: Place,
    context: Arc<Context>,
    tell: watch::Sender<Hearing>,
}

/// A connection that is subscribed.
struct Subscribed {
    conn: MultiplexedConnection,
    driver: Task,
    address: Address,
    names: Names,
    dropped: Arc<Notify>,
    /// Whether the channel of events is subscribed to.
    events: bool,
}

impl Supervisor {
    async fn run(mut self) {
        let mut backoff = Backoff::connecting();
        let mut warned = false;
        loop {
            let pause = match self.subscribe().await {
                Ok(subscribed) => {
                    backoff.reset();
                    warned = false;
                    self.tell.send_replace(Hearing::Yes { events: subscribed.events });
                    self.context.pushes.resumed(self.place.node);
                    let why = self.listen(subscribed).await;
                    tracing::debug!(node = self.place.node, "pushes ended: {why}");
                    self.tell.send_replace(Hearing::NotYet);
                    backoff.delay()
                }
                Err(e) if e.retry_advice() == Retry::Never => {
                    if !std::mem::replace(&mut warned, true) {
                        let store = self.context.config.url();
                        tracing::warn!(target: "leasehold", store, error = %e, "no messages from the server, so waiting takes longer");
                    }
                    self.tell.send_replace(Hearing::Refused);
                    REFUSED_PAUSE
                }
                Err(e) => {
                    tracing::debug!(node = self.place.node, "no pushes: {e}");
                    (self.place.alarm)(Alarm::Silent);
                    backoff.delay()
                }
            };
            sleep(pause).await;
        }
    }

    async fn subscribe(&mut self) -> Result<Subscribed> {
        let names = self.names().await?;
        let deadline = Instant::now() + self.context.config.timeout();
        let server = self.place.target.find(deadline).await?;
        let dropped = Arc::new(Notify::new());
        let ear = Ear { names: names.clone(), context: self.context.clone(), dropped: dropped.clone() };
        let dialed = dial(&server, Purpose::Pushes(Arc::new(ear)), deadline).await?;
        let mut conn = dialed.conn;
        conn.set_response_timeout(self.context.config.timeout());
        let (driver, address) = (dialed.driver, server.address.clone());
        let mut subscribed = Subscribed { conn, driver, address, names, dropped, events: false };
        self.say(&mut subscribed, "SUBSCRIBE", |names| &names.session).await?;
        self.follow_events(&mut subscribed).await?;
        check::name_push(&mut subscribed.conn).await;
        Ok(subscribed)
    }

    /// The names of the channels. A node of a cluster that owns no slot has none yet.
    async fn names(&mut self) -> Result<Names> {
        let cluster = self.context.config.is_cluster();
        match self.place.tag.wait_for(|tag| !cluster || !tag.is_empty()).await {
            Ok(tag) => Ok(self.context.names(&tag)),
            Err(_) => Err(closed()),
        }
    }

    /// Subscribes to the channel of events, or ends it, as it is wanted.
    async fn follow_events(&self, subscribed: &mut Subscribed) -> Result<()> {
        let wanted = *self.context.events.borrow();
        if wanted != subscribed.events {
            let verb = if wanted { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
            self.say(subscribed, verb, |names| &names.events).await?;
            subscribed.events = wanted;
        }
        Ok(())
    }

    /// Subscribes to a channel, or ends it.
    async fn say(
        &self,
        subscribed: &mut Subscribed,
        verb: &str,
        channel: impl Fn(&Names) -> &String,
    ) -> Result<()> {
        let verb = if self.context.config.is_cluster() { format!("S{verb}") } else { verb.to_owned() };
        let mut cmd = redis::cmd(&verb);
        cmd.arg(channel(&subscribed.names));
        match subscribed.conn.send_packed_command(&cmd).await {
            Ok(Value::ServerError(e)) => Err(refused(trouble::judge(&e, &subscribed.address))),
            Ok(_) => Ok(()),
            Err(e) => Err(trouble::on_connect(&subscribed.address, &e)),
        }
    }

    /// Stays until something ends the subscription, and tells what.
    async fn listen(&mut self, mut subscribed: Subscribed) -> &'static str {
        let mut events = self.context.events.clone();
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tag = self.place.tag.clone();
        let target = self.place.target.clone();
        loop {
            tokio::select! {
                () = subscribed.driver.ended() => {
                    (self.place.alarm)(Alarm::Silent);
                    return "the connection was closed";
                }
                () = subscribed.dropped.notified() => {
                    (self.place.alarm)(Alarm::Changed);
                    return "the server ended the subscription";
                }
                () = target.left(&subscribed.address) => return "another server is the master",
                Ok(()) = tag.changed() => return "the channel has another name now",
                Ok(()) = events.changed() => {
                    if self.follow_events(&mut subscribed).await.is_err() {
                        return "the channel of events was refused";
                    }
                    self.tell.send_replace(Hearing::Yes { events: subscribed.events });
                }
                _ = heartbeat.tick() => match self.beat(&mut subscribed.conn).await {
                    None => {}
                    Some(alarm) => {
                        (self.place.alarm)(alarm);
                        return "it does not answer, or is a replica now";
                    }
                }
            }
        }
    }

    /// Asks whether the server is still there, and where we follow a master, whether it still is one.
    async fn beat(&self, conn: &mut MultiplexedConnection) -> Option<Alarm> {
        conn.set_response_timeout(self.context.config.timeout().min(HEARTBEAT));
        if self.place.target.follows()
            && let Some(Role::Replica(_)) = check::role(conn).await
        {
            return Some(Alarm::Changed);
        }
        match conn.send_packed_command(&redis::cmd("PING")).await {
            Ok(_) => None,
            Err(_) => Some(Alarm::Silent),
        }
    }
}

impl Context {
    fn names(&self, tag: &str) -> Names {
        Names {
            session: channels::session(self.config.prefix(), tag, self.session),
            events: channels::events(self.config.prefix(), tag, self.config.db()),
        }
    }
}

/// A slot that moved or a server that starts is no reason to give up.
fn refused(verdict: Verdict) -> Error {
    match verdict {
        Verdict::Failed(e) | Verdict::Again(e) | Verdict::NotMaster(e) => e,
        Verdict::Moved(_) | Verdict::Ask(_) | Verdict::NoScript => {
            Error::new(Kind::Unavailable, "the slot of the channel is on another node").retry(Retry::Later)
        }
    }
}
