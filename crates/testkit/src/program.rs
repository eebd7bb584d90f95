//! The programs that users write first, run as real processes by [`child`](crate::child).
//!
//! Each is a whole `main`: it makes its own runtimes, and what it leaves behind when it ends is what its scenario looks at.

use std::cell::RefCell;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use leasehold_client::{Backoff, Client, Guard, Mutex, Order, Part};
use leasehold_core::{Kind, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::bed::Bed;
use crate::cancellation_matrix::Boxed;
use crate::child::{LEASE, say, wait_for_input};
use crate::wait::{PATIENCE, soon};

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Locks `x` and returns from `main` with the guard in a variable: on a runtime of one thread, of one worker, and of two
    /// workers, one after the other.
    EndOfMain,
    /// The same; the guard outlives the runtime, and is dropped before the client or after it.
    GuardOutlivesTheRuntime,
    /// Locks `x` on a thread and keeps the guard and its client in a thread-local of it, and `y` in one of the main
    /// thread: both are dropped after the thread-locals of the runtime. Says `kept` when `x` is free again.
    ThreadLocal,
    /// Runs every verb on an executor that only parks its thread. Says `kept`.
    WithoutTokio,
    /// Locks `x` for far longer than a test takes, says `held TOKEN`, and calls `std::process::exit` with the guard in
    /// a variable, with or without closing the client before.
    Exit {
        /// Whether it closes its client.
        close: bool,
    },
    /// Locks `x` for far longer than a test takes, says `held TOKEN`, and returns from `main` after a line of input or its end.
    EndOnInput,
    /// Locks `x`, `y` and `z`, one on each kind of runtime, and panics there. The last one of these panics ends the
    /// program.
    Panic,
    /// Locks `x`, `y` and `z`, one on each kind of runtime, says `held TOKEN` and ends by a signal that `tokio::signal`
    /// catches.
    Interrupt,
    /// Locks and then computes for three leases without a point at which it yields, on all three kinds of runtime. Says `kept`.
    Compute,
    /// A client in a static, made in one runtime, and used in others after that one is gone. Says `kept`.
    StaticClient,
    /// A runtime is dropped while tasks of another one wait for what it holds. Says `kept`.
    DroppedRuntime,
    /// Forks without exec while it holds `x`, says `held TOKEN` when the child has looked at everything, and gives it back
    /// after a line of input.
    Fork,
    /// Forks without exec while it holds `x`, and says `held TOKEN`. The child lives until its input ends.
    ForkAndWait,
    /// Forks without exec inside a task of a runtime, of one thread and of two workers, while claims and streams are pending.
    /// Says `kept`.
    ForkInRuntime,
    /// Claims, releases and downgrades in `select!` with something else that is ready first. Says `kept`.
    Select,
}

