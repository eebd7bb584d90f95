//! How sessions are told: by a doorbell.
//!
//! MySQL tells nobody anything. But a connection can wait inside the server, and another one of the same user can end that wait with
//! `KILL QUERY`. So every session has a connection that waits as long as there is no mail for it, in one statement that looks and waits:
//! whoever left mail before it looked is seen, and whoever leaves mail later rings. A ring that is lost costs the length of one nap.
//!
//! It waits for a named lock (`GET_LOCK`) that a second connection of the same session holds all the time. `SLEEP` would do without, but with 64
//! sleepers on MariaDB 10.11 a `KILL QUERY` was seen to take 0.3 s on average and up to 2 s; with named locks it was not.
//!
//! Where it can't work (a proxy in between, a user who may not), a first trial shows it, and mail is looked for instead.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{Error, Kind, SessionId};
use leasehold_sql::{Bell, Ears};
use mysql_async::Conn;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::mailbox::{Mailbox, look};
use crate::sql::{Outcome, maybe_number};
use crate::trouble::{Trouble, judge, was_interrupted};
use crate::wire::{Wire, connect, play};

/// A session that looks into its mailbox.
const MAIL: &str = "mail";

/// What stands before the number of a doorbell.
const BELL: &str = "bell:";

/// How long a connection naps at a time, in seconds. As long as that the server keeps old versions of rows for it.
const NAP: u32 = 10;

/// How long a trial may take.
const TRIAL: Duration = Duration::from_secs(2);

/// How long a trial waits before it rings: it should sleep by then.
const FALL_ASLEEP: Duration = Duration::from_millis(20);

/// How long a trial waits before it rings again: it may not have slept yet.
const RING_AGAIN: Duration = Duration::from_millis(200);

/// How long until the next try, where doorbells work but the connection broke.
const AGAIN: Duration = Duration::from_millis(100);

/// The longest time between two tries to connect.
const RARELY: Duration = Duration::from_secs(3);

/// How long until the next try, where nobody can ring: that is how it was set up, and will hardly change.
const DEAF: Duration = Duration::from_secs(300);

/// The doorbell that a row names.
pub(crate) fn bell_of(wake: &str) -> Option<u64> {
    wake.strip_prefix(BELL)?.parse().ok()
}

