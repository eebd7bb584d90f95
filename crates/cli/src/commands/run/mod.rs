//! `leasehold run NAME -- CMD ARGS…`
//!
//! The life of a run: [`plan`] what was asked, [`claim`] the lock (with one line to look at, [`waiting`]), start the command,
//! [`supervise`] it until it and all that it started are gone, keep the lock for the rest of `--min-hold`, give it back.

mod claim;
mod plan;
mod store;
mod supervise;
mod waiting;

use std::convert::Infallible;
use std::time::Duration;

use leasehold::{Client, ClientBuilder, Kind, MultiGuard};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::args::Global;
use crate::boot_clock::{AsyncTimer, boot_time};
use crate::child::{Environment, Group};
use crate::commands::{Done, GIVE_BACK, SAY_THAT_WE_WAIT, catch, close, connect_with, ended_by, report};
use crate::exit::{self, Exit, Failure};
use crate::guard::{Guard, Job};
use crate::signals::{self, Caught, Signals};
use crate::{output, terminal};

pub(crate) use plan::{Patience, Plan};
use supervise::{Outcome, Supervisor};

/// Starts the guard of the command. Must be called while this process has one thread.
pub(crate) fn guard(plan: &Plan) -> Result<Guard, Failure> {
    Guard::fork(&Job { command: &plan.command, format: plan.format, quiet: plan.quiet }).map_err(|e| {
        Failure::new(Exit::UNAVAILABLE, "system", format!("the guard process could not be started: {e}"))
    })
}

pub(crate) async fn run(global: Global, plan: Plan, guard: Guard) -> Done {
    let mut signals = catch(Signals::of_a_runner())?;
    let timer = AsyncTimer::new().map_err(|e| {
        Failure::new(Exit::UNAVAILABLE, "system", format!("there is no timer to be had: {e}"))
    })?;
    let asked = Instant::now();
    let (client, held) = loop {
        let client = tokio::select! {
            biased;
            signal = signals.next_that_ends_us() => return Err(given_up(signal)),
            client = connect_with(options(&plan, asked), &global, plan.program()) => client?,
        };
        let failure = match claimed(&client, &plan, asked, &mut signals).await {
            Ok(held) => break (client, held),
            Err(NotClaimed::Suspended) => {
                // A suspended waiter would be granted the lock in its turn, and keep it from all others.
                let _ = timeout(LEAVE, client.close()).await;
                signals::stop_ourselves();
                continue;
            }
            Err(NotClaimed::Failed(failure)) => failure,
        };
        let ended = Err(failure);
        close(&client, &ended, &mut signals, (!plan.quiet).then_some(plan.format)).await;
        return ended;
    };
    let folder = std::env::current_dir().unwrap_or_default();
    let store = store::for_the_command(global.store.as_deref(), client.store_url(), &folder);
    run_under(&client, &plan, guard, store, held, &mut signals, &timer).await
}

/// The connection is part of what is waited for. One who does not wait gives a server that starts a moment.
fn options(plan: &Plan, asked: Instant) -> ClientBuilder {
    const A_MOMENT: Duration = Duration::from_secs(1);
    let builder = match plan.patience {
        Patience::None => Client::builder().open_for(A_MOMENT),
        Patience::For(wait) => Client::builder().open_for(wait.saturating_sub(asked.elapsed())),
        Patience::Endless => Client::builder(),
    };
    let format = plan.format;
    if plan.quiet { builder } else { builder.on_outage(move |outage| report(outage, format)) }
}

/// Why there is no lock.
enum NotClaimed {
    Failed(Failure),
    /// The wait was suspended, by Ctrl-Z for example.
    Suspended,
}

