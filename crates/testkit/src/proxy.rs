//! A TCP proxy between a client and a server, that cuts, holds up and loses what passes.
//!
//! It runs on a thread of its own, so it works in blocking tests and in async ones, however busy their runtime is.
//!
//! ```no_run
//! use leasehold_testkit::proxy::Proxy;
//! use leasehold_testkit::servers::redis::{Redis, RedisOptions};
//!
//! let redis = Redis::start(RedisOptions::new());
//! let proxy = Proxy::start(redis.address());
//! let url = format!("redis://{}/", proxy.address());
//! proxy.lose_answer_to(b"EVALSHA"); // it happens, and the client hears nothing of it
//! ```
//!
//! In front of ZooKeeper, a request can be named by its number in the protocol, and requests are counted by it:
//!
//! ```no_run
//! use leasehold_testkit::proxy::Proxy;
//! use leasehold_testkit::servers::zookeeper::jute::op;
//! use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};
//!
//! let server = ZooKeeper::start(ZooKeeperOptions::new());
//! let proxy = Proxy::to_zookeeper(server.address());
//! proxy.lose_answer_to(op::CREATE2);
//! proxy.cut_before((op::DELETE, "/locks/orders"));
//! assert_eq!(proxy.requests_of(op::CREATE2), 0);
//! ```
//!
//! # Limits
//!
//! The proxy reads RESP, or Jute for ZooKeeper, to tell one request from the next. It forwards whole commands and whole answers, so it doesn't show a
//! client half an answer (except in [`drip`](Proxy::drip)). Answers of Redis are counted to find the one that is lost; on a connection
//! that subscribes in RESP2, where messages look like answers, an earlier one than meant may be lost. A stream in another language
//! (TLS, other servers) passes as it comes: then a "request" is whatever one read gave, and none is counted.
//!
//! # Layout
//!
//! - `frames`: cuts a stream into requests and answers.
//! - `relay`: what happens to the bytes of one connection.

mod frames;
mod relay;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use self::frames::{Frame, Language};
use crate::servers::{Port, until};

/// What is done to all that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    Refuse,
    Hang,
    Swallow,
    Delay(Duration),
    Drip {
        bytes: usize,
        every: Duration,
    },
    /// The proxy is dropped.
    End,
}

/// What is done to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The connection is reset, and the server never sees the request.
    CutBefore,
    /// The server gets the request; the connection is reset when it answers.
    LoseAnswer,
}

/// Which request is meant: by bytes in it (a command, a key, a path, a part of an argument), by its number in the protocol
/// of ZooKeeper, or by both.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    op: Option<i32>,
    containing: Vec<u8>,
}

impl Wanted {
    fn is(&self, request: &Frame) -> bool {
        let op = request.head.map(|head| head.op);
        (self.op.is_none() || self.op == op) && contains(&request.bytes, &self.containing)
    }
}

impl From<&[u8]> for Wanted {
    fn from(containing: &[u8]) -> Self {
        Wanted { op: None, containing: containing.to_owned() }
    }
}

impl<const N: usize> From<&[u8; N]> for Wanted {
    fn from(containing: &[u8; N]) -> Self {
        containing.as_slice().into()
    }
}

impl From<i32> for Wanted {
    fn from(op: i32) -> Self {
        Wanted { op: Some(op), containing: Vec::new() }
    }
}

impl From<(i32, &str)> for Wanted {
    fn from((op, containing): (i32, &str)) -> Self {
        Wanted { op: Some(op), containing: containing.into() }
    }
}

/// A fault that waits for its request.
struct Plan {
    wanted: Wanted,
    /// So many of them pass before.
    spare: usize,
    fault: Fault,
}

#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    requests: AtomicU64,
    /// By their numbers in the protocol of ZooKeeper.
    by_op: Mutex<BTreeMap<i32, u64>>,
    answers: AtomicU64,
    bytes_to_server: AtomicU64,
    bytes_to_client: AtomicU64,
    reads_from_client: AtomicU64,
    reads_from_server: AtomicU64,
}

/// What has passed so far, on all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests that went to the server.
    pub requests: u64,
    /// Answers that went to a client.
    pub answers: u64,
    /// Bytes that went to the server.
    pub bytes_to_server: u64,
    /// Bytes that went to a client.
    pub bytes_to_client: u64,
    /// How often something came from a client: packets, more or less.
    pub reads_from_client: u64,
    /// How often something came from the server.
    pub reads_from_server: u64,
}

