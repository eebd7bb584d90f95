//! Connections. A text is run to its end, whatever becomes of whoever waits for it: an answer that nobody reads would be taken for that of the next
//! one. Whoever waits polls it, which costs less than a task and two wake-ups; if that one goes away, a task takes over. One that is
//! polled and then left alone would keep the connection from everybody else: the client leaves none of its requests alone for long.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use leasehold_net::probe::{self, First};
use mysql_async::prelude::{Protocol, Queryable};
use mysql_async::{Conn, Params, QueryResult, Row, Statement, Value};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::config::Config;
use crate::schema;
use crate::sql::{self, Outcome};
use crate::trouble::{Trouble, is_read_only, judge, other_schema};

/// How often a text is tried again that others made the database roll back.
const TRIES: u32 = 50;

/// `ER_MAX_PREPARED_STMT_COUNT_REACHED`.
const TOO_MANY_PREPARED: u16 = 1461;

/// What is asked of a connection.
#[derive(Debug)]
pub(crate) enum Text {
    /// Statements with all of their values in them. Errors after so many outcomes don't matter.
    Plain { statements: String, enough: usize },
    /// One statement that is prepared when it comes for the first time, and its values.
    Prepared { statement: Arc<str>, values: Vec<Value> },
}

/// The connections of a session for statements.
pub(crate) struct Wire {
    config: Arc<Config>,
    lanes: Vec<Arc<Lane>>,
    closed: Arc<AtomicBool>,
    /// Where connections live, whoever waits for what they do.
    runtime: Handle,
}

/// One connection, or where one could be.
#[derive(Default)]
struct Lane {
    /// How many texts use it or wait for it.
    busy: AtomicUsize,
    line: Mutex<Option<Line>>,
}

/// A connection, and the statements that it knows.
struct Line {
    conn: Conn,
    known: Vec<(Arc<str>, Statement)>,
}

/// Counts a text on a lane until it is done.
struct Busy(Arc<Lane>);

impl Busy {
    fn on(lane: &Arc<Lane>) -> Self {
        lane.busy.fetch_add(1, Ordering::Relaxed);
        Busy(lane.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
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
        let lanes = (0..config.options.pool).map(|_| Arc::default()).collect();
        Arc::new(Wire { config, lanes, closed: Arc::default(), runtime: Handle::current() })
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
    pub(crate) async fn run_prepared(&self, statement: Arc<str>, values: Vec<Value>) -> Result<Outcome> {
        let outcomes = self.send(Text::Prepared { statement, values }).await?;
        Ok(outcomes.into_iter().next().unwrap_or_default())
    }

    /// Runs a text.
    pub(crate) async fn send(&self, text: Text) -> Result<Vec<Outcome>> {
        let at = |e: Error| e.at(self.config.url());
        let (text, mut created) = (Arc::new(text), false);
        for _ in 0..TRIES {
            match self.once(&text).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(Trouble::Again) => tokio::task::yield_now().await,
                Err(Trouble::NoTables) if !created && self.config.options.create => {
                    // Somebody dropped them, or the database started anew.
                    created = true;
                    Box::pin(self.create_tables()).await.map_err(at)?;
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
        self.runtime.spawn(self.begin(&Arc::new(plain(statement))));
    }

    /// Runs a text once.
    async fn once(&self, text: &Arc<Text>) -> Ran {
        UnderWay { runtime: &self.runtime, run: Some(Box::pin(self.begin(text))) }.await
    }

    /// Runs a text when there is a connection for it. Ends in bounded time.
    fn begin(&self, text: &Arc<Text>) -> impl Future<Output = Ran> + Send + 'static {
        let busy = Busy::on(self.lane());
        let (config, closed, text) = (self.config.clone(), self.closed.clone(), text.clone());
        async move {
            // Connecting has its own time.
            let limit = config.options.timeout;
            match timeout(limit * 2, busy.0.run(&config, &closed, &text)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let what = format!("a statement took longer than {limit:?}");
                    Err(Trouble::Broken(Error::new(Kind::Unavailable, what)))
                }
            }
        }
    }

    /// The lane with the least to do; the first of them, so that no more connections are made than needed.
    fn lane(&self) -> &Arc<Lane> {
        let busy = |lane: &&Arc<Lane>| lane.busy.load(Ordering::Relaxed);
        // There is at least one.
        self.lanes.iter().min_by_key(busy).unwrap_or(&self.lanes[0])
    }

    async fn check_tables(&self) -> Result<()> {
        // It removes nothing, and fails where nothing can be written: how it was set up, or a failover.
        let may_write = format!("DELETE FROM {} WHERE session = ''", self.config.table("watch"));
        self.run_one(&may_write).await.map_err(|error| match error.retry_advice() {
            Retry::Later if is_read_only(&error) => Error::new(Kind::Refused, error.what())
                .advice(error.advice_text().unwrap_or("connect to the primary"))
                .retry(Retry::Later),
            _ => error,
        })?;
        let mut versions = self.versions().await?;
        if versions.is_empty() && self.config.options.create {
            // Each statement that makes a table is a transaction of its own: another program is between two of them, or died there.
            self.create_tables().await?;
            versions = self.versions().await?;
        }
        if versions == [schema::VERSION] {
            return Ok(());
        }
        Err(other_schema(&format!("they say {versions:?}, and this program knows {}", schema::VERSION)))
    }

    /// Of which versions the tables say that they are.
    async fn versions(&self) -> Result<Vec<i64>> {
        let found = self.run_one(&format!("SELECT version FROM {}", self.config.table("schema"))).await?;
        Ok(found.rows.iter().filter_map(|row| sql::number(row, 0).ok()).collect())
    }

    async fn create_tables(&self) -> Result<()> {
        for statement in schema::tables(&self.config) {
            match self.once(&Arc::new(plain(&statement))).await {
                Ok(_) => {}
                Err(Trouble::Again) => {
                    return Err(Error::new(Kind::Unavailable, "the tables can't be created just now"));
                }
                Err(Trouble::NoTables) => return Err(self.no_tables()),
                Err(Trouble::Broken(error) | Trouble::Error(error)) => return Err(error),
            }
        }
        // Some may create tables and no views.
        let _ = self.once(&Arc::new(plain(&schema::view(&self.config)))).await;
        Ok(())
    }

    fn no_tables(&self) -> Error {
        let what = format!("there are no lock tables {}…", self.config.table(""));
        Error::new(Kind::Refused, what).advice("create them with what `leasehold schema mysql` prints")
    }

    /// Ends all connections. One that is in use ends when its text does.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for lane in &self.lanes {
            if let Ok(mut line) = lane.line.try_lock() {
                *line = None;
            }
        }
    }
}

