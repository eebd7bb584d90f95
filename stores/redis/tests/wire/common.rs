//! What the tests share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{Retry, SessionId};

use leasehold_redis::Config;
use leasehold_redis::wire::{Call, Pushes, Slot, Wire, channels};
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use redis::Value;
use tokio::sync::watch;

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a session heard, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    Note(String),
    Event(String),
    Resumed(u64),
}

/// Keeps all that it hears.
pub(crate) struct Recorder {
    heard: watch::Sender<Vec<Heard>>,
    seen: Mutex<usize>,
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Recorder { heard: watch::Sender::default(), seen: Mutex::default() })
    }

    fn push(&self, heard: Heard) {
        self.heard.send_modify(|all| all.push(heard));
    }

    /// Waits for the first thing after the last one found that is as wanted.
    pub(crate) async fn next(&self, wanted: impl Fn(&Heard) -> bool) -> Heard {
        let mut heard = self.heard.subscribe();
        let from = *self.seen.lock().unwrap();
        let found = |all: &Vec<Heard>| all.iter().skip(from).position(&wanted);
        let waiting = heard.wait_for(|all| found(all).is_some());
        let all = tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("only this was heard: {:?}", self.all()))
            .unwrap();
        let at = from + found(&all).unwrap();
        *self.seen.lock().unwrap() = at + 1;
        all[at].clone()
    }

    pub(crate) async fn note(&self, text: &str) {
        self.next(|heard| *heard == Heard::Note(text.to_owned())).await;
    }

    pub(crate) async fn event(&self, text: &str) {
        self.next(|heard| *heard == Heard::Event(text.to_owned())).await;
    }

    pub(crate) async fn resumed(&self, node: u64) {
        self.next(|heard| *heard == Heard::Resumed(node)).await;
    }

    pub(crate) fn all(&self) -> Vec<Heard> {
        self.heard.borrow().clone()
    }
}

impl Pushes for Recorder {
    fn note(&self, payload: &[u8]) {
        self.push(Heard::Note(String::from_utf8_lossy(payload).into_owned()));
    }

    fn event(&self, payload: &[u8]) {
        self.push(Heard::Event(String::from_utf8_lossy(payload).into_owned()));
    }

    fn resumed(&self, node: u64) {
        self.push(Heard::Resumed(node));
    }
}

/// An open wire, its session and what it heard.
pub(crate) struct Bed {
    pub(crate) wire: Arc<Wire>,
    pub(crate) session: SessionId,
    pub(crate) heard: Arc<Recorder>,
}

impl Bed {
    pub(crate) async fn try_open(url: &str) -> leasehold_core::Result<Bed> {
        Bed::with(Config::parse(url)?).await
    }

    pub(crate) async fn with(config: Config) -> leasehold_core::Result<Bed> {
        let (session, heard) = (SessionId::random()?, Recorder::new());
        let wire = Wire::open(Arc::new(config), session, heard.clone()).await?;
        Ok(Bed { wire, session, heard })
    }

    pub(crate) async fn open(url: &str) -> Bed {
        Bed::try_open(url).await.unwrap()
    }

    /// The channel of this session on a node with this tag.
    pub(crate) fn channel(&self, tag: &str) -> String {
        channels::session("leasehold:", tag, self.session)
    }
}

pub(crate) fn redis() -> Redis {
    Redis::start(RedisOptions::new())
}

/// A command on a key.
pub(crate) fn call(words: &[&str]) -> Call {
    let mut cmd = redis::cmd(words[0]);
    for word in &words[1..] {
        cmd.arg(word);
    }
    Call::command(Slot::of(words.get(1).unwrap_or(&"").as_bytes()), cmd)
}

/// A text in an answer.
pub(crate) fn text(value: Value) -> String {
    redis::from_redis_value(value).unwrap()
}

/// Our connections to a server, by their names in `CLIENT LIST`.
pub(crate) fn connections(server: &Redis) -> Vec<String> {
    let list = server.cli(&["CLIENT", "LIST"]);
    let mut names: Vec<String> = list
        .lines()
        .filter_map(|line| line.split(' ').find_map(|field| field.strip_prefix("name=leasehold")))
        .map(|rest| format!("leasehold{rest}"))
        .collect();
    names.sort();
    names
}

/// Waits until these are our connections to a server.
pub(crate) async fn until_connections(server: &Redis, wanted: &[&str]) {
    let same = || {
        let now = connections(server);
        if now == wanted { Ok(()) } else { Err(format!("{now:?}")) }
    };
    eventually(&format!("our connections are {wanted:?}"), same).await;
}

/// Waits until a check succeeds, and lets the other tasks run meanwhile.
pub(crate) async fn eventually<T>(what: &str, mut check: impl FnMut() -> Result<T, String>) -> T {
    let limit = tokio::time::Instant::now() + PATIENCE;
    loop {
        match check() {
            Ok(found) => return found,
            Err(seen) if tokio::time::Instant::now() > limit => panic!("never {what}; seen last: {seen}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Runs a call until it succeeds. Each failure must be one after which it may be repeated.
pub(crate) async fn until_done(wire: &Wire, words: &[&str]) -> Value {
    let limit = tokio::time::Instant::now() + PATIENCE;
    loop {
        match wire.run(call(words)).await {
            Ok(value) => return value,
            Err(e) => {
                assert_ne!(e.retry_advice(), Retry::Never, "{e}");
                assert!(tokio::time::Instant::now() < limit, "{e}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}
