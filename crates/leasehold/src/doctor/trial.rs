//! Locks that are taken only to see how it goes, under a name that nobody else uses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_client::{Budget, Client, Error, Kind, Label, Name, Result, SessionId, Snapshot, Token, Want};
use leasehold_core::store::{
    Ask, Grant, Inbox, Joined, Leave, News, Note, Otherwise, Pending, Presence, Renewal, Renewed, Session,
    Store,
};
use leasehold_core::{EntryId, Lease};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// How many locks are taken to see how long it takes.
const LOCKS: usize = 100;

/// A slow store is not tried for longer than this.
const LONG_ENOUGH: Duration = Duration::from_secs(10);

/// How long a message to the next in line may take before it counts as lost.
const MESSAGE: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(3) };

/// How long a store that does not answer is waited for at the end. What is still held ends by itself.
const GOODBYE: Duration = Duration::from_secs(5);

/// Two clients of the store: one as every program has it, and one that hears the store's messages itself.
pub(super) struct Trial {
    name: Name,
    /// How long the one who waits may be silent.
    place: Duration,
    client: Client,
    waiter: Arc<dyn Session>,
    mail: Mutex<UnboundedReceiver<Note>>,
}

/// What was seen when locks were taken and given back.
#[derive(Debug, Default)]
pub(super) struct Locks {
    /// How long each lock and unlock took together.
    pub(super) times: Vec<Duration>,
    /// The tokens, in the order of the grants.
    pub(super) tokens: Vec<Token>,
    /// Why it ended early.
    pub(super) failed: Option<Error>,
}

/// What was seen when a lock was handed from one client to the other.
#[derive(Debug)]
pub(super) struct HandOver {
    pub(super) how: How,
    /// The tokens of the two, in the order of the grants.
    pub(super) tokens: Vec<Token>,
}

/// How the next in line got in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It was told, so long after the release began.
    Told(Duration),
    /// No message came; it held when it asked.
    Asked(Duration),
    /// It waited on, though nobody held.
    Stuck(Duration),
    /// It got the lock while another held it.
    TwoHolders,
}

impl Trial {
    pub(super) async fn open(store: &Arc<dyn Store>, label: Label, lease: Duration) -> Result<Self> {
        let name = Name::new(format!("leasehold-doctor/{}", SessionId::random()?))?;
        let options = Client::builder().label(label.as_str()).default_lease(lease);
        // Without a local queue every lock goes to the store.
        let client = options.local_queue(Budget::off()).open(store.clone()).await?;
        let (to, mail) = unbounded_channel();
        let me = Presence { id: SessionId::random()?, label };
        let waiter = store.clone().open(me, Arc::new(Mailbox(to))).await?;
        // It never renews, so its place must outlast the trial.
        let place = lease.max(MESSAGE * 4).min(store.traits().longest_lease);
        Ok(Trial { name, place, client, waiter, mail: Mutex::new(mail) })
    }

    /// Takes the lock and gives it back, again and again.
    pub(super) async fn lock_often(&self) -> Locks {
        let mut seen = Locks::default();
        let begun = Instant::now();
        while seen.times.len() < LOCKS && begun.elapsed() < LONG_ENOUGH {
            if let Err(error) = self.lock_once(&mut seen).await {
                seen.failed = Some(error);
                break;
            }
        }
        seen
    }

    async fn lock_once(&self, seen: &mut Locks) -> Result<()> {
        let begun = Instant::now();
        let guard = self.client.mutex(&self.name).lock().await?;
        seen.tokens.push(guard.token());
        guard.release().await?;
        seen.times.push(begun.elapsed());
        Ok(())
    }

    /// One holds, the other waits; the first gives it back. How does the second learn of it?
    pub(super) async fn hand_over(&self) -> Result<HandOver> {
        let guard = self.client.mutex(&self.name).lock().await?;
        let (first, id) = (guard.token(), EntryId::random()?);
        let joined = to_its_end(self.waiter.clone().join(self.ask(id))).await;
        let begun = Instant::now();
        let released = guard.release().await;
        let handed = match (joined, released) {
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(Joined::Held(grant)), _) => Ok((How::TwoHolders, Some(grant))),
            (Ok(Joined::Waiting(_)), _) => self.turn(id, begun).await,
            (Ok(Joined::Busy), _) => {
                Err(Error::new(Kind::Store, "the store said busy to a claim that waits"))
            }
        };
        // In any case: a claim that failed may have arrived all the same.
        let left = to_its_end(self.waiter.clone().leave(Leave::new(self.name.clone(), id))).await;
        let (how, grant) = handed?;
        left?;
        let second = grant.map(|grant| grant.tokens.first);
        Ok(HandOver { how, tokens: [first].into_iter().chain(second).collect() })
    }

    /// Waits for the message, then asks.
    async fn turn(&self, id: EntryId, begun: Instant) -> Result<(How, Option<Grant>)> {
        let told = timeout(MESSAGE, self.message(id)).await;
        let took = begun.elapsed();
        if let Ok(told) = told {
            return told.map(|grant| (How::Told(took), Some(grant)));
        }
        Ok(match self.look(id).await? {
            Some(grant) => (How::Asked(took), Some(grant)),
            None => (How::Stuck(took), None),
        })
    }

    /// The grant, as soon as a message says that it is there.
    async fn message(&self, id: EntryId) -> Result<Grant> {
        let mut mail = self.mail.lock().await;
        while let Some(note) = mail.recv().await {
            match note.news {
                _ if note.id != id => {}
                News::Granted(grant) => return Ok(grant),
                // On a store without a queue the message says only that it is worth asking.
                News::Retry => {
                    if let Some(grant) = self.look(id).await? {
                        return Ok(grant);
                    }
                }
                News::Gone(why) => {
                    return Err(Error::new(Kind::Lost, format!("the place in the queue was lost: {why}")));
                }
                News::ReleaseRequested => {}
            }
        }
        Err(Error::new(Kind::Lost, "the session of the one who waited ended"))
    }

    /// Asks how the claim stands.
    async fn look(&self, id: EntryId) -> Result<Option<Grant>> {
        let ask = Renewal { name: self.name.clone(), id, token: None, more_tokens: false };
        let answers = to_its_end(self.waiter.clone().renew(vec![ask])).await?;
        match answers.into_iter().next().transpose()? {
            Some(Renewed::Held(grant)) => Ok(Some(grant)),
            _ => Ok(None),
        }
    }

    fn ask(&self, id: EntryId) -> Ask {
        Ask {
            name: self.name.clone(),
            id,
            want: Want::Exclusive,
            lease: Lease::Kept(self.place),
            place: self.place,
            otherwise: Otherwise::Queue,
        }
    }

    /// How the name stands when all is done.
    pub(super) async fn left_behind(&self) -> Result<Snapshot> {
        self.client.inspect(&self.name).await
    }

    pub(super) async fn close(&self) {
        let closing = async { tokio::join!(self.client.close(), self.waiter.clone().close()) };
        let _ = timeout(GOODBYE, closing).await;
    }
}

/// A request to a store is never dropped half-way, even if the trial is.
async fn to_its_end<T: Send + 'static>(request: Pending<T>) -> Result<T> {
    let ended = tokio::spawn(request).await;
    ended.unwrap_or_else(|e| Err(Error::new(Kind::Unavailable, "the runtime is shutting down").because(e)))
}

/// Keeps the store's messages until somebody reads them.
struct Mailbox(UnboundedSender<Note>);

impl Inbox for Mailbox {
    fn note(&self, note: Note) {
        let _ = self.0.send(note);
    }

    fn session_gone(&self) {}
}