/// What came of a text.
type Ran = Result<Vec<Outcome>, Trouble>;

/// A text that is under way. If it is dropped, it goes on in a task.
struct UnderWay<'a> {
    runtime: &'a Handle,
    /// Until it is over.
    run: Option<Pin<Box<dyn Future<Output = Ran> + Send>>>,
}

impl Future for UnderWay<'_> {
    type Output = Ran;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ran> {
        let Some(run) = &mut self.run else { return Poll::Pending };
        let ran = ready!(run.as_mut().poll(cx));
        self.run = None;
        Poll::Ready(ran)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.runtime.spawn(run);
        }
    }
}

impl Lane {
    /// Runs a text when those before it are done.
    async fn run(&self, config: &Config, closed: &AtomicBool, text: &Text) -> Result<Vec<Outcome>, Trouble> {
        let mut place = self.line.lock().await;
        if closed.load(Ordering::SeqCst) {
            return Err(Trouble::Error(Error::new(Kind::Unavailable, "the session is closed")));
        }
        // Taken out while it is used: one on which something was given up half-way is never found here again.
        let mut line = match place.take() {
            Some(line) => line,
            // In a box, like all that is not usual: most texts find a connection, and need no room for this.
            None => Line { conn: Box::pin(connect(config)).await?, known: Vec::new() },
        };
        let (outcome, whole) = line.run(text).await;
        if whole && !closed.load(Ordering::SeqCst) {
            *place = Some(line);
        }
        outcome
    }
}

impl Line {
    /// Runs a text. Tells too whether the connection is good for another one.
    async fn run(&mut self, text: &Text) -> (Result<Vec<Outcome>, Trouble>, bool) {
        let outcome = match text {
            Text::Prepared { statement, values } => self.perform(statement, values.clone()).await,
            Text::Plain { statements, enough } => match Box::pin(play_on(&mut self.conn, statements)).await {
                (outcomes, Some(error)) if outcomes.len() < *enough => Err(error),
                // What is left of a connection that broke is of no use.
                (outcomes, Some(error)) if error.is_fatal() => return (Ok(outcomes), false),
                (outcomes, _) => Ok(outcomes),
            },
        };
        let whole = match &outcome {
            Err(error) if error.is_fatal() => false,
            // The transaction may be open still.
            Err(_) => Box::pin(self.conn.query_drop("ROLLBACK")).await.is_ok(),
            Ok(_) => true,
        };
        (outcome.map_err(judge), whole)
    }

