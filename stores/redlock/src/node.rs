//! One node: a connection that is kept up, the scripts on it, and what its answers mean.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{EntryId, Error, Kind, Label, Name, Result, Retry, SessionId};
use leasehold_redis::config::Server;
use leasehold_redis::wire::{Call, Pushes, Slot, Wire};
use redis::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::config::Config;
use crate::protocol::standing::{Report, Standing};
use crate::scripts::{Keys, Scripts, marker, pattern};

/// The longest pause between attempts to reach a node for the first time.
const PAUSE: Duration = Duration::from_secs(1);

/// One node.
pub(crate) struct Node {
    pub(crate) number: usize,
    /// Where it is, as it may be printed.
    pub(crate) place: String,
    wire: watch::Receiver<Link>,
    dialing: AbortHandle,
    scripts: Arc<Scripts>,
    prefix: String,
    timeout: Duration,
}

/// The connection, or why there is none yet. Once it was there, it looks after itself.
type Link = Result<Arc<Wire>>;

/// One attempt: an entry, and the number of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AttemptId {
    pub(crate) entry: EntryId,
    pub(crate) number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.entry, self.number)
    }
}

impl AttemptId {
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (entry, number) = text.split_once('.')?;
        Some(AttemptId { entry: entry.parse().ok()?, number: number.parse().ok()? })
    }
}

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) session: SessionId,
    pub(crate) label: Label,
    pub(crate) barges: bool,
}

/// What is asked of all nodes.
#[derive(Debug, Clone)]
pub(crate) struct Acquire {
    pub(crate) name: Name,
    pub(crate) id: AttemptId,
    pub(crate) who: Who,
    pub(crate) ttl: Duration,
    pub(crate) floor: u64,
    pub(crate) block: u64,
    pub(crate) up_to: u64,
    /// For how long it waits if it is denied.
    pub(crate) place: Duration,
}

/// The answer to an [`Acquire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// It can't take part.
    NotYet(Standing),
    Granted {
        x: u64,
        counted: bool,
        contended: bool,
    },
    Denied {
        rest: Duration,
        before: u32,
    },
}

/// What is asked about a lease.
#[derive(Debug, Clone)]
pub(crate) struct Extend {
    pub(crate) name: Name,
    pub(crate) id: AttemptId,
    /// `None`: it ends when it ends.
    pub(crate) ttl: Option<Duration>,
    pub(crate) up_to: u64,
    pub(crate) token: u64,
}

/// The answer to an [`Extend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extended {
    pub(crate) standing: Standing,
    pub(crate) state: Ownership,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    Owned { x: u64, counted: bool, contended: bool, asked: bool },
    Expired,
    Revoked,
    Wiped,
}

/// How an entry leaves a node.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    pub(crate) name: Name,
    pub(crate) id: AttemptId,
    pub(crate) used: Used,
    pub(crate) how: How,
}

/// Which tokens were used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Used {
    None,
    UpTo(u64),
    Unknown,
}

/// See `release.lua`.
#[derive(Debug, Clone)]
pub(crate) enum How {
    GiveBack,
    Wait(Duration, Who),
    GoAway,
    Nothing,
    Leave,
    Forget,
}

/// How a lock stands on one node.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) counter: u64,
    pub(crate) owner: Option<OwnerLook>,
    pub(crate) waiting: Vec<WaiterLook>,
}