impl Program {
    const ALL: [(Program, &'static str); 16] = [
        (Program::EndOfMain, "end-of-main"),
        (Program::GuardOutlivesTheRuntime, "guard-outlives-runtime"),
        (Program::ThreadLocal, "thread-local"),
        (Program::WithoutTokio, "without-tokio"),
        (Program::Exit { close: true }, "close-and-exit"),
        (Program::Exit { close: false }, "exit"),
        (Program::EndOnInput, "end-on-input"),
        (Program::Panic, "panic"),
        (Program::Interrupt, "interrupt"),
        (Program::Compute, "compute"),
        (Program::StaticClient, "static-client"),
        (Program::DroppedRuntime, "dropped-runtime"),
        (Program::Fork, "fork"),
        (Program::ForkAndWait, "fork-and-wait"),
        (Program::ForkInRuntime, "fork-in-runtime"),
        (Program::Select, "select"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(program, _)| *program == self).expect("a program of the list").1
    }

    pub(crate) fn of_name(name: &str) -> Self {
        Self::ALL
            .iter()
            .find(|(_, of)| *of == name)
            .unwrap_or_else(|| panic!("no program is called {name:?}"))
            .0
    }

    pub(crate) fn run(self, bed: &impl Bed, url: &str) {
        let connect_with = |lease: Duration| async move {
            let store = bed.open(url.to_owned()).await.expect("the store of the parent");
            let lease = lease.min(store.traits().longest_lease);
            Client::builder().default_lease(lease).open(store).await.expect("a client")
        };
        let connect = || connect_with(LEASE);
        // So long that no lock is free because its lease has ended.
        let connect_for_long = || connect_with(10 * PATIENCE);
        match self {
            Program::EndOfMain => {
                for runtime in runtimes() {
                    runtime.block_on(async {
                        let client = connect().await;
                        let _guard = client.mutex("x").lock().await.expect("a lock");
                    });
                }
            }
            Program::GuardOutlivesTheRuntime => {
                for client_first in [true, false] {
                    for runtime in runtimes() {
                        let client = runtime.block_on(connect_for_long());
                        let guard = runtime.block_on(async {
                            soon("the lock of the one before", client.mutex("x").lock())
                                .await
                                .expect("a lock")
                        });
                        drop(runtime);
                        if client_first {
                            drop(client);
                            drop(guard);
                        } else {
                            drop(guard);
                            drop(client);
                        }
                    }
                }
            }
            Program::ThreadLocal => thread_local(&connect_for_long),
            Program::WithoutTokio => park_until(every_verb(&connect_for_long)),
            Program::Exit { close } => {
                let [runtime, ..] = runtimes();
                let client = runtime.block_on(connect_for_long());
                let guard = runtime.block_on(client.mutex("x").lock()).expect("a lock");
                say(format!("held {}", guard.token()));
                if close {
                    runtime.block_on(client.close()).expect("a close");
                }
                std::process::exit(0);
            }
            Program::EndOnInput => {
                let [runtime, ..] = runtimes();
                runtime.block_on(async {
                    let client = connect().await;
                    let guard = client.mutex("x").lease(10 * PATIENCE).lock().await.expect("a lock");
                    say(format!("held {}", guard.token()));
                    wait_for_input();
                });
            }
            Program::Panic => {
                let work = |(runtime, name): (Runtime, &str)| {
                    runtime.block_on(async {
                        let client = connect().await;
                        let _guard = client.mutex(name).lock().await.expect("a lock");
                        panic!("the work went wrong");
                    })
                };
                let [first, second, last] = runtimes();
                for caught in [(first, "x"), (second, "y")] {
                    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(caught)));
                    assert!(ended.is_err(), "it panics");
                }
                work((last, "z"));
            }
            Program::Interrupt => {
                let (hold, held) = std::sync::mpsc::channel();
                std::thread::scope(|scope| {
                    for (runtime, name) in runtimes().into_iter().zip(["x", "y", "z"]) {
                        let hold = hold.clone();
                        scope.spawn(move || {
                            runtime.block_on(async {
                                let client = connect().await;
                                let mut interrupted = signal(SignalKind::interrupt()).expect("a signal");
                                let guard = client.mutex(name).lock().await.expect("a lock");
                                hold.send(guard.token()).expect("a program that waits");
                                interrupted.recv().await;
                            });
                        });
                    }
                    let tokens = [(); 3].map(|()| held.recv().expect("a lock"));
                    say(format!("held {}", tokens[0]));
                });
            }
            Program::Compute => compute_on_all(&connect),
            Program::StaticClient => {
                static CLIENT: OnceLock<Client> = OnceLock::new();
                let [first, second, third] = runtimes();
                let client = first.block_on(connect());
                let client = CLIENT.get_or_init(|| client);
                first.block_on(lock_and_release(client, "x"));
                drop(first);
                second.block_on(lock_and_release(client, "x"));
                // Both at once, on one name and on two.
                let tasks = [(&second, "x"), (&third, "x"), (&second, "y"), (&third, "z")]
                    .map(|(runtime, name)| runtime.spawn(lock_and_release(client, name)));
                for task in tasks {
                    third.block_on(task).expect("a task that does not panic");
                }
                say("kept");
            }
            Program::DroppedRuntime => {
                let [first, second, third] = runtimes();
                let client = first.block_on(connect());
                let guard: Guard = first.block_on(client.mutex("x").lock()).expect("a lock");
                // It holds the lock until its runtime is dropped.
                first.spawn(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await
                });
                let waiters = [&second, &third].map(|runtime| {
                    let lock = client.mutex("x");
                    runtime.spawn(async move { lock.lock().await?.release().await })
                });
                drop(first);
                for waiter in waiters {
                    second
                        .block_on(waiter)
                        .expect("a task that does not panic")
                        .expect("a lock and its release");
                }
                say("kept");
            }
            Program::Fork => fork(&connect),
            Program::ForkInRuntime => {
                let [one_thread, _, workers] = runtimes();
                for runtime in [one_thread, workers] {
                    let clients = runtime.block_on(async { [connect().await, connect().await] });
                    runtime
                        .block_on(runtime.spawn(fork_in_task(clients)))
                        .expect("a task that does not panic");
                }
                say("kept");
            }
            Program::Select => {
                for runtime in runtimes() {
                    let clients =
                        runtime.block_on(async { [connect_for_long().await, connect_for_long().await] });
                    runtime.block_on(runtime.spawn(select(clients))).expect("a task that does not panic");
                }
                say("kept");
            }
            Program::ForkAndWait => {
                let [runtime, ..] = runtimes();
                let guard =
                    runtime.block_on(async { connect().await.mutex("x").lock().await.expect("a lock") });
                if sys::fork().is_none() {
                    wait_for_input();
                    sys::exit_at_once(0);
                }
                say(format!("held {}", guard.token()));
                loop {
                    std::thread::park();
                }
            }
        }
    }
}

