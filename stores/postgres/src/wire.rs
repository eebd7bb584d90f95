//! Connections. Each is owned by a task that drives it until it ends; a statement that is given up leaves no trace on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use leasehold_net::probe::{First, Protocol};
use leasehold_sql::usual::Outcome;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::SimpleQueryRow;

use crate::config::Config;
use crate::direct::is_direct;
use crate::line::{Line, Lone, Work};
use crate::schema;
use crate::sql::{Values, number};
use crate::tls::Connector;
use crate::trouble::{Trouble, is_read_only, judge, other_schema};
use crate::usual::Call;

/// How often a statement is tried again that others made the database roll back.
const TRIES: u32 = 50;

/// The connections of a session for statements.
pub(crate) struct Wire {
    config: Arc<Config>,
    connector: Connector,
    lanes: Vec<Lane>,
    /// Whether the server has let us in once.
    known: AtomicBool,
    closed: AtomicBool,
}

/// One connection, or where one could be.
#[derive(Default)]
struct Lane {
    busy: AtomicUsize,
    link: Mutex<Option<Link>>,
}

/// A connection and the task that drives it.
struct Link {
    line: Arc<Line>,
    _task: Task,
}

/// Drives a connection until it is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Counts a statement on a lane until it is done or given up.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Wire {
    /// Connects, and sees that the tables are there.
    pub(crate) async fn open(config: Arc<Config>) -> Result<Arc<Wire>> {
        let wire = Wire::new(config)?;
        wire.check_tables().await.map_err(|e| e.at(wire.config.url()))?;
        Ok(wire)
    }

    /// Nothing is connected yet, and nothing is known of the tables.
    pub(crate) fn new(config: Arc<Config>) -> Result<Arc<Wire>> {
        let connector = Connector::new(config.tls.as_ref())?;
        let lanes = (0..config.options.pool).map(|_| Lane::default()).collect();
        Ok(Arc::new(Wire {
            config,
            connector,
            lanes,
            known: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }))
    }

    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.config.options.timeout
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Runs a statement. One that others made the database roll back is tried again; missing tables are created.
    pub(crate) async fn run(&self, text: &str, values: &Values) -> Result<Vec<SimpleQueryRow>> {
        self.ask(&Lone { statement: &values.statement(text), values }).await
    }

    /// The same for one of the usual ones.
    pub(crate) async fn run_usual(&self, call: &Call<'_>) -> Result<Outcome> {
        self.ask(call).await
    }

    /// The same for several, in one transaction.
    pub(crate) async fn run_together(&self, calls: &[Call<'_>]) -> Result<Vec<Outcome>> {
        self.ask(calls).await
    }

    async fn ask<W: Work + ?Sized>(&self, work: &W) -> Result<W::Answer> {
        let mut created = false;
        for _ in 0..TRIES {
            match self.once(work).await {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Again) => tokio::task::yield_now().await,
                Err(Trouble::NoTables) if !created && self.config.options.create => {
                    // Somebody dropped them, or the database started anew.
                    created = true;
                    Box::pin(self.create_tables()).await.map_err(|e| e.at(self.config.url()))?;
                }
                Err(Trouble::NoTables) => return Err(self.no_tables().at(self.config.url())),
                Err(Trouble::Broken(error) | Trouble::Error(error)) => {
                    return Err(error.at(self.config.url()));
                }
            }
        }
        let what = format!("the database rolled it back {TRIES} times because of others");
        Err(Error::new(Kind::Unavailable, what).at(self.config.url()))
    }

    async fn once<W: Work + ?Sized>(&self, work: &W) -> Result<W::Answer, Trouble> {
        let lane = self.lane();
        lane.busy.fetch_add(1, Ordering::Relaxed);
        let _busy = Busy(&lane.busy);
        let line = self.line(lane).await?;
        match timeout(self.timeout(), work.run(&line)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(trouble)) => {
                if let Trouble::Broken(_) = trouble {
                    self.hang_up(lane, &line).await;
                }
                Err(trouble)
            }
            Err(_) => {
                self.hang_up(lane, &line).await;
                Err(Trouble::Broken(self.too_slow("a statement")))
            }
        }
    }

    /// Runs statements that return nothing, in one transaction.
    async fn batch(&self, statements: &str) -> Result<(), Trouble> {
        let lane = self.lane();
        let line = self.line(lane).await?;
        match timeout(self.timeout() * 4, line.client.batch_execute(statements)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                // A transaction may be open.
                self.hang_up(lane, &line).await;
                Err(judge(error))
            }
            Err(_) => {
                self.hang_up(lane, &line).await;
                Err(Trouble::Broken(self.too_slow("creating the tables")))
            }
        }
    }

    /// The lane with the least to do; the first of them, so that no more connections are made than needed.
    fn lane(&self) -> &Lane {
        let busy = |lane: &&Lane| lane.busy.load(Ordering::Relaxed);
        // There is at least one.
        self.lanes.iter().min_by_key(busy).unwrap_or(&self.lanes[0])
    }

    async fn line(&self, lane: &Lane) -> Result<Arc<Line>, Trouble> {
        let mut link = lane.link.lock().await;
        if let Some(link) = link.as_ref().filter(|link| !link.line.client.is_closed()) {
            return Ok(link.line.clone());
        }
        if self.is_closed() {
            return Err(Trouble::Error(Error::new(Kind::Unavailable, "the session is closed")));
        }
        *link = None;
        // In a box: most statements find a connection, and need no room for this.
        let made = Box::pin(self.connect()).await?;
        Ok(link.insert(made).line.clone())
    }

    /// Connects. Who was let in once may be let in again, so an error is final only before that: a password that was
    /// replaced may not be in its file yet.
    async fn connect(&self) -> Result<Link, Trouble> {
        // Whether an error is the server's own.
        let said = AtomicBool::new(false);
        let connected = if self.known.load(Ordering::Relaxed) {
            self.dial(&said).await.map_err(|trouble| match trouble {
                Trouble::Broken(error) | Trouble::Error(error) if error.retry_advice() == Retry::Never => {
                    Trouble::Broken(error.retry(Retry::Later))
                }
                trouble => trouble,
            })
        } else {
            let first = First {
                expected: Protocol::Postgres,
                encrypted: false,
                hosts: self.config.hosts(),
                limit: self.timeout(),
                explained: false,
            };
            first.connect(self.dial(&said), |_| said.load(Ordering::Relaxed)).await
        };
        self.known.fetch_or(connected.is_ok(), Ordering::Relaxed);
        connected
    }

    async fn dial(&self, said: &AtomicBool) -> Result<Link, Trouble> {
        let server = self.config.server()?;
        let connecting = server.connect(self.connector.clone());
        let (client, connection) = match timeout(self.timeout(), connecting).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => {
                said.store(error.code().is_some(), Ordering::Relaxed);
                return Err(judge(error));
            }
            Err(_) => return Err(Trouble::Broken(self.too_slow("connecting"))),
        };
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the database ended");
            }
        });
        // It ends with its task, if the next fails.
        let task = Task(task);
        let direct = match timeout(self.timeout(), is_direct(&client)).await {
            Ok(direct) => direct.map_err(judge)?,
            Err(_) => return Err(Trouble::Broken(self.too_slow("connecting"))),
        };
        Ok(Link { line: Arc::new(Line::new(client, direct)), _task: task })
    }

    async fn hang_up(&self, lane: &Lane, line: &Arc<Line>) {
        let mut link = lane.link.lock().await;
        if link.as_ref().is_some_and(|link| Arc::ptr_eq(&link.line, line)) {
            *link = None;
        }
    }

    fn too_slow(&self, what: &str) -> Error {
        let limit = self.timeout();
        Error::new(Kind::Unavailable, format!("{what} took longer than {limit:?}"))
    }

    async fn check_tables(&self) -> Result<()> {
        // It removes nothing, and fails where nothing can be written: how it was set up, or a failover.
        let may_write = format!("DELETE FROM {} WHERE session = ''", self.config.table("watch"));
        self.run(&may_write, &Values::default()).await.map_err(|error| match error.retry_advice() {
            Retry::Later if is_read_only(&error) => Error::new(Kind::Refused, error.what())
                .advice(error.advice_text().unwrap_or("connect to the primary"))
                .retry(Retry::Later),
            _ => error,
        })?;
        let statement = format!("SELECT version FROM {}", self.config.table("schema"));
        let versions = self.run(&statement, &Values::default()).await?;
        let versions: Vec<i64> = versions.iter().filter_map(|row| number(row, 0).ok()).collect();
        if versions != [schema::VERSION] {
            let said = format!("they say {versions:?}, and this program knows {}", schema::VERSION);
            return Err(other_schema(&said));
        }
        Ok(())
    }

    async fn create_tables(&self) -> Result<()> {
        let statements = schema::statements(&self.config);
        // Two at once would trip over each other, "if not exists" or not.
        let key = leasehold_core::name::stable_hash(self.config.table("").as_bytes()) as i64;
        let all = format!("BEGIN; SELECT pg_advisory_xact_lock({key}); {statements} COMMIT;");
        match self.batch(&all).await {
            Ok(()) => Ok(()),
            Err(Trouble::Again) => Err(Error::new(Kind::Unavailable, "the tables can't be created just now")),
            Err(Trouble::NoTables) => Err(self.no_tables()),
            Err(Trouble::Broken(error) | Trouble::Error(error)) => Err(error),
        }
    }

    fn no_tables(&self) -> Error {
        let what = format!("there are no lock tables {}…", self.config.table(""));
        Error::new(Kind::Refused, what).advice("create them with what `leasehold schema postgres` prints")
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for lane in &self.lanes {
            *lane.link.lock().await = None;
        }
    }
}
