//! The task that keeps a connection up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use redis::RedisResult;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout};

use super::super::backoff::Backoff;
use super::super::check::{self, Expected};
use super::super::dial::{Purpose, dial};
use super::super::target::Target;
use super::super::task::Task;
use super::pulse::Pulse;
use super::{Signals, Source, State, Up, ended, unanswered};

/// How long a connection in doubt has to answer a `PING`, at most.
const PING_TIME: Duration = Duration::from_millis(500);

/// A connection that lived this long was a good one.
const GOOD: Duration = Duration::from_secs(1);

/// Connects, watches, and connects again.
pub(super) struct Supervisor {
    target: Target,
    timeout: Duration,
    tell: watch::Sender<State>,
    signals: Arc<Signals>,
    generation: u64,
}

impl Supervisor {
    pub(super) fn new(
        target: Target,
        timeout: Duration,
        tell: watch::Sender<State>,
        signals: Arc<Signals>,
    ) -> Self {
        Supervisor { target, timeout, tell, signals, generation: 0 }
    }

    /// Never ends: the task is aborted when its link is dropped.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::connecting();
        loop {
            match self.connect().await {
                Ok((up, mut driver)) => {
                    let since = Instant::now();
                    self.tell.send_replace(State::Up(up.clone()));
                    let why = self.watch(&up, &mut driver).await;
                    tracing::debug!("{why}");
                    // Before the connection is closed: whoever waits for an answer on it is told why.
                    let why = Error::new(Kind::Unavailable, why).retry(Retry::Later);
                    self.tell.send_replace(State::Down(why));
                    up.source.die();
                    if since.elapsed() > GOOD {
                        backoff.reset();
                    }
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

    /// What was right once can become right again. A cluster was, if one of its nodes has named this one.
    fn soften(&self, e: Error) -> Error {
        let known = self.generation > 0 || self.target.expected() == Expected::ClusterNode;
        if known { e.retry(Retry::Later) } else { e }
    }

    async fn connect(&mut self) -> Result<(Up, Task)> {
        let deadline = Instant::now() + self.timeout;
        let server = self.target.find(deadline).await?;
        let mut dialed = dial(&server, Purpose::Commands, deadline).await?;
        // This one has no time limit of its own.
        let conn = dialed.conn.clone();
        let process = check::greet(&mut dialed.conn, &server, self.target.expected(), deadline).await?;
        self.generation += 1;
        let (address, generation) = (server.address.clone(), self.generation);
        let source = Source::new(address, generation, process);
        let driver = dialed.driver.abort_handle();
        Ok((Up { conn, source: Arc::new(source), driver }, dialed.driver))
    }

    /// Watches a connection until it ends or has to be ended, and tells why.
    async fn watch(&self, up: &Up, driver: &mut Task) -> String {
        let Source { address, generation, .. } = &*up.source;
        let mut pulse = self.pulse();
        loop {
            tokio::select! {
                () = driver.ended() => return ended(address, "was closed"),
                () = self.target.left(address) => return ended(address, "was left: another is the master"),
                () = self.signals.doubted.notified() => {}
                _ = pulse.tick() => if !self.signals.pulse.tick() { continue },
            }
            if self.signals.unwanted.load(Ordering::Relaxed) == *generation {
                return ended(address, "was left: it is no longer what we want");
            }
            if up.source.is_dead() {
                // Nobody uses it any more, so whether it answers us does not matter.
                return ended(address, "was lost");
            }
            match self.answers(up).await {
                Ok(()) => {}
                Err(e) if e.is_timeout() => return unanswered(address),
                Err(_) => return ended(address, "was closed"),
            }
        }
    }

    fn pulse(&self) -> Interval {
        let mut pulse = interval(Pulse::period(self.timeout));
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pulse
    }

    /// Whether the server answers. Answers come in order: then it has answered all that was sent before.
    async fn answers(&self, up: &Up) -> RedisResult<()> {
        let mut conn = up.conn.clone();
        conn.set_response_timeout(PING_TIME.min(self.timeout / 2));
        conn.send_packed_command(&redis::cmd("PING")).await.map(drop)
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