/// The three kinds of runtime that users have.
fn runtimes() -> [Runtime; 3] {
    let workers = |n: usize| Builder::new_multi_thread().worker_threads(n).enable_all().build();
    [Builder::new_current_thread().enable_all().build(), workers(1), workers(2)]
        .map(|made| made.expect("a runtime"))
}

fn thread_local<F: Future<Output = Client>>(connect: &(impl Fn() -> F + Sync)) {
    std::thread_local! {
        static HELD: RefCell<Option<(Guard, Client)>> = const { RefCell::new(None) };
    }
    // Thread-locals are destroyed in the reverse order of their first use: this one is used before the runtime's.
    let lock_here = |name: &str| {
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            let [runtime, ..] = runtimes();
            let client = runtime.block_on(connect());
            let guard = runtime.block_on(client.mutex(name).lock()).expect("a lock");
            *held = Some((guard, client));
        });
    };
    lock_here("y");
    std::thread::scope(|scope| {
        scope.spawn(|| lock_here("x"));
    });
    let [runtime, ..] = runtimes();
    runtime.block_on(async {
        let client = connect().await;
        let lock = soon("the lock of a thread that has ended", client.mutex("x").lock()).await;
        lock.expect("a lock").release().await.expect("a release");
    });
    say("kept");
}

/// An executor that has neither timers nor sockets nor threads.
fn park_until<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

/// Calls each verb once.
async fn every_verb<F: Future<Output = Client>>(connect: &impl Fn() -> F) {
    const MOMENT: Duration = Duration::from_millis(50);
    let [ours, theirs] = [connect().await, connect().await];
    let lock = ours.mutex("x");
    let guard = lock.lock().await.expect("a lock");
    for client in [&ours, &theirs] {
        assert!(client.mutex("x").try_lock().await.expect("a try").is_none());
        assert!(client.mutex("x").lock_within(MOMENT).await.expect("a timed wait").is_none());
    }
    let spin = Order::Spin(Backoff { first: Duration::from_millis(1), most: Duration::from_millis(5) });
    let spun = theirs.mutex("x").order(spin).lock_within(MOMENT).await.expect("a timed wait");
    assert!(spun.is_none());
    let mut watch = ours.watch("").await.expect("a watch");
    let mut observe = ours.leader("x").observe().await.expect("an observer");
    assert!(observe.next().await.is_some_and(|leader| leader.is_ok()));
    assert_eq!(guard.protect(async { 42 }).await, Ok(42));
    ours.request_release("x", None).await.expect("a request");
    guard.release_requested().await;
    let next = theirs.mutex("x");
    let (released, next) = join(guard.release(), next.lock()).await;
    released.expect("a release");
    assert!(watch.next().await.is_some_and(|event| event.is_ok()));
    assert_eq!(theirs.list("").next().await.expect("a lock in use").expect("a page").name.as_str(), "x");
    let next = next.expect("a lock");
    theirs.force_release("x", Some(next.token())).await.expect("a forced release");
    next.lost().await;
    assert!(ours.inspect("x").await.expect("a look").holders.is_empty());
    let both = ours.multi([Part::mutex("x"), Part::mutex("y")]).lock().await.expect("both");
    both.release().await.expect("a release");
    if ours.traits().shared {
        let reader = ours.rwlock("z").write().await.expect("a lock").downgrade().await.expect("a reader");
        reader.release().await.expect("a release");
    }
    drop(ours.mutex("z").lock().await.expect("a lock"));
    ours.close().await.expect("a close");
    theirs.close().await.expect("a close");
    say("kept");
}

