//! What the tests share: a session that collects its notes, and children that can be killed.
#![allow(dead_code, clippy::print_stdout, missing_docs, unreachable_pub)]

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::store::{
    Ask, Grant, Inbox, Joined, Leave, Left, News, Note, Otherwise, Presence, Renewal, Renewed, Session, Store,
};
use leasehold_core::url::StoreUrl;
use leasehold_core::{EntryId, Label, Lease, Name, Result, SessionId, Token, Want};
use tokio::sync::mpsc;

/// Far longer than anything here takes: what is not there by then never comes.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Far shorter than any poll of a client: what comes within it was told, not found out by asking.
pub const AT_ONCE: Duration = Duration::from_secs(2);

struct Mail {
    notes: mpsc::UnboundedSender<Note>,
    gone: Arc<AtomicBool>,
}

impl Inbox for Mail {
    fn note(&self, note: Note) {
        let _ = self.notes.send(note);
    }

    fn session_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }
}

/// A session and its notes.
pub struct Guest {
    pub id: SessionId,
    pub session: Arc<dyn Session>,
    pub gone: Arc<AtomicBool>,
    notes: tokio::sync::Mutex<mpsc::UnboundedReceiver<Note>>,
    count: AtomicU64,
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

impl Guest {
    pub async fn at(folder: &Path) -> Self {
        Self::at_url(&format!("file:{}", folder.display())).await
    }

    pub async fn at_url(url: &str) -> Self {
        let store = leasehold_file::open(StoreUrl::parse(url).unwrap()).unwrap();
        Self::of(store).await
    }

    pub async fn of(store: Arc<dyn Store>) -> Self {
        Self::try_of(store).await.unwrap()
    }

    pub async fn try_of(store: Arc<dyn Store>) -> Result<Self> {
        let (sender, notes) = mpsc::unbounded_channel();
        let gone = Arc::new(AtomicBool::new(false));
        let id = SessionId::random().unwrap();
        let who = Presence { id, label: Label::of_this_process() };
        let session = store.open(who, Arc::new(Mail { notes: sender, gone: gone.clone() })).await?;
        Ok(Guest { id, session, gone, notes: tokio::sync::Mutex::new(notes), count: AtomicU64::new(0) })
    }

    pub fn next_id(&self) -> EntryId {
        EntryId::of_session(self.id, self.count.fetch_add(1, Ordering::SeqCst))
    }

    pub async fn ask(&self, on: &str, want: Want, otherwise: Otherwise) -> (EntryId, Joined) {
        self.ask_with(on, want, Lease::Kept(Duration::from_secs(30)), otherwise).await
    }

    pub async fn ask_with(
        &self,
        on: &str,
        want: Want,
        lease: Lease,
        otherwise: Otherwise,
    ) -> (EntryId, Joined) {
        let id = self.next_id();
        let ask = Ask { name: name(on), id, want, lease, place: Duration::from_secs(30), otherwise };
        let joined = self.session.clone().join(ask).await.unwrap();
        (id, joined)
    }

    /// Holds it, now.
    pub async fn hold(&self, on: &str, want: Want) -> (EntryId, Grant) {
        match self.ask(on, want, Otherwise::Queue).await {
            (id, Joined::Held(grant)) => (id, grant),
            other => panic!("not held: {other:?}"),
        }
    }

    /// Waits for it.
    pub async fn wait(&self, on: &str, want: Want) -> EntryId {
        match self.ask(on, want, Otherwise::Queue).await {
            (id, Joined::Waiting(_)) => id,
            other => panic!("does not wait: {other:?}"),
        }
    }

    pub async fn barge(&self, on: &str) -> EntryId {
        match self.ask(on, Want::Exclusive, Otherwise::Barge).await {
            (id, Joined::Waiting(_)) => id,
            other => panic!("does not wait: {other:?}"),
        }
    }

