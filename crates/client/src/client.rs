//! The client: one presence at one store, shared by all its clones.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_background::Background;
use leasehold_core::store::{Pending, Presence, Session, Store};
use leasehold_core::view::{EntryView, Snapshot};
use leasehold_core::{Clock, Error, IntoName, Kind, Label, Name, Result, SessionId, Token, Traits, Want};

use crate::budget::Budget;
use crate::claim::{Claim, check_lease};
use crate::engine::{About, Engine, Mail};
use crate::local::Rules;
use crate::local::table::Table;
use crate::opening::Opening;
use crate::outage::{Listener, Outage, Outages};
use crate::recipes::{Leader, Multi, Mutex, Part, RwLock, Semaphore, Striped};
use crate::views::{Listing, Watch};

/// A client of a store. Cheap to clone; all clones share one session, one local queue and one keeper.
///
/// [`close`](Client::close) it before `std::process::exit`, which drops no guards. In a child that was forked without
/// exec it refuses everything: connect again there.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
/// use leasehold_client::Client;
/// let client = Client::open(leasehold_memory::Memory::new()).await?;
/// let guard = client.mutex("orders/42").lock().await?;
/// println!("held with token {}", guard.token());
/// guard.release().await?;
/// client.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) engine: Arc<Engine>,
    /// See [`with_retry_for`](Client::with_retry_for).
    pub(crate) retry_for: Option<Duration>,
}

/// The options of a [`Client`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ClientBuilder {
    label: Option<Label>,
    lease: Duration,
    namespace: String,
    budget: Budget,
    retry_for: Duration,
    try_for: Option<Duration>,
    open_for: Option<Duration>,
    on_outage: Option<Listener>,
    clock: Clock,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        ClientBuilder {
            label: None,
            lease: Duration::from_secs(30),
            namespace: String::new(),
            budget: Budget::default(),
            retry_for: Duration::from_secs(10),
            try_for: None,
            open_for: None,
            on_outage: None,
            clock: Clock::system(),
        }
    }
}