async fn lock_and_release(client: &Client, name: &str) {
    let guard = client.mutex(name).lock().await.expect("a lock");
    guard.release().await.expect("a release");
}

fn compute_on_all<F: Future<Output = Client>>(connect: &(impl Fn() -> F + Sync)) {
    std::thread::scope(|scope| {
        for (runtime, name) in runtimes().into_iter().zip(["x", "y", "z"]) {
            scope.spawn(move || {
                // In a task: on runtimes with workers, it is a worker that does not yield.
                let client = runtime.block_on(connect());
                let work = runtime.spawn(async move {
                    let guard = client.mutex(name).lock().await.expect("a lock");
                    compute(3 * guard.remaining().unwrap_or(LEASE));
                    assert!(guard.is_held(), "the lock was lost while {name} was computed");
                    guard.release().await.expect("a lock that is still held");
                });
                runtime.block_on(work).expect("work that does not panic");
            });
        }
    });
    say("kept");
}

/// Work that never yields to the runtime. Another process needs the processor more than this one.
fn compute(time: Duration) {
    std::thread::sleep(time);
}

fn fork<F: Future<Output = Client>>(connect: &impl Fn() -> F) {
    let [runtime, ..] = runtimes();
    let client = runtime.block_on(connect());
    let guard = runtime.block_on(client.mutex("x").lock()).expect("a lock");
    match sys::fork() {
        None => {
            let right = in_forked_child(&client, guard);
            sys::exit_at_once(if right { 0 } else { 1 });
        }
        Some(child) => assert_eq!(sys::wait_for(child), 0, "the child of the fork saw something wrong"),
    }
    assert!(guard.is_held(), "the parent's lock is untouched");
    runtime.block_on(lock_and_release(&client, "y"));
    say(format!("held {}", guard.token()));
    wait_for_input();
    runtime.block_on(guard.release()).expect("the parent's lock is its own");
    say("released");
}

/// Forks while the task that does so has begun to wait for a lock in all the ways that there are.
async fn fork_in_task([holder, waiter]: [Client; 2]) {
    type Begun = Boxed<Result<()>>;
    let guard = holder.mutex("x").lock().await.expect("a lock");
    let mut watch = holder.watch("").await.expect("a watch");
    let mut observe = holder.leader("x").observe().await.expect("an observer");
    assert!(observe.next().await.is_some_and(|first| first.is_ok()), "it tells who leads at first");
    let claim = |lock: Mutex| -> Begun { Box::pin(async move { lock.lock().await?.release().await }) };
    let spin = Order::Spin(Backoff { first: Duration::from_millis(1), most: Duration::from_millis(5) });
    let mut claims = [
        ("a claim behind a local holder", claim(holder.mutex("x"))),
        ("a claim in the store's queue", claim(waiter.mutex("x"))),
        ("a claim that spins", claim(waiter.mutex("x").order(spin))),
        ("a claim with a limit", {
            let lock = waiter.mutex("x");
            Box::pin(async move { lock.lock_within(PATIENCE).await.map(drop) })
        }),
    ];
    for (what, claim) in &mut claims {
        assert!(claim.now_or_never().is_none(), "{what} has to wait");
    }
    let Some(child) = sys::fork() else {
        let mut wrong: Vec<&str> = Vec::new();
        for (what, claim) in &mut claims {
            if !claim.now_or_never().is_some_and(|ended| ended.is_err_and(|error| forked(&error))) {
                wrong.push(what);
            }
        }
        // What happened before the fork is the parent's as well.
        let event: Option<Option<_>> = watch.next().now_or_never();
        if event.is_none_or(|event| event.is_some()) {
            wrong.push("a watch");
        }
        let leader: Option<Option<_>> = observe.next().now_or_never();
        if leader.is_none_or(|leader| leader.is_some()) {
            wrong.push("an observer");
        }
        drop((claims, watch, observe));
        if guard.is_held() || holder.mutex("y").try_lock().await.is_ok() {
            wrong.push("the guard, or a new claim");
        }
        if !wrong.is_empty() {
            complain(&format!("{wrong:?}"));
        }
        drop((guard, holder, waiter));
        sys::exit_at_once(i32::from(!wrong.is_empty()))
    };
    assert_eq!(sys::wait_for(child), 0, "the child of the fork saw something wrong");
    assert!(guard.is_held(), "the parent's lock is untouched");
    let seen = waiter.inspect("x").await.expect("a look at a lock");
    assert_eq!(seen.holders.first().and_then(|entry| entry.token), Some(guard.token()));
    guard.release().await.expect("the parent's lock is its own");
    let claims = join_all(claims.map(|(_, claim)| claim));
    for ended in soon("the parent's claims", claims).await {
        ended.expect("the parent's claims go on");
    }
    holder.close().await.expect("a close");
    waiter.close().await.expect("a close");
}