struct Shared {
    target: Mutex<SocketAddr>,
    language: Language,
    mode: watch::Sender<Mode>,
    /// Every open connection listens to it. A cut tells those, and puts a new one in its place for those who come after.
    cut: Mutex<watch::Sender<()>>,
    plans: Mutex<Vec<Plan>>,
    listening: AtomicBool,
    traffic: Counters,
}

impl Shared {
    fn target(&self) -> SocketAddr {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that was planned for this request. It happens once.
    fn fault_for(&self, request: &Frame) -> Option<Fault> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |plan: &Plan| plan.wanted.is(request);
        let mut chosen = None;
        for (at, plan) in plans.iter_mut().enumerate().filter(|(_, plan)| fits(plan)) {
            match plan.spare.checked_sub(1) {
                Some(spare) => plan.spare = spare,
                None => chosen = chosen.or(Some(at)),
            }
        }
        chosen.map(|at| plans.remove(at).fault)
    }

    fn count(&self, request: &Frame) {
        self.traffic.requests.fetch_add(1, Relaxed);
        if let Some(head) = request.head {
            *self.by_op().entry(head.op).or_default() += 1;
        }
    }

    fn by_op(&self) -> MutexGuard<'_, BTreeMap<i32, u64>> {
        self.traffic.by_op.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}