impl ClientBuilder {
    /// What people read when they ask who holds a lock. Host, process id and program unless given.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Some(Label::new(label));
        self
    }

    /// How long a lock outlives a client that died, on stores that notice a death by the end of its leases: 30 s unless
    /// given. Kept leases are renewed at a third of it.
    pub fn default_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// A prefix of every name this client locks; its views show names without it.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// How long a lock may pass from task to task inside this client while others may be waiting.
    pub fn local_queue(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// How long a store that is not available is asked again before a verb fails that has no limit of its own: 10 s unless
    /// given. It counts from the first request that failed, and starts anew with each answer.
    ///
    /// | verb | its limit |
    /// | --- | --- |
    /// | `open`, `connect` | [`open_for`](Self::open_for) |
    /// | `lock` and its like | this, of trouble without an answer between; a holder is waited for as long as it takes |
    /// | `lock_within` and its like | their own: nothing that passes by itself ends them sooner |
    /// | `try_lock` and its like | [`try_for`](Self::try_for) |
    /// | [`release`](crate::Guard::release) | this, or [its own](crate::Guard::release_within); the release goes on after it |
    /// | all others | this |
    ///
    /// Per call it is set by the option of the same name, or with [`Client::with_retry_for`].
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.retry_for = time;
        self
    }

    /// How long it is tried to open the client on a store that is not available: as [`retry_for`](Self::retry_for) unless given. One
    /// try has the time that a request to the store may take, even if that is longer.
    pub fn open_for(mut self, time: Duration) -> Self {
        self.open_for = Some(time);
        self
    }

    /// How long a claim that does not wait for a holder (`try_lock`, or a limit of zero) waits for the store's answer: as long
    /// as one request to the store may take unless given (`timeout=` in its URL).
    pub fn try_for(mut self, time: Duration) -> Self {
        self.try_for = Some(time);
        self
    }

    /// Calls this when the store is not available for a moment, and when it is again. The same is logged, see
    /// [`docs`](crate::docs). It is called on a thread of its own, for one event after the other, also while the client
    /// is being opened: it may block, and a panic ends only that call. The exit of the process does not wait for it.
    ///
    /// ```
    /// use leasehold_client::{Client, Outage};
    /// let builder = Client::builder().on_outage(|outage| match outage {
    ///     Outage::Began { error, held, .. } => eprintln!("{held} locks in danger: {error}"),
    ///     Outage::Ended { lasted, lost, .. } => eprintln!("{lost} locks lost in {lasted:?}"),
    ///     _ => {}
    /// });
    /// ```
    pub fn on_outage(mut self, listener: impl Fn(&Outage<'_>) + Send + Sync + 'static) -> Self {
        self.on_outage = Some(Listener(Arc::new(listener)));
        self
    }

    /// The clock that leases are measured on. For tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Opens a client on a store. One that is not available (it is starting, it is full, it has no leader) is tried again within the
    /// [patience](Self::open_for); what another try can't help (a wrong password) fails at once. It can be opened, used and dropped in any async runtime, and in several: what it does in the
    /// background runs on a thread of Leasehold's own, one for all clients of the process.
    pub async fn open(self, store: Arc<dyn Store>) -> Result<Client> {
        let background = Background::get().map_err(|e| {
            Error::new(Kind::Unavailable, "the background thread could not be started").because(e)
        })?;
        let traits = store.traits();
        check_lease(self.lease, traits)?;
        if self.namespace.len() >= Name::MAX_BYTES {
            let what = format!("the namespace has {} bytes", self.namespace.len());
            return Err(
                Error::new(Kind::Invalid, what).advice("leave room for names: together they have up to 1024")
            );
        }
        let (url, id) = (store.url(), SessionId::random()?);
        let label = self.label.unwrap_or_else(Label::of_this_process);
        let mail = Arc::new(Mail(OnceLock::new()));
        let outages = Outages::new(url.clone(), store.timeout(), self.on_outage);
        let opening = Opening { store: &store, background, clock: &self.clock, outages: &outages };
        let session = opening
            .within(self.open_for.unwrap_or(self.retry_for), &Presence { id, label: label.clone() }, &mail)
            .await?;
        let (lease, budget, retry_for, death) = (self.lease, self.budget, self.retry_for, traits.death);
        let timeout = store.timeout();
        let try_for = self.try_for.unwrap_or(timeout);
        let rules = Rules { lease, budget, retry_for, try_for, death };
        let table = Table::new(rules, self.clock, id);
        let about = About { namespace: self.namespace, label, id, traits, url, timeout };
        let engine = Engine::new(about, session, table, background, outages);
        let _ = mail.0.set(Arc::downgrade(&engine));
        background.spawn(crate::keeper::keep(Arc::downgrade(&engine), engine.keeper.clone()));
        Ok(Client { engine, retry_for: None })
    }
}

impl Client {
    /// A client with options.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A client with the usual options.
    pub async fn open(store: Arc<dyn Store>) -> Result<Client> {
        Self::builder().open(store).await
    }

    /// The same client with another [patience](ClientBuilder::retry_for) for what is asked through this handle, in
    /// place of both that of the client and the time of those that [try](ClientBuilder::try_for): with a longer one
    /// `try_lock` waits for an answer as long. A limit of a verb's own (`lock_within`, `release_within`) stays what it
    /// is.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
    /// # let client = leasehold_client::Client::open(leasehold_memory::Memory::new()).await?;
    /// use std::time::Duration;
    /// let hasty = client.with_retry_for(Duration::from_millis(500));
    /// let stands = hasty.inspect("orders").await?; // an answer or an error within half a second
    /// # drop(stands); Ok(()) }
    /// ```
    pub fn with_retry_for(&self, time: Duration) -> Client {
        Client { engine: self.engine.clone(), retry_for: Some(time) }
    }

    /// A lock that one holds at a time.
    pub fn mutex(&self, name: impl IntoName) -> Mutex {
        Mutex::new(self, self.full_name(name))
    }

    /// A lock that many readers or one writer hold.
    pub fn rwlock(&self, name: impl IntoName) -> RwLock {
        RwLock::new(self, self.full_name(name))
    }

    /// A number of permits that many share. All who use a name must agree on the limit.
    pub fn semaphore(&self, name: impl IntoName, limit: u32) -> Semaphore {
        Semaphore::new(self, self.full_name(name), limit)
    }

    /// Several locks as one: all or nothing.
    pub fn multi(&self, parts: impl IntoIterator<Item = Part>) -> Multi {
        Multi::new(self, parts)
    }

    /// One name cut into `stripes` locks, of which a key picks one: more concurrency on one hot resource.
    pub fn striped(&self, name: impl IntoName, stripes: u32) -> Striped {
        Striped::new(self, name.into_name(), stripes)
    }