#[derive(Debug, Clone)]
pub(crate) struct OwnerLook {
    pub(crate) id: AttemptId,
    pub(crate) x: u64,
    pub(crate) rest: Duration,
    pub(crate) session: SessionId,
    pub(crate) label: Label,
    pub(crate) since: u64,
    /// Somebody asked for the lock back.
    pub(crate) asked: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct WaiterLook {
    pub(crate) entry: EntryId,
    pub(crate) rest: Duration,
    pub(crate) since: u64,
    pub(crate) barges: bool,
    pub(crate) session: SessionId,
    pub(crate) label: Label,
}

/// A node's word about itself.
#[derive(Debug, Clone)]
pub(crate) struct Stand {
    pub(crate) report: Report,
    /// Which process it is.
    pub(crate) run: String,
    /// Its clock, in microseconds since 1970.
    pub(crate) now: u64,
    pub(crate) done: bool,
}

impl Node {
    /// Connects in the background: a node that is down when we start may come up later.
    pub(crate) fn start(
        number: usize,
        server: &Server,
        config: &Config,
        scripts: Arc<Scripts>,
        session: SessionId,
        pushes: Arc<dyn Pushes>,
    ) -> Result<Arc<Self>> {
        let place = server.address().to_string();
        let single = leasehold_redis::Config::single(server.clone())
            .with_timeout(config.timeout())
            .with_prefix(config.prefix())?;
        let not_yet = Error::new(Kind::Unavailable, format!("there is no connection to {place} yet"));
        let (tell, wire) = watch::channel(Err(not_yet.retry(Retry::Later)));
        let dialing = tokio::spawn(dial(Arc::new(single), session, pushes, tell)).abort_handle();
        let (prefix, timeout) = (config.prefix().to_owned(), config.timeout());
        Ok(Arc::new(Node { number, place, wire, dialing, scripts, prefix, timeout }))
    }

    /// The connection, or a moment's wait for it.
    async fn wire(&self) -> Result<Arc<Wire>> {
        if let Ok(wire) = &*self.wire.borrow() {
            return Ok(wire.clone());
        }
        let mut link = self.wire.clone();
        let up = tokio::time::timeout(self.timeout, link.wait_for(|link| link.is_ok())).await;
        match up {
            Ok(Ok(link)) => link.clone(),
            // Nothing was sent, whatever the reason is.
            _ => self.wire.borrow().clone().map_err(|e| e.retry(Retry::Later)),
        }
    }

    async fn run(&self, call: Call) -> Result<Value> {
        self.wire().await?.run(call).await
    }

    pub(crate) async fn acquire(&self, ask: &Acquire) -> Result<Acquired> {
        let Acquire { name, id, who, ttl, floor, block, up_to, place } = ask;
        let keys = Keys::of(&self.prefix, name.as_str());
        let call = Call::script(&self.scripts.acquire, Slot(0), &keys.all())
            .arg(id.to_string())
            .arg(id.entry.to_string())
            .arg(who.session.to_string())
            .arg(who.label.as_str())
            .arg(millis(*ttl))
            .arg(*floor)
            .arg(*block)
            .arg(*up_to)
            .arg(millis(*place))
            .arg(u8::from(who.barges));
        let answer = self.run(call).await?;
        let numbers = numbers(&answer)?;
        match numbers.as_slice() {
            [standing] => Ok(Acquired::NotYet(read_standing(*standing)?)),
            [_, 1, x, counted, contended] => {
                Ok(Acquired::Granted { x: *x as u64, counted: *counted == 1, contended: *contended == 1 })
            }
            [_, 0, rest, before] => Ok(Acquired::Denied {
                rest: Duration::from_millis((*rest).max(0) as u64),
                before: u32::try_from(*before).unwrap_or(u32::MAX),
            }),
            _ => Err(unreadable(&answer)),
        }
    }

    pub(crate) async fn confirm(&self, name: &Name, id: AttemptId, token: u64, block: u64) -> Result<bool> {
        let keys = Keys::of(&self.prefix, name.as_str());
        let call = Call::script(&self.scripts.confirm, Slot(0), &keys.all())
            .arg(id.to_string())
            .arg(token)
            .arg(block);
        Ok(numbers(&self.run(call).await?)?.last() == Some(&1))
    }

    /// Asks about many leases in one go; each is answered on its own.
    pub(crate) async fn extend(&self, asks: &[Extend]) -> Vec<Result<Extended>> {
        let calls = asks.iter().map(|ask| {
            let keys = Keys::of(&self.prefix, ask.name.as_str());
            Call::script(&self.scripts.extend, Slot(0), &keys.all())
                .arg(ask.id.to_string())
                .arg(ask.id.entry.to_string())
                .arg(ask.ttl.map_or(0, millis))
                .arg(ask.up_to)
                .arg(ask.token)
        });
        let calls: Vec<Call> = calls.collect();
        let answers = match self.wire().await {
            Err(e) => return asks.iter().map(|_| Err(e.clone())).collect(),
            Ok(wire) if calls.len() == 1 => {
                let mut calls = calls;
                vec![wire.run(calls.remove(0)).await]
            }
            Ok(wire) => wire.run_all(calls).await,
        };
        answers.into_iter().map(|answer| extended(&answer?)).collect()
    }

