//! Connections, each owned by a task: a query that is given up would leave its answer to the next one, so none ever is.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use mysql_async::prelude::{Protocol, Queryable};
use mysql_async::{Conn, Params, QueryResult, Row, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config::Config;
use crate::schema;
use crate::sql::{self, Outcome};
use crate::trouble::{Trouble, judge, other_schema};

/// How often a text is tried again that others made the database roll back.
const TRIES: u32 = 50;

/// What is asked of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Text {
    /// Statements with all of their values in them. Errors after so many outcomes don't matter.
    Plain { statements: String, enough: usize },
    /// One statement that is prepared when it comes for the first time, and its values.
    Prepared { statement: Arc<str>, values: Vec<Value> },
}

struct Job {
    text: Text,
    done: oneshot::Sender<Result<Vec<Outcome>, Trouble>>,
}

/// The connections of a session for statements.
pub(crate) struct Wire {
    config: Arc<Config>,
    lanes: Vec<Lane>,
    closed: AtomicBool,
}

/// One connection, or where one could be.
#[derive(Default)]
struct Lane {
    busy: AtomicUsize,
    link: Mutex<Option<Link>>,
}

/// The way to the task that owns a connection.
#[derive(Clone)]
struct Link {
    jobs: UnboundedSender<Job>,
    task: Arc<Task>,
}

/// Ends the task, and so the connection.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Counts a text on a lane until it is done or given up.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Wire {
    /// Connects, and sees that the tables are there.
    pub(crate) async fn open(config: Arc<Config>) -> Result<Arc<Wire>> {
        let wire = Wire::new(config);
        wire.check_tables().await.map_err(|e| e.at(wire.config.url()))?;
        Ok(wire)
    }

    /// Nothing is connected yet, and nothing is known of the tables.
    pub(crate) fn new(config: Arc<Config>) -> Arc<Wire> {
        let lanes = (0..config.options.pool).map(|_| Lane::default()).collect();
        Arc::new(Wire { config, lanes, closed: AtomicBool::new(false) })
    }

    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.config.options.timeout
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Runs statements. What others made the database roll back is tried again; missing tables are created.
    pub(crate) async fn run(&self, statements: &str) -> Result<Vec<Outcome>> {
        self.send(plain(statements)).await
    }

    /// Runs one statement that is prepared on each connection.
    pub(crate) async fn run_prepared(&self, statement: &Arc<str>, values: Vec<Value>) -> Result<Outcome> {
        let outcomes = self.send(Text::Prepared { statement: statement.clone(), values }).await?;
        Ok(outcomes.into_iter().next().unwrap_or_default())
    }

    /// Runs a text.
    pub(crate) async fn send(&self, text: Text) -> Result<Vec<Outcome>> {
        let at = |e: Error| e.at(self.config.url());
        let mut created = false;
        for _ in 0..TRIES {
            match self.once(text.clone()).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(Trouble::Again) => tokio::task::yield_now().await,
                Err(Trouble::NoTables) if !created && self.config.options.create => {
                    // Somebody dropped them, or the database started anew.
                    created = true;
                    self.create_tables().await.map_err(at)?;
                }
                Err(Trouble::NoTables) => return Err(at(self.no_tables())),
                Err(Trouble::Broken(error) | Trouble::Error(error)) => return Err(at(error)),
            }
        }
        let what = format!("the database rolled it back {TRIES} times because of others");
        Err(at(Error::new(Kind::Unavailable, what)))
    }

    /// The same for what has one answer.
    pub(crate) async fn run_one(&self, text: &str) -> Result<Outcome> {
        Ok(self.run(text).await?.into_iter().next().unwrap_or_default())
    }

    /// Has a statement run, whatever comes of it.
    pub(crate) fn post(&self, statement: &str) {
        let (done, _) = oneshot::channel();
        // One that can't be sent is one that nobody needs: it only rings.
        let _ = self.link(self.lane()).jobs.send(Job { text: plain(statement), done });
    }

    async fn once(&self, text: Text) -> Result<Vec<Outcome>, Trouble> {
        if self.is_closed() {
            return Err(Trouble::Error(Error::new(Kind::Unavailable, "the session is closed")));
        }
        let lane = self.lane();
        lane.busy.fetch_add(1, Ordering::Relaxed);
        let _busy = Busy(&lane.busy);
        let link = self.link(lane);
        let (done, answer) = oneshot::channel();
        // One that can't be sent is dropped, and so is its answer. Connecting has its own time.
        let _ = link.jobs.send(Job { text, done });
        let outcome = match timeout(self.timeout() * 2, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => {
                Err(Trouble::Broken(Error::new(Kind::Unavailable, "the connection to the database ended")))
            }
            Err(_) => {
                let what = format!("a statement took longer than {:?}", self.timeout());
                Err(Trouble::Broken(Error::new(Kind::Unavailable, what)))
            }
        };
        if let Err(Trouble::Broken(_)) = outcome {
            hang_up(lane, &link);
        }
        outcome
    }

    /// The lane with the least to do; the first of them, so that no more connections are made than needed.
    fn lane(&self) -> &Lane {
        let busy = |lane: &&Lane| lane.busy.load(Ordering::Relaxed);
        // There is at least one.
        self.lanes.iter().min_by_key(busy).unwrap_or(&self.lanes[0])
    }

    fn link(&self, lane: &Lane) -> Link {
        let mut slot = lock(&lane.link);
        if let Some(link) = slot.as_ref().filter(|link| !link.jobs.is_closed()) {
            return link.clone();
        }
        let (jobs, inbox) = unbounded_channel();
        let task = tokio::spawn(work(self.config.clone(), inbox));
        let link = Link { jobs, task: Arc::new(Task(task)) };
        *slot = Some(link.clone());
        link
    }

    async fn check_tables(&self) -> Result<()> {
        // It removes nothing, and fails where nothing can be written. Later that may be a failover; now it is how it was set up.
        let may_write = format!("DELETE FROM {} WHERE session = ''", self.config.table("watch"));
        self.run_one(&may_write).await.map_err(|error| match error.retry_advice() {
            Retry::Later => Error::new(Kind::Refused, error.what())
                .advice(error.advice_text().unwrap_or("connect to the primary")),
            _ => error,
        })?;
        let found = self.run_one(&format!("SELECT version FROM {}", self.config.table("schema"))).await?;
        let versions: Vec<i64> = found.rows.iter().filter_map(|row| sql::number(row, 0).ok()).collect();
        if versions == [schema::VERSION] {
            return Ok(());
        }
        Err(other_schema(&format!("they say {versions:?}, and this program knows {}", schema::VERSION)))
    }

    async fn create_tables(&self) -> Result<()> {
        for statement in schema::tables(&self.config) {
            match self.once(plain(&statement)).await {
                Ok(_) => {}
                Err(Trouble::Again) => {
                    return Err(Error::new(Kind::Unavailable, "the tables can't be created just now"));
                }
                Err(Trouble::NoTables) => return Err(self.no_tables()),
                Err(Trouble::Broken(error) | Trouble::Error(error)) => return Err(error),
            }
        }
        // Some may create tables and no views.
        let _ = self.once(plain(&schema::view(&self.config))).await;
        Ok(())
    }

    fn no_tables(&self) -> Error {
        let what = format!("there are no lock tables {}…", self.config.table(""));
        Error::new(Kind::Refused, what).advice("create them with what `leasehold schema mysql` prints")
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for lane in &self.lanes {
            *lock(&lane.link) = None;
        }
    }
}

