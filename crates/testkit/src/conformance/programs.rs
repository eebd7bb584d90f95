//! The programs that users write first, as real processes: what they leave behind, and what they keep.

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use leasehold_client::Client;
use leasehold_core::traits::Death;
use rustix::process::{Pid, Signal, kill_process};

use super::crash::in_time;
use super::take;
use crate::child::Role;
use crate::program::Program;
use crate::stage::Stage;
use crate::wait::{PATIENCE, soon};

/// Runs a program to its end.
async fn ends(stage: &Stage, program: Program, well: bool) -> bool {
    let Some(child) = stage.child(&Role::Program(program)) else { return false };
    let status = child.status().await;
    assert_eq!(status.success(), well, "{program:?} ended with {status}");
    true
}

/// Nobody holds the lock at this moment: no lease has to end first.
async fn is_free_at_once(stage: &Stage, name: &str) {
    let seen = stage.look(name).await;
    assert!(
        seen.holders.is_empty() && seen.waiters.is_empty(),
        "the program left its lock behind: {seen:#?}"
    );
}

/// Lock, work, end of `main`.
pub async fn a_program_that_ends_has_given_its_lock_back(stage: Arc<Stage>) {
    if ends(&stage, Program::EndOfMain, true).await {
        is_free_at_once(&stage, "x").await;
    }
}

/// The runtime goes first; then the client and the guard, in either order.
pub async fn a_guard_that_outlives_its_runtime_is_given_back(stage: Arc<Stage>) {
    if ends(&stage, Program::GuardOutlivesTheRuntime, true).await {
        is_free_at_once(&stage, "x").await;
    }
}

/// A thread-local is destroyed when those of the runtime are gone.
pub async fn a_guard_in_a_thread_local_is_given_back(stage: Arc<Stage>) {
    says_kept(&stage, Program::ThreadLocal).await;
}

/// The client needs nothing of the executor but to be polled when it wakes.
pub async fn every_verb_works_without_tokio(stage: Arc<Stage>) {
    says_kept(&stage, Program::WithoutTokio).await;
}

/// A panic unwinds past the guard.
pub async fn a_program_that_panics_has_given_its_lock_back(stage: Arc<Stage>) {
    if ends(&stage, Program::Panic, false).await {
        for name in ["x", "y", "z"] {
            is_free_at_once(&stage, name).await;
        }
    }
}

/// `std::process::exit` drops no guards: what is held then stays as after a crash, unless the client was closed.
pub async fn a_program_that_exits_gives_back_what_it_has_closed(stage: Arc<Stage>) {
    for close in [true, false] {
        let Some(mut child) = stage.child(&Role::Program(Program::Exit { close })) else { return };
        let token = child.held().await;
        child.end().await;
        if close || stage.traits().death == Death::AtOnce {
            stage.free("x").await;
            continue;
        }
        let seen = stage.look("x").await;
        assert_eq!(seen.holders.first().and_then(|entry| entry.token).map(|token| token.get()), Some(token));
        stage.observer().force_release("x", None).await.expect("a forced release");
    }
}

/// Ctrl-C, caught by `tokio::signal`, ends `main`.
pub async fn a_program_that_is_interrupted_has_given_its_lock_back(stage: Arc<Stage>) {
    let Some(mut child) = stage.child(&Role::Program(Program::Interrupt)) else { return };
    child.held().await;
    let pid = Pid::from_raw(child.pid() as i32).expect("a process id");
    kill_process(pid, Signal::INT).expect("a signal");
    child.end().await;
    for name in ["x", "y", "z"] {
        is_free_at_once(&stage, name).await;
    }
}

/// Three leases of work without a point at which the task yields.
pub async fn a_task_that_computes_keeps_its_lock_on_every_runtime(stage: Arc<Stage>) {
    says_kept(&stage, Program::Compute).await;
}

/// As in tests that share a client: each has a runtime of its own.
pub async fn a_client_outlives_the_runtime_that_made_it(stage: Arc<Stage>) {
    says_kept(&stage, Program::StaticClient).await;
}

/// Others wait on the same client.
pub async fn a_dropped_runtime_takes_nothing_with_it(stage: Arc<Stage>) {
    says_kept(&stage, Program::DroppedRuntime).await;
}