/// Naps and wakes until it is dropped.
pub(crate) struct Doorbell {
    /// The number of the connection that naps; 0 if nobody would hear.
    number: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Doorbell {
    pub(crate) fn begin(wire: Arc<Wire>, session: SessionId, ears: Arc<Ears>, mailbox: Arc<Mailbox>) -> Self {
        let number = Arc::new(AtomicU64::new(0));
        let listening = Listening { wire, session, ears, mailbox, number: number.clone() };
        let task = tokio::spawn(async move { listening.listen().await });
        Doorbell { number, task }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Bell for Doorbell {
    fn wake(&self) -> String {
        match self.number.load(Ordering::SeqCst) {
            0 => MAIL.to_owned(),
            number => format!("{BELL}{number}"),
        }
    }

    fn heard(&self) -> bool {
        self.number.load(Ordering::SeqCst) != 0
    }
}

/// Why listening ended.
enum Ended {
    /// The connection broke, or never came about.
    Broken(Trouble),
    /// Nobody can ring.
    Deaf,
}

/// What a session that listens has.
struct Listening {
    wire: Arc<Wire>,
    session: SessionId,
    ears: Arc<Ears>,
    mailbox: Arc<Mailbox>,
    number: Arc<AtomicU64>,
}

impl Listening {
    async fn listen(&self) {
        let mut pause = AGAIN;
        while !self.wire.is_closed() {
            let ended = match connect(self.wire.config()).await {
                Ok(conn) => self.hear(conn).await,
                Err(trouble) => Ended::Broken(trouble),
            };
            if self.number.swap(0, Ordering::SeqCst) != 0 {
                pause = AGAIN;
                self.ears.turned();
            }
            match ended {
                Ended::Deaf => {
                    tracing::debug!("KILL QUERY wakes nobody here: mail is looked for instead");
                    sleep(DEAF).await;
                }
                Ended::Broken(trouble) => {
                    tracing::debug!(?trouble, "the connection that naps broke");
                    sleep(pause).await;
                    pause = (pause * 2).min(RARELY);
                }
            }
        }
    }

    async fn hear(&self, mut conn: Conn) -> Ended {
        let id = u64::from(conn.id());
        let pillow = pillow(self.session, id);
        // Held until this ends.
        let _anchor = match anchor(&self.wire, &pillow).await {
            Ok(anchor) => anchor,
            Err(trouble) => return Ended::Broken(trouble),
        };
        match trial(&self.wire, &mut conn, id, &pillow).await {
            Ok(true) => {}
            Ok(false) => return Ended::Deaf,
            Err(trouble) => return Ended::Broken(trouble),
        }
        self.number.store(id, Ordering::SeqCst);
        self.ears.turned();
        match self.nap_and_fetch(&mut conn, &pillow).await {
            Ok(never) => match never {},
            Err(trouble) => Ended::Broken(trouble),
        }
    }

    /// Naps while there is no mail, and fetches what came. What was fetched is removed before the next nap.
    ///
    /// Each statement is a text of its own: a `KILL QUERY` that comes between two statements of one text makes MariaDB forget the second, though it
    /// has said that its answer will come, and whoever waits for that waits for ever.
    async fn nap_and_fetch(&self, conn: &mut Conn, pillow: &str) -> Result<Infallible, Trouble> {
        let (table, session) = (self.wire.config().table("mail"), self.session);
        let nap = format!(
            "SELECT GET_LOCK('{pillow}', {NAP}) FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE session = '{session}')"
        );
        let longest = Duration::from_secs(NAP.into()) + self.wire.timeout();
        let mut delivered: Option<String> = None;
        loop {
            if let Some(removal) = delivered.take() {
                match timeout(self.wire.timeout(), play(conn, &removal)).await {
                    Ok(Ok(_)) => {}
                    // Somebody rang. What is still there is found again, and removed then.
                    Ok(Err(error)) if was_interrupted(&error) => {}
                    Ok(Err(error)) => return Err(judge(error)),
                    Err(_) => return Err(gone("the mail could not be removed in time")),
                }
            }
            // A connection on which this is given up is never used again.
            match timeout(longest, play(conn, &nap)).await {
                Ok(Ok(outcomes)) => {
                    let row = outcomes.last().and_then(|outcome| outcome.rows.first());
                    match row.and_then(|row| maybe_number(row, 0).ok()?) {
                        Some(1) => return Err(gone("the connection of its named lock ended")),
                        // It slept to the end.
                        Some(_) => continue,
                        // Somebody rang, or there was mail already.
                        None => {}
                    }
                }
                Ok(Err(error)) if was_interrupted(&error) => {}
                Ok(Err(error)) => return Err(judge(error)),
                Err(_) => return Err(gone("the connection that naps does not wake up")),
            }
            let mut mailbox = self.mailbox.open().await;
            let found = loop {
                match timeout(self.wire.timeout(), play(conn, &look(&table, session))).await {
                    Ok(Ok(outcomes)) => break outcomes.into_iter().next().unwrap_or_default(),
                    // Somebody else rang too.
                    Ok(Err(error)) if was_interrupted(&error) => {}
                    Ok(Err(error)) => return Err(judge(error)),
                    Err(_) => return Err(gone("the mail could not be fetched in time")),
                }
            };
            let letters = mailbox.new_ones(&found).map_err(Trouble::Error)?;
            delivered = mailbox.removal(&table, session);
            drop(mailbox);
            letters.iter().for_each(|text| self.ears.told(text));
        }
    }
}

/// Whether somebody can ring on connections like these.
pub(crate) async fn hears(wire: &Wire) -> bool {
    let Ok(mut conn) = connect(wire.config()).await else { return false };
    let (id, pillow) = (u64::from(conn.id()), format!("leasehold:trial:{}", conn.id()));
    let Ok(_anchor) = anchor(wire, &pillow).await else { return false };
    matches!(trial(wire, &mut conn, id, &pillow).await, Ok(true))
}

/// The named lock that a session waits for, with this connection. Only it has it.
fn pillow(session: SessionId, bell: u64) -> String {
    format!("leasehold:{session}:{bell}")
}

/// The statement that rings at a session. After a restart or on another server the number of its connection may be that of anybody, so
/// it rings only where the session's named lock says that the connection is there for this. Else it is the error that nobody is.
pub(crate) fn ring(session: SessionId, bell: u64) -> String {
    ring_at(&pillow(session, bell), bell)
}

fn ring_at(pillow: &str, bell: u64) -> String {
    format!("KILL QUERY IF(IS_USED_LOCK('{pillow}') IS NULL, 0, {bell})")
}

/// A connection that holds a named lock.
async fn anchor(wire: &Wire, pillow: &str) -> Result<Conn, Trouble> {
    let mut conn = connect(wire.config()).await?;
    match timeout(wire.timeout(), play(&mut conn, &format!("SELECT GET_LOCK('{pillow}', 0)"))).await {
        Ok(Ok(outcomes)) if got_it(&outcomes) => Ok(conn),
        // The server has not noticed yet that the one before is gone.
        Ok(Ok(_)) => Err(gone("the named lock of the session is not free yet")),
        Ok(Err(error)) => Err(judge(error)),
        Err(_) => Err(gone("GET_LOCK took too long")),
    }
}

fn got_it(outcomes: &[Outcome]) -> bool {
    let row = outcomes.first().and_then(|outcome| outcome.rows.first());
    row.is_some_and(|row| matches!(maybe_number(row, 0), Ok(Some(1))))
}

fn gone(what: &str) -> Trouble {
    Trouble::Broken(Error::new(Kind::Unavailable, what))
}

/// Whether somebody else can end its sleep.
async fn trial(wire: &Wire, conn: &mut Conn, id: u64, pillow: &str) -> Result<bool, Trouble> {
    let nap = format!("SELECT GET_LOCK('{pillow}', {})", (TRIAL * 2).as_secs());
    let mut asleep = std::pin::pin!(play(conn, &nap));
    let ringing = async {
        sleep(FALL_ASLEEP).await;
        loop {
            // If it is refused, nobody wakes up.
            let _ = wire.run_one(&ring_at(pillow, id)).await;
            sleep(RING_AGAIN).await;
        }
    };
    let mut ringing = std::pin::pin!(ringing);
    let woken = timeout(TRIAL, async {
        tokio::select! {
            woken = &mut asleep => woken,
            () = &mut ringing => Ok(Vec::new()),
        }
    });
    match woken.await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) if was_interrupted(&error) => Ok(true),
        Ok(Err(error)) => Err(judge(error)),
        Err(_) => Ok(false),
    }
}