    pub async fn try_once(&self, on: &str) -> Option<Token> {
        match self.ask(on, Want::Exclusive, Otherwise::GoAway).await.1 {
            Joined::Held(grant) => Some(grant.tokens.first),
            Joined::Busy => None,
            other => panic!("{other:?}"),
        }
    }

    /// Tries once, on a store that may refuse.
    pub async fn try_ask(&self, on: &str) -> Result<(EntryId, bool)> {
        let (id, lease) = (self.next_id(), Lease::Kept(Duration::from_secs(30)));
        let (place, otherwise) = (Duration::from_secs(30), Otherwise::GoAway);
        let ask = Ask { name: name(on), id, want: Want::Exclusive, lease, place, otherwise };
        let joined = self.session.clone().join(ask).await?;
        Ok((id, matches!(joined, Joined::Held(_))))
    }

    pub async fn leave(&self, on: &str, id: EntryId) -> Left {
        self.session.clone().leave(Leave::new(name(on), id)).await.unwrap()
    }

    pub async fn renew(&self, on: &str, id: EntryId, token: Option<Token>) -> Result<Renewed> {
        let ask = Renewal { name: name(on), id, token, more_tokens: false };
        self.session.clone().renew(vec![ask]).await.unwrap().remove(0)
    }

    /// The next note, which must come soon.
    pub async fn note(&self) -> Note {
        let mut notes = self.notes.lock().await;
        within(AT_ONCE, notes.recv()).await.expect("the session is gone")
    }

    /// The next note, whenever it comes.
    pub async fn any_note(&self) -> Note {
        self.notes.lock().await.recv().await.expect("the session is gone")
    }

    /// The grant that must come soon.
    pub async fn granted(&self, id: EntryId) -> Grant {
        let note = self.note().await;
        match note.news {
            News::Granted(grant) if note.id == id => grant,
            _ => panic!("{note:?}"),
        }
    }

    /// The grant, whenever it comes.
    pub async fn granted_at_last(&self, id: EntryId) -> Grant {
        let note = within(DEADLINE, self.any_note()).await;
        match note.news {
            News::Granted(grant) if note.id == id => grant,
            _ => panic!("{note:?}"),
        }
    }

    pub async fn no_note(&self) {
        let mut notes = self.notes.lock().await;
        let note = tokio::time::timeout(Duration::from_millis(100), notes.recv()).await;
        assert!(note.is_err(), "{note:?}");
    }

    /// How many hold and how many wait.
    pub async fn counts(&self, on: &str) -> (usize, usize) {
        let lock = self.session.clone().inspect(name(on)).await.unwrap();
        (lock.holders.len(), lock.waiters.len())
    }
}

pub async fn within<T>(time: Duration, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, what).await.expect("it did not happen in time")
}

/// Waits until something is so.
pub async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !so() {
        assert!(start.elapsed() < DEADLINE, "it never came to be: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const ROLE: &str = "LEASEHOLD_FILE_TEST_CHILD";

/// Another process: this test binary, told to run one test only, with a role.
pub struct Other {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts a child that runs the test `child` of this binary.
    pub fn start(role: &str) -> Self {
        Self::spawn(Command::new(std::env::current_exe().unwrap()), role)
    }

    /// As [`start`](Self::start), as another user. Only root can do this.
    pub fn start_as(user: u32, group: u32, role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.uid(user).gid(group).current_dir("/");
        Self::spawn(command, role)
    }

    fn spawn(mut command: Command, role: &str) -> Self {
        let mut child = command
            .args(["--exact", "child", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Other { child, output }
    }

    /// Waits for a line that the child says, and returns it.
    pub fn says(&mut self, word: &str) -> String {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the child ended without saying {word:?}");
        }
        line
    }

    /// Kills it as nothing else does: no code of it runs any more.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn finished_well(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The words of the role, in a child.
pub fn role() -> Option<Vec<String>> {
    std::env::var(ROLE).ok().map(|role| role.split(' ').map(str::to_owned).collect())
}