    /// The election of a leader.
    pub fn leader(&self, name: impl IntoName) -> Leader {
        Leader::new(self, self.full_name(name))
    }

    /// Who holds a lock and who waits for it. One trip to the store.
    pub async fn inspect(&self, name: impl IntoName) -> Result<Snapshot> {
        let name = self.full_name(name)?;
        let snapshot = self.ask(|s| s.inspect(name.clone())).await?;
        Ok(self.strip(snapshot))
    }

    /// The locks in use whose names start with `prefix`, in the order of their names, fetched page by page.
    pub fn list(&self, prefix: impl Into<String>) -> Listing {
        Listing::new(self.clone(), prefix.into())
    }

    /// Takes a lock away from its holders: all of them, or only the one with this token. The holders are told; whoever waits
    /// gets in. Returns whom it was taken from.
    ///
    /// If an answer of the store is lost, it is tried again, but only with those that held the lock when this was
    /// called: whoever got in meanwhile keeps it.
    ///
    /// If a token is given and somebody with another one holds the lock, nothing is taken and the error is of kind
    /// [`Mismatch`](Kind::Mismatch).
    pub async fn force_release(
        &self,
        name: impl IntoName,
        expected: Option<Token>,
    ) -> Result<Vec<EntryView>> {
        let name = self.full_name(name)?;
        let look = || self.ask(|s| s.inspect(name.clone()));
        let before = look().await?.holders;
        // A hold is shown with its first token. If a later one is given, only the store knows which hold it means.
        let seen: Vec<_> =
            before.iter().filter(|view| expected.is_none() || view.token == expected).cloned().collect();
        let known = expected.is_none() || !seen.is_empty();
        let tries = AtomicU32::new(0);
        let revoke = |session: Arc<dyn Session>| {
            let repeated = tries.fetch_add(1, Ordering::Relaxed) > 0;
            if repeated && known {
                revoke_the_rest(session, name.clone(), seen.clone())
            } else {
                session.revoke(name.clone(), expected)
            }
        };
        let mut revoked = self.ask(revoke).await?.holders;
        if revoked.is_empty() && !known && tries.into_inner() > 1 {
            // The first try may have done it, and its answer was lost: whoever held it and does not any more lost it by that.
            let after = look().await?.holders;
            let meant = |view: &EntryView| view.token.is_some_and(|first| expected >= Some(first));
            revoked = before.into_iter().filter(|v| meant(v) && after.iter().all(|a| a.id != v.id)).collect();
        }
        if revoked.is_empty() {
            let advice = "look again who holds it before you take it away";
            self.nobody_else_holds(&name, expected, &look().await?, advice)?;
        }
        Ok(revoked)
    }

    /// Asks the holders of a lock to give it back: all of them, or only the one with this token. They are told
    /// ([`Guard::release_requested`](crate::Guard::release_requested)) and decide; nothing is taken away. Returns whom it asked:
    /// nobody, if nobody holds the lock. One trip to the store.
    ///
    /// The request stays with a hold until it ends, so a holder that looks later finds it. The holders after it are not asked,
    /// unless an answer of the store was lost: then the holders of that moment are asked, and returned. Asking again does no
    /// harm. For tasks of one client that share a lock it means that the lock leaves the client when its present holder is
    /// done: those that wait in the local queue have to queue at the store again.
    ///
    /// If a token is given and somebody with another one holds the lock, nobody is asked and the error is of kind
    /// [`Mismatch`](Kind::Mismatch).
    ///
    /// # Cancel safety
    ///
    /// Dropping this future may leave the request made, or not.
    pub async fn request_release(
        &self,
        name: impl IntoName,
        expected: Option<Token>,
    ) -> Result<Vec<EntryView>> {
        let name = self.full_name(name)?;
        // A second try after a lost answer asks the holders of that moment, which most often are the same.
        let asked = self.ask(|s| s.request_release(name.clone(), expected)).await?.holders;
        if asked.is_empty() && expected.is_some() {
            let stands = self.ask(|s| s.inspect(name.clone())).await?;
            self.nobody_else_holds(
                &name,
                expected,
                &stands,
                "look again who holds it before you ask for it",
            )?;
        }
        Ok(asked)
    }

