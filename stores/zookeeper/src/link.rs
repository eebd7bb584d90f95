//! One ZooKeeper session after the other: connected, lost and found again, and replaced when it has expired.
//!
//! # How long a session is certainly alive
//!
//! The client crate keeps a session alive by itself, and does not tell when the server last heard from it. So this is known
//! from requests of our own: what was answered was heard after it was sent. Only requests that go through the leader count
//! (writes, and `sync`), because the leader is who ends sessions: a follower that was cut off from it goes on answering reads.
//! The leader hears of a follower's sessions with every ping, which are half a tick apart, and a session is at least two ticks
//! long unless somebody configured it otherwise. So a quarter of the session's length is taken off.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Clock, Error, Kind, Result, Retry, Tick};
use tokio::sync::watch;
use zookeeper_client as zk;
use zookeeper_client::SessionState;

use crate::config::Scheme;
use crate::together::Together;
use crate::trouble::{later, trouble};
use crate::{Config, nodelay};

/// The way to the servers.
pub(crate) struct Link {
    config: Arc<Config>,
    pub(crate) clock: Clock,
    /// Told anew whenever its state changes.
    life: watch::Sender<Option<Arc<Life>>>,
    /// Why there is no session now.
    why: Mutex<Option<Error>>,
}

/// One ZooKeeper session.
pub(crate) struct Life {
    pub(crate) client: zk::Client,
    /// How long the server keeps it without a sign of life.
    pub(crate) timeout: Duration,
    heard: AtomicU64,
    /// What leaves with others.
    pub(crate) together: Together,
    /// Whether the node that all locks are in was there when we last looked.
    pub(crate) has_root: AtomicBool,
    /// Whether a sign of life is under way.
    pub(crate) patrolling: AtomicBool,
    /// How many bytes of paths may still be watched.
    room: Arc<AtomicUsize>,
    chroot: usize,
}

/// How many bytes of paths a session watches at most.
///
/// After a reconnect the client crate sends all watches anew. Beyond 128 KiB it does so in two requests, takes the second
/// answer for a mistake, and never gets past it until the session has expired.
const WATCHED: usize = 120 * 1024;

/// The right to watch a node. Dropping it gives the room back.
pub(crate) struct Room {
    bytes: usize,
    of: Arc<AtomicUsize>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.fetch_add(self.bytes, Ordering::SeqCst);
    }
}

impl Life {
    /// Whether it is connected now.
    pub(crate) fn is_up(&self) -> bool {
        self.client.state() == SessionState::SyncConnected
    }

    /// A request that went through the leader and was sent at this moment was answered.
    pub(crate) fn heard(&self, sent: Tick) {
        self.heard.fetch_max(sent.0, Ordering::SeqCst);
    }

    /// When the server last certainly heard us.
    pub(crate) fn last_heard(&self) -> Tick {
        Tick(self.heard.load(Ordering::SeqCst))
    }

    /// Until when its nodes are certainly there.
    pub(crate) fn alive_until(&self) -> Tick {
        self.last_heard() + self.timeout * 3 / 4
    }

    /// How old the last sign of life may be before there should be another.
    pub(crate) fn patrol(&self) -> Duration {
        self.timeout / 6
    }

    /// Room for a watch. `None` if there is none left.
    pub(crate) fn room(&self, path: &str) -> Option<Room> {
        let bytes = path.len() + self.chroot;
        let take = |left: usize| left.checked_sub(bytes);
        self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()?;
        Some(Room { bytes, of: self.room.clone() })
    }

    /// Watches the session's states, from now on.
    pub(crate) fn states(&self) -> zk::StateWatcher {
        self.client.state_watcher()
    }
}

impl Link {
    /// Connects for the first time. Fails if no server lets us in.
    pub(crate) async fn open(config: Arc<Config>) -> Result<Link> {
        let clock = Clock::system();
        let life = connect(&config, &clock).await?;
        Ok(Link { config, clock, life: watch::Sender::new(Some(Arc::new(life))), why: Mutex::default() })
    }

    /// The session, connected or not. `None` while there is none.
    pub(crate) fn now(&self) -> Option<Arc<Life>> {
        self.life.borrow().clone()
    }

