//! Connections. Each is owned by a task that drives it until it ends; a statement that is given up leaves no trace on it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use crate::config::Config;
use crate::schema;
use crate::sql::{Statement, Values, number};
use crate::tls::Connector;
use crate::trouble::{Trouble, judge, other_schema};

/// How often a statement is tried again that others made the database roll back.
const TRIES: u32 = 50;

/// The connections of a session for statements.
pub(crate) struct Wire {
    config: Arc<Config>,
    connector: Connector,
    lanes: Vec<Lane>,
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
    task: JoinHandle<()>,
}

/// A connection, and the statements that it knows. A pooler may have lent us another one meanwhile.
struct Line {
    client: Client,
    known: std::sync::Mutex<HashSet<String>>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
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
        Ok(Arc::new(Wire { config, connector, lanes, closed: AtomicBool::new(false) }))
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
        self.run_statement(&values.statement(text), values).await
    }

    /// The same for one that was written before.
    pub(crate) async fn run_statement(
        &self,
        statement: &Statement,
        values: &Values,
    ) -> Result<Vec<SimpleQueryRow>> {
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        };
        Ok(self.ask(statement, values).await?.into_iter().filter_map(row).collect())
    }

    /// The same for one that returns nothing: how many rows it changed.
    pub(crate) async fn change(&self, statement: &Statement, values: &Values) -> Result<u64> {
        let count = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::CommandComplete(count) => Some(*count),
            _ => None,
        };
        // The statement comes last: the connection may have been told first what it means.
        Ok(self.ask(statement, values).await?.iter().rev().find_map(count).unwrap_or_default())
    }

    async fn ask(&self, statement: &Statement, values: &Values) -> Result<Vec<SimpleQueryMessage>> {
        let mut created = false;
        for _ in 0..TRIES {
            match self.once(statement, values).await {
                Ok(messages) => return Ok(messages),
                Err(Trouble::Again) => tokio::task::yield_now().await,
                Err(Trouble::NoTables) if !created && self.config.options.create => {
                    // Somebody dropped them, or the database started anew.
                    created = true;
                    self.create_tables().await.map_err(|e| e.at(self.config.url()))?;
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

    async fn once(&self, statement: &Statement, values: &Values) -> Result<Vec<SimpleQueryMessage>, Trouble> {
        let lane = self.lane();
        lane.busy.fetch_add(1, Ordering::Relaxed);
        let _busy = Busy(&lane.busy);
        let line = self.line(lane).await?;
        match timeout(self.timeout(), line.run(statement, values)).await {
            Ok(Ok(messages)) => Ok(messages),
            Ok(Err(error)) => {
                let trouble = judge(error);
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
        let connecting = self.config.server.connect(self.connector.clone());
        let (client, connection) = match timeout(self.timeout(), connecting).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err(judge(error)),
            Err(_) => return Err(Trouble::Broken(self.too_slow("connecting"))),
        };
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the database ended");
            }
        });
        let line = Arc::new(Line { client, known: std::sync::Mutex::default() });
        *link = Some(Link { line: line.clone(), task });
        Ok(line)
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
        // It removes nothing, and fails where nothing can be written. Later that may be a failover; now it is how it was set up.
        let may_write = format!("DELETE FROM {} WHERE session = ''", self.config.table("watch"));
        self.run(&may_write, &Values::default()).await.map_err(|error| match error.retry_advice() {
            Retry::Later => Error::new(Kind::Refused, error.what())
                .advice(error.advice_text().unwrap_or("connect to the primary")),
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

impl Line {
    /// Runs a statement by its name; says first what the name means if the connection doesn't know.
    async fn run(
        &self,
        statement: &Statement,
        values: &Values,
    ) -> Result<Vec<SimpleQueryMessage>, tokio_postgres::Error> {
        let execute = values.execute(statement);
        let remembered = self.known().contains(&statement.name);
        let mut known = remembered;
        loop {
            let answer = if known {
                self.client.simple_query(&execute).await
            } else {
                self.client.simple_query(&format!("{}; {execute}", statement.prepare)).await
            };
            match answer {
                // A pooler has lent us a connection that others have used, or one that is new.
                Err(error) if !known && error.code() == Some(&SqlState::DUPLICATE_PSTATEMENT) => known = true,
                Err(error) if known && error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME) => {
                    known = false
                }
                Err(error) => return Err(error),
                Ok(messages) => {
                    if !remembered {
                        self.known().insert(statement.name.clone());
                    }
                    return Ok(messages);
                }
            }
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