fn hang_up(lane: &Lane, link: &Link) {
    let mut slot = lock(&lane.link);
    if slot.as_ref().is_some_and(|now| Arc::ptr_eq(&now.task, &link.task)) {
        *slot = None;
    }
}

/// Connects.
pub(crate) async fn connect(config: &Config) -> Result<Conn, Trouble> {
    match timeout(config.options.timeout, Conn::new(config.server.clone())).await {
        Ok(connected) => connected.map_err(judge),
        Err(_) => Err(Trouble::Broken(Error::new(Kind::Unavailable, "connecting took too long"))),
    }
}

/// Owns a connection, and runs one text after the other on it to its end.
async fn work(config: Arc<Config>, mut jobs: UnboundedReceiver<Job>) {
    let mut conn: Option<Conn> = None;
    while let Some(Job { text, done }) = jobs.recv().await {
        let link = match conn.as_mut() {
            Some(link) => link,
            None => match connect(&config).await {
                Ok(link) => conn.insert(link),
                Err(trouble) => {
                    let _ = done.send(Err(trouble));
                    return;
                }
            },
        };
        let outcome = match text {
            Text::Prepared { statement, values } => perform(link, &statement, values).await,
            Text::Plain { statements, enough } => {
                let (outcomes, trouble) = play_on(link, &statements).await;
                match trouble {
                    Some(error) if outcomes.len() < enough => Err(error),
                    // What is left of a connection that broke is of no use.
                    Some(error) if error.is_fatal() => {
                        let _ = done.send(Ok(outcomes));
                        return;
                    }
                    _ => Ok(outcomes),
                }
            }
        };
        let over = match &outcome {
            Err(error) if error.is_fatal() => true,
            // The transaction may be open still.
            Err(_) => link.query_drop("ROLLBACK").await.is_err(),
            Ok(_) => false,
        };
        let _ = done.send(outcome.map_err(judge));
        if over {
            return;
        }
    }
}

/// Runs statements, and collects what each of them did.
pub(crate) async fn play(conn: &mut Conn, statements: &str) -> mysql_async::Result<Vec<Outcome>> {
    match play_on(conn, statements).await {
        (outcomes, None) => Ok(outcomes),
        (_, Some(error)) => Err(error),
    }
}

/// The same: what was done before one failed, and why it did. Those after it are not run.
async fn play_on(conn: &mut Conn, statements: &str) -> (Vec<Outcome>, Option<mysql_async::Error>) {
    let mut outcomes = Vec::new();
    let ended = match conn.query_iter(statements).await {
        Ok(result) => collect(result, &mut outcomes).await,
        Err(error) => Err(error),
    };
    (outcomes, ended.err())
}

/// Runs one statement with its values. The connection remembers it.
async fn perform(conn: &mut Conn, statement: &str, values: Vec<Value>) -> mysql_async::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    collect(conn.exec_iter(statement, Params::Positional(values)).await?, &mut outcomes).await?;
    Ok(outcomes)
}

async fn collect<P: Protocol>(
    mut result: QueryResult<'_, '_, P>,
    outcomes: &mut Vec<Outcome>,
) -> mysql_async::Result<()> {
    loop {
        let (changed, id) = (result.affected_rows(), result.last_insert_id().unwrap_or(0));
        let rows: Vec<Row> = result.collect().await?;
        outcomes.push(Outcome { changed, id, rows: rows.into_iter().map(Row::unwrap).collect() });
        if result.columns().is_none() {
            // There is no further statement, or it failed. The driver keeps such an error for whoever asks next.
            result.next().await?;
            return Ok(());
        }
    }
}

fn plain(statements: &str) -> Text {
    Text::Plain { statements: statements.to_owned(), enough: usize::MAX }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