fn forked(error: &leasehold_core::Error) -> bool {
    error.kind() == Kind::Refused && error.to_string().contains("forked")
}

#[allow(clippy::print_stderr)] // Seen beside a failed test.
fn complain(what: &str) {
    eprintln!("in the forked child these are wrong: {what}");
}

/// What users race in `select!`: each future is dropped at its first await, at a later one, or not at all.
async fn select([ours, theirs]: [Client; 2]) {
    for round in 0..60u32 {
        let holder = match round % 3 {
            0 => None,
            1 => Some(ours.mutex("x").lock().await.expect("a lock")),
            _ => Some(theirs.mutex("x").lock().await.expect("a lock")),
        };
        tokio::select! {
            biased;
            guard = async { ours.mutex("x").lock().await } => drop(guard.expect("a lock")),
            () = moment(round / 3) => {}
        }
        drop(holder);
        let guard = soon("a lock that was given back", ours.mutex("x").lock()).await.expect("a lock");
        tokio::select! {
            biased;
            released = guard.release() => released.expect("a release"),
            () = moment(round / 3) => {}
        }
        if ours.traits().shared {
            let writer = soon("a write lock", ours.rwlock("y").write()).await.expect("a lock");
            tokio::select! {
                biased;
                reader = writer.downgrade() => drop(reader.expect("a reader")),
                () = moment(round / 3) => {}
            }
        }
        // The other client finds both free, as soon as the store knows.
        for name in ["x", "y"] {
            let guard = soon("a free lock", theirs.mutex(name).lock()).await.expect("a lock");
            guard.release().await.expect("a release");
        }
    }
}

/// Some polls, or some time: what is dropped then is at one or the other of its awaits.
async fn moment(length: u32) {
    for _ in 0..length % 5 {
        tokio::task::yield_now().await;
    }
    if length >= 5 {
        tokio::time::sleep(Duration::from_micros(u64::from(length) * 40)).await;
    }
}

/// Whether the client and the guard of the parent are dead here, and a client of one's own works.
#[allow(clippy::print_stderr)] // Seen beside a failed test.
fn in_forked_child(client: &Client, guard: Guard) -> bool {
    let refused =
        |error: leasehold_core::Error| error.kind() == Kind::Refused && error.to_string().contains("forked");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let seen = runtime.block_on(async {
        [
            ("the guard is not held", !guard.is_held()),
            ("the guard is lost", guard.lost().await == leasehold_core::view::Lost::SessionGone),
            ("the client refuses", client.mutex("y").lock().await.err().is_some_and(refused)),
            ("inspecting is refused", client.inspect("x").await.err().is_some_and(refused)),
            ("a release is refused", guard.release().await.err().is_some_and(refused)),
            ("a close is refused", client.close().await.err().is_some_and(refused)),
        ]
    });
    for (what, _) in seen.iter().filter(|(_, right)| !right) {
        eprintln!("in the forked child it is not true that {what}");
    }
    seen.iter().all(|(_, right)| *right)
}

/// The few calls that need `unsafe`.
mod sys {
    #![allow(unsafe_code)]

    /// The process id of the child; `None` in the child.
    pub(super) fn fork() -> Option<i32> {
        // SAFETY: the child of a process with threads may call little. It does what users do all the same, which is what the
        // test is about, and ends with `_exit`.
        match unsafe { libc::fork() } {
            0 => None,
            pid if pid > 0 => Some(pid),
            _ => panic!("no fork: {}", std::io::Error::last_os_error()),
        }
    }

    /// Ends a forked child without running what its parent registered for its exit.
    pub(super) fn exit_at_once(code: i32) -> ! {
        // SAFETY: it does not return.
        unsafe { libc::_exit(code) }
    }

    /// The wait status of a child.
    pub(super) fn wait_for(child: i32) -> i32 {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let ended = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(ended, child, "{}", std::io::Error::last_os_error());
        status
    }
}
