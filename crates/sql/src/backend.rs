//! What a database must be able to do.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::queue::Queue;
use leasehold_core::store::Waiting;
use leasehold_core::{EntryId, Name, Result, SessionId, Token, TokenBlock};

use crate::change::Change;
use crate::row::{Row, unreadable};
use crate::wake::Ears;

/// A database: its dialect and its connections.
///
/// Every method is one round trip, ends in bounded time, and does all or nothing. Deadlocks and serialization failures are tried again
/// inside; an error means that the outcome is unknown, unless it says otherwise.
pub trait Backend: Send + Sync + 'static {
    /// How the locks of these names stand at one moment, and who watches.
    fn load(&self, names: &[Name]) -> impl Future<Output = Result<Loaded>> + Send;

    /// The same of one lock, with no more than the front and the first few behind it.
    fn peek(&self, name: &Name) -> impl Future<Output = Result<Loaded>> + Send;

    /// Writes a change if the lock still has the version that the change was made from. Tells whether it had.
    fn save(&self, change: &Change) -> impl Future<Output = Result<bool>> + Send;

    /// Does a step that needs nothing to be read, or finds that it can't be done like that.
    fn step(&self, step: &Step) -> impl Future<Output = Result<Stepped>> + Send;

    /// Does several in one transaction: as many outcomes, `None` for each that nothing was done of and that is worth a [`step`](Backend::step)
    /// of its own. They are in the order of their names, and no two are about one lock. An error that is not
    /// [`Unavailable`](leasehold_core::Kind::Unavailable) means that none was done.
    fn steps(&self, steps: &[Step]) -> impl Future<Output = Result<Vec<Option<Stepped>>>> + Send;

    /// How many statements can be under way at once.
    fn lanes(&self) -> usize;

    /// Joins the queue behind one that holds the lock alone, and whose lease runs, while nobody watches. `None` if it isn't so. The entry
    /// must not be there already. The row's times are the database's to fill in, and its number in line.
    fn append(&self, name: &Name, row: &Row) -> impl Future<Output = Result<Option<Waiting>>> + Send;

    /// Renews a place in the queue behind one that holds the lock alone, and whose lease runs. `None` if it isn't so.
    fn stay(&self, name: &Name, id: EntryId) -> impl Future<Output = Result<Option<Waiting>>> + Send;

    /// Gives up a place in the queue behind one that holds the lock alone, and whose lease runs, while nobody watches: nobody gets
    /// anything by it. `false` if it isn't so; then nothing has happened.
    fn withdraw(&self, name: &Name, id: EntryId) -> impl Future<Output = Result<bool>> + Send;

    /// Renews kept leases that run, of entries that are alone on their lock, and says how they are told now. `None` for each that isn't.
    fn keep(
        &self,
        lines: &[(Name, EntryId)],
        wake: &str,
    ) -> impl Future<Output = Result<Vec<Option<Kept>>>> + Send;

    /// Names of locks in use that start with the prefix, in byte order, after this one.
    fn names(
        &self,
        prefix: &str,
        after: Option<&Name>,
        most: usize,
    ) -> impl Future<Output = Result<Vec<Name>>> + Send;

    /// Takes out what was left for a session, oldest first.
    fn mail(&self, session: SessionId) -> impl Future<Output = Result<Vec<String>>> + Send;

    /// Says that this session watches, for so long from now. All others know it [`LAG`](crate::unwatched::LAG) later.
    fn watch(
        &self,
        session: SessionId,
        wake: &str,
        span: Duration,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Removes what is left of locks that nobody used for the time of retention.
    fn sweep(&self) -> impl Future<Output = Result<()>> + Send;

    /// Begins to listen for rings, which go to `ears`, until the [`Bell`] is dropped. Tried again inside until it works.
    fn listen(&self, session: SessionId, ears: Arc<Ears>) -> Arc<dyn Bell>;

    /// Ends all connections.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// How a session is told.
pub trait Bell: Send + Sync + 'static {
    /// How others tell this session now, in the database's own words. It goes into the rows of its entries.
    fn wake(&self) -> String;

    /// Whether it is heard when somebody rings now. Else mail must be looked for.
    fn heard(&self) -> bool;
}