/// A proxy in front of one server. It passes everything on until it is told otherwise; every method works at once, on all
/// connections, and may be called from anywhere.
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy on a free loopback port, in front of Redis. The server needn't be there yet.
    pub fn start(target: SocketAddr) -> Proxy {
        Self::speaking(Language::Redis, target)
    }

    /// The same in front of ZooKeeper.
    pub fn to_zookeeper(target: SocketAddr) -> Proxy {
        Self::speaking(Language::ZooKeeper, target)
    }

    fn speaking(language: Language, target: SocketAddr) -> Proxy {
        let port = Port::reserve();
        let address = port.address();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            language,
            mode: watch::Sender::new(Mode::Pass),
            cut: Mutex::default(),
            plans: Mutex::default(),
            listening: AtomicBool::new(false),
            traffic: Counters::default(),
        });
        let run = {
            let shared = Arc::clone(&shared);
            move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(accept(address, shared));
            }
        };
        let thread = thread::Builder::new().name("proxy".into()).spawn(run).expect("a thread");
        let proxy = Proxy { port, shared, thread: Some(thread) };
        proxy.wait_until_listening(true);
        proxy
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The port of [`address`](Self::address).
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Passes everything on again. What was held by [`hang`](Self::hang) goes on, and planned faults are forgotten.
    pub fn pass(&self) {
        self.plans().clear();
        self.set(Mode::Pass);
    }

    /// Leads to another server from now on. Connections to the one before stay as they are.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// Resets all connections now, with a RST to both sides. New ones are served.
    pub fn cut(&self) {
        let mut cut = self.shared.cut.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::take(&mut *cut);
        drop(cut);
        old.send_replace(());
        until("all connections are cut", || match old.receiver_count() {
            0 => Ok(()),
            left => Err(format!("{left} connections")),
        });
    }

    /// Resets all connections, and refuses new ones until the next call.
    pub fn refuse(&self) {
        self.set(Mode::Refuse);
        self.cut();
    }

    /// A black hole: connections stay, new ones are accepted, and nothing goes through. What was sent meanwhile goes on
    /// when the proxy passes again, as after a partition.
    pub fn hang(&self) {
        self.set(Mode::Hang);
    }

    /// Requests go through, and their answers vanish. The connections stay.
    pub fn swallow_answers(&self) {
        self.set(Mode::Swallow);
    }

    /// Everything takes so much longer, each way.
    pub fn delay(&self, each_way: Duration) {
        self.set(Mode::Delay(each_way));
    }

    /// Answers come in pieces of so many bytes, one `every` so often.
    pub fn drip(&self, bytes: usize, every: Duration) {
        self.set(Mode::Drip { bytes, every });
    }

    /// When the next request comes, its connection is reset and the server never sees it. Once.
    pub fn cut_before_request(&self) {
        self.plan(Fault::CutBefore, Wanted::default(), 0);
    }

    /// The same for the next request of this kind.
    pub fn cut_before(&self, wanted: impl Into<Wanted>) {
        self.plan(Fault::CutBefore, wanted, 0);
    }

    /// The next request reaches the server; when the server answers, the connection is reset instead. Once.
    pub fn lose_next_answer(&self) {
        self.plan(Fault::LoseAnswer, Wanted::default(), 0);
    }

    /// The same after `n` more requests, which are answered.
    pub fn lose_answers_after(&self, n: usize) {
        self.plan(Fault::LoseAnswer, Wanted::default(), n);
    }

    /// The same for the next request of this kind. Answers to requests before it on the same connection still arrive; those
    /// after it are lost with the connection.
    pub fn lose_answer_to(&self, wanted: impl Into<Wanted>) {
        self.plan(Fault::LoseAnswer, wanted, 0);
    }

    /// How many planned faults still wait for their request.
    pub fn faults_left(&self) -> usize {
        self.plans().len()
    }

    /// How many requests went to the server so far.
    pub fn requests(&self) -> u64 {
        self.traffic().requests
    }

    /// How many requests with this number in the protocol of ZooKeeper went to the server so far. Those inside a
    /// transaction are one with it.
    pub fn requests_of(&self, op: i32) -> u64 {
        self.shared.by_op().get(&op).copied().unwrap_or(0)
    }

    /// The same for all numbers that came.
    pub fn requests_by_op(&self) -> BTreeMap<i32, u64> {
        self.shared.by_op().clone()
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> usize {
        self.shared.cut.lock().unwrap_or_else(PoisonError::into_inner).receiver_count()
    }

    /// What has passed so far.
    pub fn traffic(&self) -> Traffic {
        let counters = &self.shared.traffic;
        Traffic {
            connections: counters.connections.load(Relaxed),
            requests: counters.requests.load(Relaxed),
            answers: counters.answers.load(Relaxed),
            bytes_to_server: counters.bytes_to_server.load(Relaxed),
            bytes_to_client: counters.bytes_to_client.load(Relaxed),
            reads_from_client: counters.reads_from_client.load(Relaxed),
            reads_from_server: counters.reads_from_server.load(Relaxed),
        }
    }

    fn plans(&self) -> MutexGuard<'_, Vec<Plan>> {
        self.shared.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self, fault: Fault, wanted: impl Into<Wanted>, spare: usize) {
        self.plans().push(Plan { wanted: wanted.into(), spare, fault });
    }

    fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
        self.wait_until_listening(mode != Mode::Refuse);
    }

    fn wait_until_listening(&self, wanted: bool) {
        until("the proxy listens, or no longer", || match self.shared.listening.load(Relaxed) {
            now if now == wanted => Ok(()),
            now => Err(format!("listening: {now}")),
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.mode.send_replace(Mode::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts connections for as long as the proxy lives. While it refuses, nobody listens at the port.
async fn accept(address: SocketAddr, shared: Arc<Shared>) {
    let mut mode = shared.mode.subscribe();
    loop {
        let listener = listen(address);
        shared.listening.store(true, Relaxed);
        let ended = tokio::select! {
            mode = mode.wait_for(|mode| matches!(mode, Mode::Refuse | Mode::End)) => mode.map(|mode| *mode),
            () = serve_all(&listener, &shared) => continue,
        };
        drop(listener);
        shared.listening.store(false, Relaxed);
        if !matches!(ended, Ok(Mode::Refuse)) {
            return;
        }
        let _ = mode.wait_for(|mode| *mode != Mode::Refuse).await;
    }
}

fn listen(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    // It shares the port with the socket that reserves it.
    socket.set_reuseaddr(true).expect("SO_REUSEADDR");
    socket.bind(address).expect("the port of the proxy");
    socket.listen(1024).expect("a listening socket")
}

async fn serve_all(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.traffic.connections.fetch_add(1, Relaxed);
        let cut = shared.cut.lock().unwrap_or_else(PoisonError::into_inner).subscribe();
        let shared = Arc::clone(shared);
        tokio::spawn(async move { relay::serve(client, &shared, cut).await });
    }
}
