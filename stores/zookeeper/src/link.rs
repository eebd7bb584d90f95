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

use leasehold_core::{Backoff, Clock, Error, Kind, Result, Retry, Tick};
use leasehold_net::probe::{First, Protocol};
use tokio::sync::{Notify, watch};
use zookeeper_client as zk;
use zookeeper_client::SessionState;

use crate::config::Scheme;
use crate::together::Together;
use crate::trouble::{later, no_entry, trouble};
use crate::{Config, nodelay, reach};

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

/// The pauses between tries to begin a new session.
const NEXT_SESSION: Backoff = Backoff { first: Duration::from_millis(20), most: Duration::from_secs(2) };

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
        self.timeout / 20
    }

    /// How often an entry is told until when its session is certain.
    pub(crate) fn renewal(&self) -> Duration {
        self.timeout / 12
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
    /// Connects for the first time. Fails if no server lets us in. After a failure (`again`) the servers are asked first how they
    /// stand: the client crate would try each of them many times.
    pub(crate) async fn open(config: Arc<Config>, again: bool) -> Result<Link> {
        if again {
            nothing_is_in_the_way(&config).await?;
        }
        let clock = Clock::system();
        let limit = config.session().max(config.timeout());
        let encrypted = config.tls().is_some();
        let first =
            First { expected: Protocol::ZooKeeper, encrypted, hosts: config.hosts(), limit, explained: true };
        let refused = |error: &Error| error.kind() == Kind::Refused;
        let life = first.connect(connect(&config, &clock), refused).await?;
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

    /// Follows a session until it has ended. `up`: told when it is connected again.
    pub(crate) async fn until_ended(&self, life: &Life, up: &Notify) {
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
                up.notify_one();
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
        for tries in 0.. {
            let begun = async {
                if tries > 0 {
                    nothing_is_in_the_way(&self.config).await?;
                }
                connect(&self.config, &self.clock).await
            };
            match begun.await {
                Ok(life) => {
                    *self.why.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    self.life.send_replace(Some(Arc::new(life)));
                    return;
                }
                Err(error) => {
                    tracing::debug!(target: "leasehold", %error, "no new ZooKeeper session yet");
                    // Nothing was sent for whoever waits for it; and who was let in once may be let in again, when a new
                    // password is in its file.
                    let why = error.retry(Retry::Later);
                    *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                }
            }
            // The last digits of the clock are as good as random.
            tokio::time::sleep(NEXT_SESSION.pause(tries, self.clock.now().0 as u32)).await;
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

/// Asks the servers how they stand, which takes one connection to each: the client crate would try each of them many times. What is
/// silent may be a server of another kind, which connecting finds out.
async fn nothing_is_in_the_way(config: &Config) -> Result<()> {
    let servers = reach::look(config).await;
    let passes =
        |(_, reach): &(String, reach::Reach)| !matches!(reach, reach::Reach::Perhaps | reach::Reach::Silent);
    if servers.iter().all(passes) { Err(unreachable(config, reach::in_words(&servers))) } else { Ok(()) }
}

/// After how long of silence a connection is given up, and how long a new one may take. Where there are other servers, a session must
/// outlive as many of them as there are copies of an address, if the one that is silent is chosen again and again; where there is
/// but one, that it collects its garbage for a while is no reason to leave it.
fn silence(session: Duration, servers: usize) -> Duration {
    let wanted = match servers {
        0 | 1 => (session / 10).clamp(Duration::from_secs(2), Duration::from_secs(6)),
        _ => (session / 15).clamp(Duration::from_secs(1), Duration::from_secs(2)),
    };
    wanted.min(session * 2 / 5)
}

/// How often each address is given to the client crate.
///
/// It tries all addresses of its list at once, then again after pauses that are twice as long in each round, up to the length of the
/// session: after an outage it would sleep for as long again, and a lock would be lost that the server still has. Within a round the
/// pauses are short: with the number of addresses they grow by 50 ms from one to the next. So the list is long enough that its
/// second round covers half a session.
fn copies(session: Duration, servers: usize) -> usize {
    let covered = |addresses: u64| 100 * addresses.min(10) + 25 * addresses * (addresses - 1);
    let half = u64::try_from(session.as_millis() / 2).unwrap_or(u64::MAX);
    let addresses = (1..MOST_ADDRESSES).find(|n| covered(*n) >= half).unwrap_or(MOST_ADDRESSES);
    usize::try_from(addresses).unwrap_or(1).div_ceil(servers.max(1))
}

/// Enough for sessions of a minute and a half.
const MOST_ADDRESSES: u64 = 42;

/// Begins a session.
pub(crate) async fn connect(config: &Config, clock: &Clock) -> Result<Life> {
    connect_for(config, config.session(), clock).await
}

/// Begins a session of this length.
pub(crate) async fn connect_for(config: &Config, session: Duration, clock: &Clock) -> Result<Life> {
    let servers = config.hosts().len();
    let silence = silence(session, servers);
    let mut connector = zk::Client::connector()
        .with_session_timeout(session)
        .with_connection_timeout(silence)
        .with_fail_eagerly();
    if let Some(login) = config.login() {
        let password = login.password.read()?;
        connector = match login.scheme {
            Scheme::Digest => {
                connector.with_auth("digest", format!("{}:{}", login.user, password.reveal()).as_bytes())
            }
            Scheme::Sasl => {
                let options = zk::SaslOptions::digest_md5(login.user.clone(), password.reveal().to_owned());
                connector.with_sasl(options)
            }
        };
    }
    let sent = clock.now();
    let most = silence * u32::try_from(servers).unwrap_or(u32::MAX) + config.timeout();
    let connecting = dial(config, connector, config.connect_string_times(copies(session, servers)));
    let client = match tokio::time::timeout(most, connecting).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return Err(cant_connect(config, error).await),
        Err(_) => return Err(unreachable(config, reach::in_words(&reach::look(config).await))),
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
        Trouble::Client(zk::Error::AuthFailed) => no_entry(),
        Trouble::Client(error @ zk::Error::BadArguments(_)) => trouble(&error),
        // The crate does not say why.
        Trouble::Client(_) => unreachable(config, reach::in_words(&reach::look(config).await)),
    }
}

fn unreachable(config: &Config, why: String) -> Error {
    let what = match config.hosts() {
        [_] => format!("the server can't be reached: {why}"),
        _ => format!("no server of {} can be reached: {why}", config.addresses()),
    };
    later(what).advice("check the addresses, and whether the servers run and have a quorum")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_half_a_session_is_over_within_a_round_of_tries() {
        for (session, servers, wanted) in [
            (30_000, 1, 25),
            (30_000, 3, 9),
            (30_000, 5, 5),
            (10_000, 1, 14),
            (1_500, 1, 5),
            (1, 1, 1),
            (86_400_000, 3, 14),
        ] {
            assert_eq!(copies(Duration::from_millis(session), servers), wanted, "{session} {servers}");
        }
    }

    #[test]
    fn a_silent_server_is_left_before_the_session_is_uncertain() {
        let millis = Duration::from_millis;
        for (session, alone, of_three) in [
            (1_500, 600, 600),
            (4_000, 1_600, 1_000),
            (10_000, 2_000, 1_000),
            (30_000, 3_000, 2_000),
            (86_400_000, 6_000, 2_000),
        ] {
            assert_eq!(silence(millis(session), 1), millis(alone), "{session}");
            assert_eq!(silence(millis(session), 3), millis(of_three), "{session}");
        }
        for session in [10_000, 20_000, 30_000, 40_000, 60_000].map(millis) {
            let longest = silence(session, 3) * (1 + copies(session, 3) as u32);
            assert!(longest + session / 20 < session * 3 / 4, "{longest:?} of {session:?}");
        }
    }
}