    /// A session that is connected, if there is one before the time of a request is over. Nothing was sent if there is not.
    pub(crate) async fn up(&self) -> Result<Arc<Life>> {
        if let Some(life) = self.now().filter(|life| life.is_up()) {
            return Ok(life);
        }
        let mut changes = self.life.subscribe();
        let waiting = async {
            loop {
                let life = changes.borrow_and_update().clone();
                match life {
                    Some(life) if life.is_up() => return Ok(life),
                    _ => {}
                }
                if changes.changed().await.is_err() {
                    return Err(closed());
                }
            }
        };
        match tokio::time::timeout(self.config.timeout(), waiting).await {
            Ok(up) => up,
            Err(_) => Err(self.why_not()),
        }
    }

    fn why_not(&self) -> Error {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lost = || later(format!("no server of {} is connected", self.config.addresses()));
        why.unwrap_or_else(lost)
    }

    /// Waits for an answer, but not for ever. What is not answered may still happen.
    pub(crate) async fn within<T>(&self, answer: impl Future<Output = T>) -> Result<T> {
        let time = self.config.timeout();
        tokio::time::timeout(time, answer)
            .await
            .map_err(|_| Error::new(Kind::Unavailable, format!("the server did not answer within {time:?}")))
    }

    /// A sign of life: the leader has heard us since this was called.
    pub(crate) async fn patrol(&self, life: &Life) -> Result<()> {
        let sent = self.clock.now();
        self.within(life.client.sync("/")).await?.map_err(|e| trouble(&e))?;
        life.heard(sent);
        Ok(())
    }

    /// A sign of life, unless there was one not long ago.
    pub(crate) async fn fresh(&self, life: &Life) -> Result<()> {
        if self.clock.now().since(life.last_heard()) < life.patrol() {
            Ok(())
        } else {
            self.patrol(life).await
        }
    }

    /// Follows a session until it has ended.
    pub(crate) async fn until_ended(&self, life: &Life) {
        let mut states = life.states();
        loop {
            if life.client.state().is_terminated() {
                return;
            }
            // It says nothing any more after the last state, which may have come before this began to watch.
            if let Ok(SessionState::SyncConnected) =
                tokio::time::timeout(Duration::from_secs(1), states.changed()).await
            {
                nodelay::ask_for(self.config.hosts());
            }
            self.life.send_modify(|_| {});
        }
    }

    /// There is no session any more.
    pub(crate) fn ended(&self) {
        self.life.send_replace(None);
    }