async fn claimed(
    client: &Client,
    plan: &Plan,
    asked: Instant,
    signals: &mut Signals,
) -> Result<MultiGuard, NotClaimed> {
    let claimed = tokio::select! {
        biased;
        signal = signals.next_that_ends_a_wait() => return Err(match signal {
            Signal::TSTP => NotClaimed::Suspended,
            signal => NotClaimed::Failed(given_up(signal)),
        }),
        claimed = claim::claim(client, plan, asked) => claimed,
        never = waiting::show(client, plan) => match never {},
    };
    match claimed {
        Ok(Some(held)) => Ok(held),
        Ok(None) => Err(NotClaimed::Failed(busy(client, plan).await)),
        Err(e) => Err(NotClaimed::Failed(e.into())),
    }
}

async fn run_under(
    client: &Client,
    plan: &Plan,
    guard: Guard,
    store: String,
    held: MultiGuard,
    signals: &mut Signals,
    timer: &AsyncTimer,
) -> Done {
    let began = boot_time();
    let env = environment(store, plan, &held);
    // What came since the grant ends us as if it had come before.
    let early = signals.so_far();
    if let Some(signal) = first_that_ends_us(&early) {
        give_back(client, held, plan, signals).await;
        return Err(given_up(signal));
    }
    let mut early: Vec<(Caught, bool)> = early.into_iter().map(|caught| (caught, true)).collect();
    let start = guard.start();
    let spawned = Group::spawn(guard, plan.program(), &env, client.lifeline());
    // This may have come before there was a command that could hear it.
    let around = signals.so_far();
    let ends_us = first_that_ends_us(&around);
    let was_before = |signal| start.get().is_none_or(|start| start.was_before(signal));
    early.extend(around.into_iter().map(|caught| (caught, was_before(caught.signal))));
    let outcome = match spawned {
        Ok(group) => Supervisor::over(group, plan, began, early).until_gone(&held, signals, timer).await,
        Err(failure) => {
            // A guard that was just forked dies of Ctrl-C itself, and what is to be told is that.
            let failure = ends_us.map_or(failure, given_up);
            give_back(client, held, plan, signals).await;
            return Err(failure);
        }
    };
    if !outcome.cut_short {
        rest(began + plan.min_hold, &held, signals, timer).await;
    }
    give_back(client, held, plan, signals).await;
    finish(outcome)
}

fn first_that_ends_us(signals: &[Caught]) -> Option<Signal> {
    signals.iter().map(|caught| caught.signal).find(|signal| signals::ends_us(*signal))
}

/// A signal ended the wait. On a terminal, the shell around us must see that it was Ctrl-C.
fn given_up(signal: Signal) -> Failure {
    let mut failure = ended_by(signal);
    failure.die_of = (signal == Signal::INT && terminal::is_ours()).then_some(signal);
    failure
}

/// How long one line may take that says who holds the lock.
const A_LOOK: Duration = Duration::from_millis(500);

/// How long a waiter that is suspended waits for the store to take its place back.
const LEAVE: Duration = Duration::from_millis(500);

/// Why we did not get it, in one line, unless `--quiet`. What kept a waiter from the lock in the end may be a store
/// that fell silent meanwhile.
async fn busy(client: &Client, plan: &Plan) -> Failure {
    let waited = match plan.patience {
        Patience::For(wait) => Some(format!("after {}, ", output::duration(wait))),
        _ => None,
    };
    if plan.quiet && waited.is_none() {
        return Failure::silent(Exit::BUSY);
    }
    let mut what = format!("{:?} could not be had", plan.names[0].as_str());
    let mut away = false;
    for name in &plan.names {
        match client.with_retry_for(A_LOOK).inspect(name).await {
            Ok(lock) if lock.holders.is_empty() => {}
            Ok(lock) => {
                what = format!("{:?} is {}", name.as_str(), waiting::held_by(&lock));
                break;
            }
            Err(e) if e.kind() == Kind::Unavailable && waited.is_some() => return e.into(),
            Err(_) => {
                away = true;
                break;
            }
        }
    }
    let mut failure = if plan.quiet {
        Failure::silent(Exit::BUSY)
    } else {
        Failure::new(Exit::BUSY, "busy", format!("{}{what}", waited.unwrap_or_default()))
    };
    failure.store_is_away = away;
    failure
}

