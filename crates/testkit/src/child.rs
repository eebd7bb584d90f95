//! Other processes on the same store: the test binary itself, started again with a part to play.
//!
//! The parent reads what the child says, line by line; a line on the child's standard input lets it go on. A child whose parent
//! is gone ends by itself.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold_client::Client;
use leasehold_core::store::Store;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::bed::Bed;
use crate::program::Program;
use crate::wait::soon;

/// Holds the url and the role of a child. Unset in every other process.
const PART: &str = "LEASEHOLD_TESTKIT_CHILD";

/// Stands before every line that is meant for the parent: the test harness prints lines of its own.
const MARK: &str = "@@ ";

/// The lease of a child's locks: short where a death is noticed by the end of it.
pub const LEASE: Duration = Duration::from_millis(1500);

/// What a child does.
#[derive(Debug, Clone)]
pub enum Role {
    /// Locks a mutex, says `held TOKEN`, and gives it back (`released`) after a line of input.
    Lock(String),
    /// The same with a read lock.
    Read(String),
    /// The same with this many permits of a semaphore with this limit.
    Permits(String, u32, u32),
    /// Adds one to the number in a file, so many times, each under the lock. Says `added` after each, `done` at the end.
    Count {
        /// The lock.
        name: String,
        /// The folder of the number and its log.
        folder: PathBuf,
        /// How often.
        times: u32,
    },
    /// Runs a whole program of a user.
    Program(Program),
}

impl Role {
    fn to_words(&self) -> Vec<String> {
        match self {
            Role::Lock(name) => vec!["lock".into(), name.clone()],
            Role::Read(name) => vec!["read".into(), name.clone()],
            Role::Permits(name, n, of) => vec!["permits".into(), name.clone(), n.to_string(), of.to_string()],
            Role::Count { name, folder, times } => {
                vec!["count".into(), name.clone(), folder.display().to_string(), times.to_string()]
            }
            Role::Program(program) => vec!["program".into(), program.name().into()],
        }
    }

    fn from_words(words: &[&str]) -> Self {
        let number = |text: &str| text.parse().expect("a number");
        match *words {
            ["lock", name] => Role::Lock(name.into()),
            ["read", name] => Role::Read(name.into()),
            ["permits", name, n, of] => Role::Permits(name.into(), number(n), number(of)),
            ["count", name, folder, times] => {
                Role::Count { name: name.into(), folder: folder.into(), times: number(times) }
            }
            ["program", name] => Role::Program(Program::of_name(name)),
            _ => panic!("a child got the part {words:?}"),
        }
    }
}