    /// Runs one statement with its values. The connection remembers it: to find it by its text, the driver would read all of that.
    async fn perform(&mut self, text: &Arc<str>, values: Vec<Value>) -> mysql_async::Result<Vec<Outcome>> {
        let known = self.known.iter().find(|(known, _)| Arc::ptr_eq(known, text));
        let statement = match known {
            Some((_, statement)) => statement.clone(),
            None => match Box::pin(self.conn.prep(&**text)).await {
                Ok(statement) => {
                    self.known.push((text.clone(), statement.clone()));
                    statement
                }
                // All clients together have as many as the server allows.
                Err(mysql_async::Error::Server(e)) if e.code == TOO_MANY_PREPARED => {
                    return Box::pin(play(&mut self.conn, &sql::written_out(text, &values))).await;
                }
                Err(e) => return Err(e),
            },
        };
        let mut outcomes = Vec::with_capacity(1);
        let result = self.conn.exec_iter(statement, Params::Positional(values)).await?;
        collect(result, &mut outcomes).await?;
        Ok(outcomes)
    }
}

/// Connects. Who was let in once may be let in again, so an error is final only before that: a password that was replaced
/// may not be in its file yet.
pub(crate) async fn connect(config: &Config) -> Result<Conn, Trouble> {
    // Whether an error is the server's own.
    let said = AtomicBool::new(false);
    let connected = if config.known.load(Ordering::Relaxed) {
        dial(config, &said).await.map_err(|trouble| match trouble {
            Trouble::Broken(error) | Trouble::Error(error) if error.retry_advice() == Retry::Never => {
                Trouble::Broken(error.retry(Retry::Later))
            }
            trouble => trouble,
        })
    } else {
        let limit = config.options.timeout;
        let expected = probe::Protocol::MySql;
        let first = First { expected, encrypted: false, hosts: config.hosts(), limit, explained: false };
        first.connect(dial(config, &said), |_| said.load(Ordering::Relaxed)).await
    };
    config.known.fetch_or(connected.is_ok(), Ordering::Relaxed);
    connected
}

async fn dial(config: &Config, said: &AtomicBool) -> Result<Conn, Trouble> {
    let server = config.server()?;
    match timeout(config.options.timeout, Conn::new(server)).await {
        Ok(connected) => connected.map_err(|error| {
            said.store(matches!(error, mysql_async::Error::Server(_)), Ordering::Relaxed);
            judge(error)
        }),
        Err(_) => Err(Trouble::Broken(Error::new(Kind::Unavailable, "connecting took too long"))),
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

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::Context;

    use leasehold_testkit::servers::{MariaDb, MariaDbOptions};

    use super::*;

    async fn number(wire: &Wire, statement: &str) -> i64 {
        sql::number(&wire.run_one(statement).await.unwrap().rows[0], 0).unwrap()
    }

    /// Polls once: it is under way then.
    fn begin(work: Pin<&mut impl Future>) {
        assert!(work.poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    }

    #[tokio::test]
    async fn a_text_that_is_given_up_is_brought_to_its_end_and_its_connection_stays_good() {
        let server = MariaDb::start(MariaDbOptions::new());
        let config = Config::parse(&format!("{}?pool=1", server.url())).unwrap();
        let wire = Wire::open(Arc::new(config)).await.unwrap();
        wire.run("CREATE TABLE given_up (n INT)").await.unwrap();
        let connection = number(&wire, "SELECT CONNECTION_ID()").await;
        for times in 1..=3 {
            {
                let slow = "INSERT INTO given_up SELECT SLEEP(0.2); INSERT INTO given_up VALUES (1)";
                let mut under_way = pin!(wire.run(slow));
                begin(under_way.as_mut());
                // It has not got the connection yet when it is given up.
                let mut in_line = pin!(wire.run("INSERT INTO given_up VALUES (2)"));
                begin(in_line.as_mut());
            }
            assert_eq!(number(&wire, "SELECT CONNECTION_ID()").await, connection);
            assert_eq!(number(&wire, "SELECT COUNT(*) FROM given_up").await, 3 * times);
        }
    }
}