    /// An error if a token was meant, and somebody with another one holds the lock.
    fn nobody_else_holds(
        &self,
        name: &Name,
        expected: Option<Token>,
        stands: &Snapshot,
        advice: &'static str,
    ) -> Result<()> {
        let (Some(token), Some(other)) = (expected, stands.holders.first()) else { return Ok(()) };
        let (label, its) = (&other.label, other.token.map_or(0, Token::get));
        let what = format!("the lock is not held with token {token}: {label} holds it with token {its}");
        Err(self.engine.explain(Error::new(Kind::Mismatch, what).advice(advice), name))
    }

    /// What happens from now on to locks whose names start with `prefix`.
    pub async fn watch(&self, prefix: impl Into<String>) -> Result<Watch> {
        let prefix = format!("{}{}", self.engine.about.namespace, prefix.into());
        let events = self.ask(|s| s.watch(prefix.clone())).await?;
        Ok(Watch::new(events, self))
    }

    /// What the store promises.
    pub fn traits(&self) -> &'static Traits {
        self.engine.about.traits
    }

    /// The store's URL, without a password.
    pub fn store_url(&self) -> String {
        self.engine.about.url.clone()
    }

    /// What others read about this client.
    pub fn label(&self) -> &Label {
        &self.engine.about.label
    }

    /// This client's session at the store.
    pub fn session(&self) -> SessionId {
        self.engine.about.id
    }

    /// A file that keeps this client's session alive for as long as anybody has it open, even if this process is killed: hand
    /// it to a helper process that has to clean up before others may hold the locks. `None` on stores whose sessions
    /// can't be lent (all but `file:`).
    #[cfg(unix)]
    pub fn lifeline(&self) -> Option<std::os::fd::OwnedFd> {
        self.engine.session.lifeline()
    }

    /// Gives everything back and ends the session. Guards that still exist are lost; what is asked of the client from now on is
    /// refused. Waits for the store as long as this handle's [patience](ClientBuilder::retry_for) lasts.
    ///
    /// Nothing is granted after it: the session ends when the claims that were sent before are answered. One that a store in trouble
    /// has not answered within half of the client's patience (or a time-out of the store, if that is longer) is not waited for. If it is
    /// carried out after all, no guard comes of it, and its entry ends with its lease.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future does not stop it.
    pub async fn close(&self) -> Result<()> {
        self.engine.close(self.retry_for.unwrap_or(self.engine.table.rules.retry_for)).await
    }

    /// Asks the store within the patience of this handle.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        request: impl Fn(Arc<dyn Session>) -> Pending<T>,
    ) -> Result<T> {
        self.engine.ask_for(self.retry_for.unwrap_or(self.engine.table.rules.retry_for), request).await
    }

    pub(crate) fn full_name(&self, name: impl IntoName) -> Result<Name> {
        let name = name.into_name()?;
        if self.engine.about.namespace.is_empty() {
            Ok(name)
        } else {
            Name::new(format!("{}{name}", self.engine.about.namespace))
        }
    }

    pub(crate) fn strip(&self, snapshot: Snapshot) -> Snapshot {
        Snapshot { name: stripped(&snapshot.name, self.engine.about.namespace.len()), ..snapshot }
    }

    pub(crate) fn claim(&self, name: Result<Name>, want: Want) -> Claim {
        Claim { retry_for: self.retry_for, ..Claim::new(name, Ok(want)) }
    }
}

/// Revokes a lock once more, after a try that may have done it. Whoever got in by that must not lose the lock by this:
/// so it is taken only from those that were seen before the first try, each by its own token. They all count as
/// revoked: of one that is gone nobody can tell any more whether the first try did it.
fn revoke_the_rest(session: Arc<dyn Session>, name: Name, seen: Vec<EntryView>) -> Pending<Snapshot> {
    Box::pin(async move {
        let stands = session.clone().inspect(name.clone()).await?;
        let left = stands.holders.iter().filter(|holder| seen.iter().any(|view| view.id == holder.id));
        for holder in left.filter(|holder| holder.token.is_some()) {
            session.clone().revoke(name.clone(), holder.token).await?;
        }
        Ok(Snapshot { holders: seen, ..stands })
    })
}

/// The name as the client's user knows it.
pub(crate) fn stripped(name: &Name, namespace: usize) -> Name {
    match name.as_str().get(namespace..) {
        Some(rest) if namespace > 0 => Name::new(rest).unwrap_or_else(|_| name.clone()),
        _ => name.clone(),
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("store", &self.engine.about.url)
            .field("label", &self.engine.about.label)
            .finish()
    }
}