/// What [`Backend::load`] found.
#[derive(Debug)]
pub struct Loaded {
    /// The database's time: microseconds since 1970.
    pub now: u64,
    /// Sessions that watch, and how they are told.
    pub watchers: Vec<(SessionId, String)>,
    /// The locks, in the order of the names. `None` if there are no rows.
    pub locks: Vec<Option<Lock>>,
}

/// The rows of one lock.
#[derive(Debug, Clone)]
pub struct Lock {
    /// Changes with every write.
    pub version: i64,
    /// The highest token ever given out.
    pub last: u64,
    /// The number of permits in force.
    pub limit: Option<u32>,
    /// The highest number in line that was given out.
    pub line: i64,
    /// How many entries there are besides the front.
    pub rest: i64,
    /// When the rows may be removed if nothing happens, but for what [`may_go`](crate::usual::may_go) asks besides.
    pub keep: i64,
    /// The entries, in any order: all, or the first of the queue.
    pub rows: Vec<Row>,
}

impl Lock {
    /// Whether all entries are here, the front and those behind it. `false` also if there is no front.
    pub(crate) fn is_whole(&self) -> bool {
        self.rows.len() as i64 > self.rest
    }

    /// The queue that the rows say.
    pub fn queue(&self) -> Queue {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| row.seq);
        let list = |barges| rows.iter().filter(|r| r.barges == barges).map(|r| r.entry.clone()).collect();
        Queue { last: self.last, limit: self.limit, entries: list(false), bargers: list(true) }
    }
}

/// What can be done to a lock in one statement, if nobody watches it.
#[derive(Debug)]
pub enum Step {
    /// Takes a lock that is free.
    Enter(Box<Entering>),
    /// Takes an entry out that is the only one.
    Depart(Departing),
}

impl Step {
    /// Which lock it is about.
    pub fn name(&self) -> &Name {
        match self {
            Step::Enter(entering) => &entering.name,
            Step::Depart(departing) => &departing.name,
        }
    }
}

/// A claim on a lock that may be free.
#[derive(Debug)]
pub struct Entering {
    /// Which lock.
    pub name: Name,
    /// The row; its tokens and times are the database's to fill in.
    pub row: Row,
    /// The number of permits that comes into force.
    pub limit: Option<u32>,
}

/// A release by what may be the only entry.
#[derive(Debug)]
pub struct Departing {
    /// Which lock.
    pub name: Name,
    /// Which entry.
    pub id: EntryId,
    /// The last token that was used.
    pub used: Option<Token>,
}

/// What came of a [`Step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// The entry holds the lock. This is the first of its tokens.
    Entered(Token),
    /// The lock is free.
    Departed,
    /// It isn't so, and nothing has happened.
    Undone,
}

/// A lease that was renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// How long it is good now.
    pub lease: Duration,
    /// Its last block of tokens.
    pub tokens: TokenBlock,
    /// Whether somebody asked for the lock back.
    pub asked: bool,
}

impl Kept {
    /// What a row says: the lease in microseconds, the first and the last token of its block, and whether somebody asked.
    pub fn read(lease: i64, first: i64, last: i64, asked: i64) -> Result<Kept> {
        let len = last.checked_sub(first).and_then(|more| u32::try_from(more.checked_add(1)?).ok());
        let len = len.ok_or_else(|| unreadable("a block of tokens is too long"))?;
        let tokens = TokenBlock { first: Token(first.unsigned_abs()), len };
        Ok(Kept { lease: Duration::from_micros(lease.unsigned_abs()), tokens, asked: asked != 0 })
    }
}

/// How one waits behind a holder that has so many microseconds left, with so many before it.
pub fn waiting(left: i64, place: i64) -> Waiting {
    let poll_in = (place == 0).then(|| Duration::from_micros(left.unsigned_abs()));
    Waiting { place: u32::try_from(place).ok(), poll_in }
}

/// Sessions that watch, and how they are told, from `session:wake,session:wake`.
pub fn watchers(text: &str) -> Vec<(SessionId, String)> {
    let watcher = |text: &str| {
        let (session, wake) = text.split_once(':')?;
        Some((session.parse().ok()?, wake.to_owned()))
    };
    text.split(',').filter_map(watcher).collect()
}