async fn says_kept(stage: &Stage, program: Program) {
    let Some(mut child) = stage.child(&Role::Program(program)) else { return };
    assert_eq!(child.hear().await.as_deref(), Some("kept"), "{program:?}");
    child.end().await;
    for name in ["x", "y", "z"] {
        is_free_at_once(stage, name).await;
    }
}

/// fork(2) without exec: one of both must be dead.
pub async fn a_forked_child_has_no_client_and_the_parent_s_is_untouched(stage: Arc<Stage>) {
    let Some(mut child) = stage.child(&Role::Program(Program::Fork)) else { return };
    let token = child.held().await;
    let seen = stage.holders("x", 1).await;
    assert_eq!(seen.holders[0].token.map(|t| t.get()), Some(token));
    child.release().await;
    child.end().await;
    is_free_at_once(&stage, "x").await;
}

/// fork(2) without exec inside a runtime: what the child has begun to wait for ends there, and goes on in the parent.
pub async fn a_child_that_is_forked_inside_a_runtime_waits_for_nothing(stage: Arc<Stage>) {
    says_kept(&stage, Program::ForkInRuntime).await;
}

/// Futures that lose in `select!` are dropped at one or the other of their awaits.
pub async fn what_loses_in_a_select_leaves_nothing_behind(stage: Arc<Stage>) {
    says_kept(&stage, Program::Select).await;
}

/// A forked child has the files of its parent, and lives on.
pub async fn a_forked_child_does_not_keep_the_lock_of_a_dead_parent(stage: Arc<Stage>) {
    let Some(mut child) = stage.child(&Role::Program(Program::ForkAndWait)) else { return };
    child.held().await;
    let input = child.take_input();
    child.kill().await;
    let dead = Instant::now();
    let guard =
        soon("a dead holder's lock", stage.client("a").await.mutex("x").lock()).await.expect("a lock");
    assert!(dead.elapsed() < in_time(&stage), "it took {:?} to notice a death", dead.elapsed());
    guard.release().await.expect("a release");
    // Ends the child of the fork.
    drop(input);
}

/// Tasks that lock while the client closes: each gets its lock before, or an error; nothing is held after it.
pub async fn no_claim_is_granted_after_a_close(stage: Arc<Stage>) {
    for round in 0..20 {
        let client = stage.client("closing").await;
        let tasks: Vec<_> = (0..24)
            .map(|n| {
                let lock = client.mutex(format!("{round}/{n}"));
                tokio::spawn(async move { lock.lock().await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        soon("a close", client.close()).await.expect("a close");
        for task in tasks {
            let _ = task.await.expect("a task that does not panic");
        }
        let left = stage.all().await;
        assert!(left.is_empty(), "after a close the store shows {left:#?}");
    }
    take(&stage.client("after").await, "x").await.release().await.expect("a release");
}

/// As in a `select!` whose other branch closes the client: the claims are polled once, and their futures live on.
pub async fn a_close_waits_for_no_claim_that_is_not_polled(stage: Arc<Stage>) {
    for count in [1, 2, 40] {
        // A close that waits for claims in flight gives up after half of this.
        let client = stage.open(Client::builder().label("closing").retry_for(PATIENCE)).await;
        let held = take(&client, "held").await;
        let locks: Vec<_> = (0..count).map(|n| client.mutex(format!("{count}/{n}"))).collect();
        let mut claims: Vec<_> = locks.iter().map(|lock| Box::pin(lock.lock())).collect();
        let granted: Vec<_> = claims.iter_mut().map(|claim| claim.now_or_never()).collect();
        let began = Instant::now();
        soon("a close", client.close()).await.expect("a close");
        assert!(began.elapsed() < PATIENCE / 3, "{count} claims: {:?}", began.elapsed());
        let left = stage.all().await;
        assert!(left.is_empty(), "after a close beside {count} claims the store shows {left:#?}");
        for (claim, granted) in claims.into_iter().zip(granted) {
            let claimed = match granted {
                Some(claimed) => claimed,
                None => soon("a claim of a closed client", claim).await,
            };
            assert!(claimed.is_err() || claimed.is_ok_and(|guard| !guard.is_held()));
        }
        assert!(!held.is_held());
    }
}