    /// Tells whether the attempt owned the lock here.
    pub(crate) async fn release(&self, release: &Release) -> Result<bool> {
        let keys = Keys::of(&self.prefix, release.name.as_str());
        let used = match release.used {
            Used::None => 0,
            Used::UpTo(token) => token as i64,
            Used::Unknown => -1,
        };
        let call = Call::script(&self.scripts.release, Slot(0), &keys.all())
            .arg(release.id.to_string())
            .arg(release.id.entry.to_string())
            .arg(used);
        let call = match &release.how {
            How::GiveBack => call.arg("r"),
            How::GoAway => call.arg("g"),
            How::Nothing => call.arg("n"),
            How::Leave => call.arg("l"),
            How::Forget => call.arg("f"),
            How::Wait(place, who) => call
                .arg("a")
                .arg(millis(*place))
                .arg(u8::from(who.barges))
                .arg(who.session.to_string())
                .arg(who.label.as_str()),
        };
        Ok(self.run(call).await? == Value::Int(1))
    }

    pub(crate) async fn revoke(&self, name: &Name, id: AttemptId) -> Result<bool> {
        let keys = Keys::of(&self.prefix, name.as_str());
        let call = Call::script(&self.scripts.revoke, Slot(0), &keys.all()).arg(id.to_string());
        Ok(self.run(call).await? == Value::Int(1))
    }

    /// Asks the attempt to give the lock back. Tells whether it owns it here.
    pub(crate) async fn request(&self, name: &Name, id: AttemptId) -> Result<bool> {
        let keys = Keys::of(&self.prefix, name.as_str());
        let call = Call::script(&self.scripts.request, Slot(0), &keys.all()).arg(id.to_string());
        Ok(self.run(call).await? == Value::Int(1))
    }

    pub(crate) async fn look(&self, name: &Name) -> Result<Look> {
        let keys = Keys::of(&self.prefix, name.as_str());
        let answer = self.run(Call::script(&self.scripts.look, Slot(0), &keys.all())).await?;
        look(&answer).ok_or_else(|| unreadable(&answer))
    }

    /// The names of all locks on this node that somebody has or waits for.
    pub(crate) async fn names(&self, start: &str) -> Result<Vec<Name>> {
        let (marker, pattern) = (marker(&self.prefix), pattern(&self.prefix, start));
        let (mut cursor, mut names) = ("0".to_owned(), Vec::new());
        loop {
            let call = Call::script(&self.scripts.list, Slot(0), &[&marker]).arg(&cursor).arg(&pattern);
            let answer = self.run(call).await?;
            let Value::Array(words) = &answer else { return Err(unreadable(&answer)) };
            let mut words = words.iter().map(text);
            cursor = words.next().flatten().ok_or_else(|| unreadable(&answer))?.to_owned();
            // What is no name was not written by us.
            names.extend(words.flatten().filter_map(|name| Name::new(name).ok()));
            if cursor == "0" {
                return Ok(names);
            }
        }
    }

    /// Asks the node how it stands, or tells it what to become.
    pub(crate) async fn stand(&self, what: &str, args: &[u64]) -> Result<Stand> {
        let mut call = Call::script(&self.scripts.standing, Slot(0), &[&marker(&self.prefix)]).arg(what);
        for arg in args {
            call = call.arg(*arg);
        }
        let answer = self.run(call).await?;
        stand(&answer).ok_or_else(|| unreadable(&answer))
    }

    /// Any other command.
    pub(crate) async fn ask(&self, words: &[&str]) -> Result<Value> {
        let mut cmd = redis::cmd(words[0]);
        for word in &words[1..] {
            cmd.arg(*word);
        }
        self.run(Call::command(Slot(0), cmd)).await
    }

    pub(crate) async fn watch_events(&self, on: bool) -> Result<()> {
        self.wire().await?.watch_events(on).await
    }