    /// Begins a new session, and tries for as long as it takes.
    pub(crate) async fn begin_again(&self) {
        let mut pause = Duration::from_millis(20);
        loop {
            match connect(&self.config, &self.clock).await {
                Ok(life) => {
                    *self.why.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    self.life.send_replace(Some(Arc::new(life)));
                    return;
                }
                Err(error) => {
                    tracing::debug!(target: "leasehold", %error, "no new ZooKeeper session yet");
                    // Nothing was sent for whoever waits for it.
                    let why =
                        if error.kind() == Kind::Unavailable { error.retry(Retry::Later) } else { error };
                    *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    /// Whether the session is a new one since `life`.
    pub(crate) fn is_current(&self, life: &Arc<Life>) -> bool {
        self.life.borrow().as_ref().is_some_and(|now| Arc::ptr_eq(now, life))
    }
}

pub(crate) fn closed() -> Error {
    Error::new(Kind::Refused, "the session is closed").advice("connect again to lock again")
}

/// Begins a session.
pub(crate) async fn connect(config: &Config, clock: &Clock) -> Result<Life> {
    connect_for(config, config.session(), clock).await
}

/// Begins a session of this length.
pub(crate) async fn connect_for(config: &Config, session: Duration, clock: &Clock) -> Result<Life> {
    let mut connector = zk::Client::connector().with_session_timeout(session).with_fail_eagerly();
    if let Some(login) = config.login() {
        connector = match login.scheme {
            Scheme::Digest => {
                connector.with_auth("digest", format!("{}:{}", login.user, login.password).as_bytes())
            }
            Scheme::Sasl => {
                let options = zk::SaslOptions::digest_md5(login.user.clone(), login.password.clone());
                connector.with_sasl(options)
            }
        };
    }
    let sent = clock.now();
    let most = config.session().max(config.timeout());
    let connecting = dial(config, connector, config.connect_string());
    let client = match tokio::time::timeout(most, connecting).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return Err(cant_connect(config, error).await),
        Err(_) => return Err(unreachable(config, format!("none let us in within {most:?}"))),
    };
    nodelay::ask_for(config.hosts());
    let life = Life {
        timeout: client.session_timeout(),
        client,
        heard: AtomicU64::new(sent.0),
        together: Together::default(),
        has_root: AtomicBool::new(false),
        patrolling: AtomicBool::new(false),
        room: Arc::new(AtomicUsize::new(WATCHED)),
        chroot: config.chroot().len() + 1,
    };
    if !config.chroot().is_empty() {
        let found = tokio::time::timeout(config.timeout(), life.client.check_stat("/")).await;
        if let Ok(Ok(None)) = found {
            let what = format!("there is no node /{} to keep locks in", config.chroot());
            return Err(
                Error::new(Kind::Invalid, what).advice("create it first, or correct the path in the URL")
            );
        }
    }
    Ok(life)
}

enum Trouble {
    Client(zk::Error),
    #[cfg(feature = "tls")]
    Other(Error),
}

#[cfg(not(feature = "tls"))]
async fn dial(_: &Config, connector: zk::Connector, servers: String) -> Result<zk::Client, Trouble> {
    connector.connect(&servers).await.map_err(Trouble::Client)
}

#[cfg(feature = "tls")]
async fn dial(config: &Config, connector: zk::Connector, servers: String) -> Result<zk::Client, Trouble> {
    let Some(tls) = config.tls() else { return connector.connect(&servers).await.map_err(Trouble::Client) };
    // The client crate takes the process's provider, and two are compiled in. Whoever installed one before us keeps it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = |path: &str| {
        std::fs::read_to_string(path).map_err(|e| {
            let what = format!("the file {path} can't be read");
            Trouble::Other(Error::new(Kind::Invalid, what).advice("check its path and its rights").because(e))
        })
    };
    let wrong = |e: zk::Error| {
        Trouble::Other(
            Error::new(Kind::Invalid, "a certificate or key can't be used")
                .advice("give PEM files")
                .because(e),
        )
    };
    // The crate would panic at such a name.
    let nameless =
        |(host, _): &&(String, u16)| rustls::pki_types::ServerName::try_from(host.as_str()).is_err();
    if let Some((host, _)) = config.hosts().iter().find(nameless) {
        let what = format!("{host} is not a name that a certificate can have");
        return Err(Trouble::Other(Error::new(Kind::Invalid, what).advice("give a DNS name or an address")));
    }
    let mut options = zk::TlsOptions::default().with_pem_ca(&read(&tls.ca)?).map_err(wrong)?;
    if let Some((cert, key)) = &tls.identity {
        options = options.with_pem_identity(&read(cert)?, &read(key)?).map_err(wrong)?;
    }
    connector.with_tls(options).secure_connect(&servers).await.map_err(Trouble::Client)
}

async fn cant_connect(config: &Config, error: Trouble) -> Error {
    match error {
        #[cfg(feature = "tls")]
        Trouble::Other(error) => error,
        Trouble::Client(error @ (zk::Error::AuthFailed | zk::Error::BadArguments(_))) => trouble(&error),
        // The crate does not say why, and the most frequent reason can be found out.
        Trouble::Client(_) => match nobody_knows(config).await {
            Some(cause) => unreachable(config, cause),
            None => unreachable(config, "none of them let us in".into()),
        },
    }
}

fn unreachable(config: &Config, why: String) -> Error {
    let what = format!("no server of {} can be reached: {why}", config.addresses());
    later(what).advice("check the addresses, and whether the servers run and have a quorum")
}

/// What the system says if it can't find the address of any server.
async fn nobody_knows(config: &Config) -> Option<String> {
    let mut last = None;
    for (host, port) in config.hosts() {
        match tokio::net::lookup_host((host.as_str(), *port)).await {
            Ok(_) => return None,
            Err(error) => last = Some(format!("the address of {host} is not known ({error})")),
        }
    }
    last
}