/// Says what keeps us, if it takes long.
async fn say_that_we_wait(client: &Client, plan: &Plan) -> Infallible {
    sleep(SAY_THAT_WE_WAIT).await;
    if !plan.quiet {
        let (store, most) = (client.store_url(), output::duration(GIVE_BACK - SAY_THAT_WE_WAIT));
        let what = format!(
            "the command has ended; {store} is waited for to take the lock back, {most} more at the most"
        );
        exit::warn(plan.format, "release", what);
    }
    std::future::pending().await
}

/// What the command is told about the lock it runs under.
fn environment(store: String, plan: &Plan, held: &MultiGuard) -> Environment {
    let mut env = Environment::default();
    let tokens = held.tokens();
    for (at, name) in plan.names.iter().enumerate() {
        let suffix = if at == 0 { String::new() } else { format!("_{at}") };
        env.set.push((format!("LEASEHOLD_NAME{suffix}"), name.as_str().to_owned()));
        if let Some((_, token)) = tokens.iter().find(|(of, _)| of == name) {
            env.set.push((format!("LEASEHOLD_TOKEN{suffix}"), token.to_string()));
        }
    }
    if let Some(left) = [held.lease_left(), plan.max_hold].into_iter().flatten().min() {
        let deadline = output::unix_micros() / 1_000 + output::millis(left);
        env.set.push(("LEASEHOLD_DEADLINE".to_owned(), deadline.to_string()));
    }
    env.set.push(("LEASEHOLD_STORE".to_owned(), store));
    env
}

/// The command is done; the lock stays ours for the rest of `--min-hold`, unless a signal or its loss ends that.
async fn rest(until: Duration, held: &MultiGuard, signals: &mut Signals, timer: &AsyncTimer) {
    let sleep = async {
        while boot_time() < until {
            timer.sleep_until(until).await;
        }
    };
    tokio::select! {
        biased;
        () = sleep => {}
        _ = signals.next_that_ends_us() => {}
        _ = held.lost() => {}
    }
}

/// Gives the lock back, and the session. A store that does not answer keeps us for [`GIVE_BACK`] at most; what it still has of us ends by
/// itself. Neither changes how the command ended.
async fn give_back(client: &Client, held: MultiGuard, plan: &Plan, signals: &mut Signals) {
    let left = held.remaining();
    let ends = || match left {
        Some(left) => format!("it ends by itself, after {} at the latest", output::duration(left)),
        None => "it ends with this process".to_owned(),
    };
    let both = async {
        let released = held.release().await;
        let _ = client.close().await;
        released
    };
    tokio::select! {
        biased;
        // A loss was reported when it came; one that came after the command ended did no harm.
        released = both => if let Err(e) = released && !matches!(e.kind(), Kind::Lost | Kind::NotHeld) {
            exit::warn(plan.format, "release", format!("the lock could not be given back, {}: {e}", ends()));
        },
        signal = signals.next_that_ends_us() => {
            let what = format!("signal {} ended the wait for the store; if it still has the lock, {}", signal.as_raw(), ends());
            exit::warn(plan.format, "release", what);
        }
        () = sleep(GIVE_BACK) => {
            let within = output::duration(GIVE_BACK);
            let what = format!("the store did not take the lock back within {within}; {}", ends());
            exit::warn(plan.format, "release", what);
        }
        never = say_that_we_wait(client, plan) => match never {},
    }
}

fn finish(outcome: Outcome) -> Done {
    if outcome.interrupted {
        // A script around us goes on or ends as if it had started the command itself.
        let mut failure = Failure::silent(outcome.exit);
        failure.die_of = Some(Signal::INT);
        return Err(failure);
    }
    Ok(outcome.exit)
}