/// Another process that plays a role. Killed when it is dropped.
pub struct Child {
    process: tokio::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts this test binary again, to play a role on the store at this URL. The binary has a test that is called `child_process`
    /// and calls [`run_if_child`].
    pub fn start(url: &str, role: &Role) -> Self {
        let part = [vec![url.to_owned()], role.to_words()].concat().join("\n");
        let mut process = Command::new(std::env::current_exe().expect("the path of this test"))
            .args(["child_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a child process");
        let out = process.stdout.take().expect("the child's output");
        Child { process, lines: BufReader::new(out).lines() }
    }

    /// What it says next; `None` when it has ended.
    pub async fn hear(&mut self) -> Option<String> {
        loop {
            let line = soon("a word from a child process", self.lines.next_line())
                .await
                .expect("the child's output")?;
            if let Some((_, word)) = line.split_once(MARK) {
                return Some(word.to_owned());
            }
        }
    }

    /// Waits until it says that it holds the lock; its token.
    pub async fn held(&mut self) -> u64 {
        let word = self.hear().await.expect("a child that lives");
        let token = word.strip_prefix("held ").unwrap_or_else(|| panic!("the child said {word:?}"));
        token.parse().expect("a token")
    }

    /// Lets it give the lock back.
    pub async fn release(&mut self) {
        let input = self.process.stdin.as_mut().expect("the child's input");
        input.write_all(b"go on\n").await.expect("a child that listens");
        assert_eq!(self.hear().await.as_deref(), Some("released"));
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id().expect("a child that was not waited for")
    }

    /// Its input: whoever has it keeps it from ending.
    pub fn take_input(&mut self) -> ChildStdin {
        self.process.stdin.take().expect("the child's input")
    }

    /// Kills it with SIGKILL, and waits until it is dead.
    pub async fn kill(mut self) {
        self.process.kill().await.expect("to kill a child");
    }

    /// Waits for its own end.
    pub async fn end(self) {
        let status = self.status().await;
        assert!(status.success(), "a child ended with {status}");
    }

    /// Waits for its own end, and tells how it ended.
    pub async fn status(mut self) -> ExitStatus {
        drop(self.process.stdin.take());
        soon("a child's end", self.process.wait()).await.expect("a child's end")
    }
}

/// Plays the child's part if this process is one, and ends it. Does nothing in the test itself.
pub fn run_if_child(bed: impl Bed) {
    let Ok(part) = std::env::var(PART) else { return };
    let words: Vec<&str> = part.split('\n').collect();
    let (url, role) = (words[0].to_owned(), Role::from_words(&words[1..]));
    if let Role::Program(program) = role {
        // It ends as a program does: by returning.
        return program.run(&bed, &url);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = bed.open(url).await.expect("the store of the parent");
        play(store, role).await;
    });
    // The thread that reads the input would keep the process alive.
    std::process::exit(0);
}

async fn play(store: Arc<dyn Store>, role: Role) {
    let label = format!("child {}", std::process::id());
    let client = Client::builder().label(label).default_lease(LEASE).open(store).await.expect("a client");
    let guard = match &role {
        Role::Lock(name) => client.mutex(name).lock().await,
        Role::Read(name) => client.rwlock(name).read().await,
        Role::Permits(name, n, of) => client.semaphore(name, *of).acquire(*n).await,
        Role::Count { name, folder, times } => return count(&client, name, folder.clone(), *times).await,
        Role::Program(_) => return,
    };
    let guard = guard.expect("a lock");
    say(format!("held {}", guard.token()));
    let input = tokio::task::spawn_blocking(wait_for_input);
    if input.await.unwrap_or(false) {
        guard.release().await.expect("a release");
        client.close().await.expect("a close");
        say("released");
    }
}

async fn count(client: &Client, name: &str, folder: PathBuf, times: u32) {
    let lock = client.mutex(name);
    for _ in 0..times {
        let guard = lock.lock().await.expect("a lock");
        add_one(&folder).await;
        guard.release().await.expect("a release");
        say("added");
    }
    client.close().await.expect("a close");
    say("done");
}

/// Reads the number, notes the next one in the log, and writes it. Killed in between, it leaves the old number, whole.
async fn add_one(folder: &std::path::Path) {
    use std::io::Write as _;
    let number: u64 =
        std::fs::read_to_string(folder.join("number")).expect("the number").parse().expect("a number");
    let me = std::process::id();
    let mut log = std::fs::OpenOptions::new().append(true).open(folder.join("log")).expect("the log");
    log.write_all(format!("{me} {}\n", number + 1).as_bytes()).expect("a line of the log");
    tokio::task::yield_now().await;
    let draft = folder.join(format!("number.{me}"));
    std::fs::write(&draft, (number + 1).to_string()).expect("the next number");
    std::fs::rename(draft, folder.join("number")).expect("the next number in its place");
}

/// Waits for a line of input; `false` if the parent is gone.
pub(crate) fn wait_for_input() -> bool {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).is_ok_and(|bytes| bytes > 0)
}

#[allow(clippy::print_stdout)] // It is how a child talks to its parent.
pub(crate) fn say(word: impl AsRef<str>) {
    println!("{MARK}{}", word.as_ref());
}