    /// Waits until the node has done what it was told, if it is there.
    pub(crate) async fn flush(&self) {
        if self.wire.borrow().is_ok() {
            let _ = self.ask(&["PING"]).await;
        }
    }

    pub(crate) async fn close(&self) {
        self.dialing.abort();
        let wire = self.wire.borrow().clone();
        if let Ok(wire) = wire {
            wire.close().await;
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.dialing.abort();
    }
}

async fn dial(
    config: Arc<leasehold_redis::Config>,
    session: SessionId,
    pushes: Arc<dyn Pushes>,
    tell: watch::Sender<Link>,
) {
    let mut pause = Duration::from_millis(20);
    loop {
        let opened = Wire::open(config.clone(), session, pushes.clone()).await;
        let done = opened.is_ok();
        drop(tell.send_replace(opened));
        if done {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn numbers(value: &Value) -> Result<Vec<i64>> {
    let number = |value: &Value| if let Value::Int(n) = value { Some(*n) } else { None };
    match value {
        Value::Array(all) => all.iter().map(number).collect::<Option<_>>().ok_or_else(|| unreadable(value)),
        _ => Err(unreadable(value)),
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn read_standing(code: i64) -> Result<Standing> {
    match code {
        0 => Ok(Standing::Blank),
        1 => Ok(Standing::New),
        2 => Ok(Standing::Open),
        3 => Ok(Standing::Quarantined),
        _ => Err(unreadable(&Value::Int(code))),
    }
}

fn extended(value: &Value) -> Result<Extended> {
    let numbers = numbers(value)?;
    let [standing, state, x, counted, contended, _, asked] = numbers[..] else {
        return Err(unreadable(value));
    };
    let state = match state {
        1 => Ownership::Owned {
            x: x as u64,
            counted: counted == 1,
            contended: contended == 1,
            asked: asked == 1,
        },
        0 => Ownership::Expired,
        2 => Ownership::Revoked,
        _ => Ownership::Wiped,
    };
    Ok(Extended { standing: read_standing(standing)?, state })
}

fn look(value: &Value) -> Option<Look> {
    let Value::Array(parts) = value else { return None };
    let (head, slips) = parts.split_at_checked(9)?;
    let number = |at: usize| if let Value::Int(n) = head[at] { Some(n.max(0) as u64) } else { None };
    let now = number(0)?;
    let rest = |end: u64| Duration::from_micros(end.saturating_sub(now));
    let owner = match text(&head[2])? {
        "" => None,
        id => Some(OwnerLook {
            id: AttemptId::read(id)?,
            x: number(3)?,
            rest: rest(number(4)?),
            session: text(&head[5])?.parse().ok()?,
            label: Label::new(text(&head[6])?),
            since: number(7)?,
            asked: number(8)? == 1,
        }),
    };
    let waiting = slips.chunks_exact(2).map(|pair| {
        let mut slip = text(&pair[1])?.splitn(5, ':');
        Some(WaiterLook {
            entry: text(&pair[0])?.parse().ok()?,
            rest: rest(slip.next()?.parse().ok()?),
            since: slip.next()?.parse().ok()?,
            barges: slip.next()? == "1",
            session: slip.next()?.parse().ok()?,
            label: Label::new(slip.next()?),
        })
    });
    Some(Look { counter: number(1)?, owner, waiting: waiting.collect::<Option<_>>()? })
}

fn stand(value: &Value) -> Option<Stand> {
    let Value::Array(parts) = value else { return None };
    let number = |at: usize| if let Value::Int(n) = parts.get(at)? { Some((*n).max(0) as u64) } else { None };
    let (now, since) = (number(0)?, number(4)?);
    let report = Report {
        standing: read_standing(number(2)? as i64).ok()?,
        set: number(3)?,
        since,
        age: now.saturating_sub(since),
        top: number(5)?,
        longest: number(6)?,
    };
    Some(Stand { report, run: text(parts.get(1)?)?.to_owned(), now, done: number(7)? == 1 })
}

fn unreadable(value: &Value) -> Error {
    let shown: String = format!("{value:?}").chars().take(200).collect();
    Error::new(Kind::Store, format!("a node answered with something that makes no sense here: {shown}"))
        .advice("does another program, or another version, use this prefix?")
}
