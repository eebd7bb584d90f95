//! How sessions are told: by NOTIFY on a channel of their own, which one connection listens to.
//!
//! Behind a pooler that hands every transaction to another connection, LISTEN is accepted and hears nothing. So nobody relies on it before
//! a call over another connection was heard. Until then, and where it never is, letters are left in the mailbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::poll_fn;
use leasehold_core::{EntryId, Error, Kind, Result, SessionId};
use leasehold_sql::{Bell, Ears};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, Notification};

use crate::sql::Values;
use crate::wire::Wire;

/// A session that is told on its channel.
pub(crate) const PUSH: &str = "push";

/// A session that looks into its mailbox; on its channel it means: there is mail.
pub(crate) const MAIL: &str = "mail";

/// The channel on which a connection tries whether it hears. One for all: behind a pooler nobody can take it back.
const TRIAL: &str = "leasehold_trial";

/// How long a call may take to be heard.
const ECHO: Duration = Duration::from_secs(2);

/// How long until the next try, where LISTEN works but the connection broke.
const AGAIN: Duration = Duration::from_millis(100);

/// The longest time between two tries to connect.
const RARELY: Duration = Duration::from_secs(3);

/// How long until the next try, where LISTEN hears nothing: that is how it was set up, and will hardly change.
const DEAF: Duration = Duration::from_secs(300);

/// The channel of a session.
pub(crate) fn channel(session: SessionId) -> String {
    format!("leasehold_{session}")
}

/// Listens until it is dropped.
pub(crate) struct Listener {
    heard: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Listener {
    pub(crate) fn begin(wire: Arc<Wire>, session: SessionId, ears: Arc<Ears>) -> Self {
        let heard = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(listen(wire, session, ears, heard.clone()));
        Listener { heard, task }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Bell for Listener {
    fn wake(&self) -> String {
        if self.heard() { PUSH.to_owned() } else { MAIL.to_owned() }
    }

    fn heard(&self) -> bool {
        self.heard.load(Ordering::SeqCst)
    }
}

/// Why listening ended.
enum Ended {
    /// The connection broke, or never came about.
    Broken(Error),
    /// It is a connection that hears nothing.
    Deaf,
}

async fn listen(wire: Arc<Wire>, session: SessionId, ears: Arc<Ears>, heard: Arc<AtomicBool>) {
    let mut pause = AGAIN;
    while !wire.is_closed() {
        let ended = hear(&wire, session, &ears, &heard).await;
        if heard.swap(false, Ordering::SeqCst) {
            pause = AGAIN;
            ears.turned();
        }
        match ended {
            Ended::Deaf => {
                tracing::debug!("LISTEN hears nothing on this connection: mail is looked for instead");
                sleep(DEAF).await;
            }
            Ended::Broken(error) => {
                tracing::debug!(%error, "the connection that listens broke");
                sleep(pause).await;
                pause = (pause * 2).min(RARELY);
            }
        }
    }
}

async fn hear(wire: &Wire, session: SessionId, ears: &Ears, heard: &AtomicBool) -> Ended {
    let (line, mut calls) = match Line::open(wire).await {
        Ok(open) => open,
        Err(error) => return Ended::Broken(error),
    };
    match trial(wire, &line, &mut calls).await {
        Ok(true) => {}
        Ok(false) => return Ended::Deaf,
        Err(error) => return Ended::Broken(error),
    }
    let own = format!("LISTEN {}; UNLISTEN {TRIAL}", channel(session));
    if let Err(error) = line.run(wire, &own).await {
        return Ended::Broken(error);
    }
    heard.store(true, Ordering::SeqCst);
    ears.turned();
    while let Some(call) = calls.recv().await {
        match call.payload() {
            MAIL => ears.rung(),
            text => ears.told(text),
        }
    }
    Ended::Broken(Error::new(Kind::Unavailable, "the connection that listens ended"))
}

/// Whether LISTEN hears on connections like these.
pub(crate) async fn hears(wire: &Wire) -> Result<bool> {
    let (line, mut calls) = Line::open(wire).await?;
    trial(wire, &line, &mut calls).await
}

/// Whether a call over another connection is heard.
async fn trial(wire: &Wire, line: &Line, calls: &mut UnboundedReceiver<Notification>) -> Result<bool> {
    line.run(wire, &format!("LISTEN {TRIAL}")).await?;
    let word = EntryId::random()?.to_string();
    let mut values = Values::default();
    let call = format!("SELECT pg_notify({}, {})::text", values.text(TRIAL), values.text(word.as_str()));
    wire.run(&call, &values).await?;
    let echo = async {
        while let Some(call) = calls.recv().await {
            if call.payload() == word {
                return true;
            }
        }
        false
    };
    Ok(timeout(ECHO, echo).await.unwrap_or(false))
}

/// A connection that listens, and the task that drives it.
struct Line {
    client: Client,
    task: JoinHandle<()>,
}

impl Line {
    async fn open(wire: &Wire) -> Result<(Line, UnboundedReceiver<Notification>)> {
        let broken = |what: &str| Error::new(Kind::Unavailable, what);
        let server = wire.config().server()?;
        let connecting = server.connect(wire.connector().clone());
        let (client, mut connection) = timeout(wire.timeout(), connecting)
            .await
            .map_err(|_| broken("connecting took too long"))?
            .map_err(|e| broken("the database can't be reached").because(e))?;
        let (told, calls) = unbounded_channel();
        let task = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(call) = message
                    && told.send(call).is_err()
                {
                    return;
                }
            }
        });
        Ok((Line { client, task }, calls))
    }

    async fn run(&self, wire: &Wire, statements: &str) -> Result<()> {
        timeout(wire.timeout(), self.client.batch_execute(statements))
            .await
            .map_err(|_| Error::new(Kind::Unavailable, "LISTEN took too long"))?
            .map_err(|e| Error::new(Kind::Unavailable, "LISTEN failed").because(e))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}
