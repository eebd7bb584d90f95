//! `leasehold run NAME -- CMD ARGS…`
//!
//! The life of a run: [`plan`] what was asked, [`claim`] the lock (with one line to look at, [`waiting`]), start the command,
//! [`supervise`] it until its whole process group is gone, keep the lock for the rest of `--min-hold`, give it back.

mod claim;
mod plan;
mod supervise;
mod waiting;

use std::ffi::OsStr;

use leasehold::{Client, Kind, MultiGuard};
use rustix::process::{Signal, kill_current_process_group};
use tokio::time::{Instant, sleep_until};

use crate::args::Global;
use crate::child::{Environment, Group};
use crate::commands::{Done, catch, close, connect, ended_by};
use crate::exit::{self, Exit, Failure};
use crate::output;
use crate::signals::Signals;
use crate::terminal::Terminal;

pub(crate) use plan::{Patience, Plan};
use supervise::{Outcome, Supervisor};

pub(crate) async fn run(global: Global, plan: Plan) -> Done {
    let mut signals = catch(Signals::of_a_runner())?;
    let program = plan.command.first().map_or(OsStr::new(""), |program| program);
    let client = tokio::select! {
        biased;
        signal = signals.next_that_ends_us() => return Err(given_up(signal)),
        client = connect(&global, program) => client?,
    };
    let ended = run_with(&client, &plan, &mut signals).await;
    close(&client).await;
    ended
}

async fn run_with(client: &Client, plan: &Plan, signals: &mut Signals) -> Done {
    let claimed = tokio::select! {
        biased;
        signal = signals.next_that_ends_us() => return Err(given_up(signal)),
        claimed = claim::claim(client, plan) => claimed?,
        never = waiting::show(client, plan) => match never {},
    };
    let Some(held) = claimed else { return Err(busy(client, plan).await) };
    let began = Instant::now();
    let mut terminal = Terminal::find();
    let group = Group::spawn(&plan.command, &environment(client, plan, &held), terminal.as_mut())?;
    let outcome =
        Supervisor::over(group, plan, terminal, client.lifeline(), began).until_gone(&held, signals).await;
    if !outcome.cut_short {
        rest(plan, began, &held, signals).await;
    }
    give_back(held, plan, outcome).await
}

/// A signal ended the wait. On a terminal, the shell around us must see that it was Ctrl-C.
fn given_up(signal: Signal) -> Failure {
    let mut failure = ended_by(signal);
    failure.die_of =
        (signal == Signal::INT && Terminal::find().is_some_and(|t| t.is_ours())).then_some(signal);
    failure
}

/// Why we did not get it, in one line, unless `--quiet`.
async fn busy(client: &Client, plan: &Plan) -> Failure {
    if plan.quiet {
        return Failure::silent(Exit::BUSY);
    }
    let waited = match plan.patience {
        Patience::For(wait) if !wait.is_zero() => format!("after {}, ", output::duration(wait)),
        _ => String::new(),
    };
    for name in &plan.names {
        if let Some(lock) = client.inspect(name).await.ok().filter(|lock| !lock.holders.is_empty()) {
            let what = format!("{waited}{:?} is {}", name.as_str(), waiting::held_by(&lock));
            return Failure::new(Exit::BUSY, "busy", what);
        }
    }
    Failure::new(Exit::BUSY, "busy", format!("{waited}{:?} could not be had", plan.names[0].as_str()))
}

/// What the command is told about the lock it runs under.
fn environment(client: &Client, plan: &Plan, held: &MultiGuard) -> Environment {
    let mut env = Environment::default();
    // What an outer run has set for its own command is not true of this one.
    env.remove.extend(std::env::vars_os().map(|(key, _)| key).filter(|key| is_ours(key)));
    let tokens = held.tokens();
    for (at, name) in plan.names.iter().enumerate() {
        let suffix = if at == 0 { String::new() } else { format!("_{at}") };
        env.set.push((format!("LEASEHOLD_NAME{suffix}"), name.as_str().to_owned()));
        if let Some((_, token)) = tokens.iter().find(|(of, _)| of == name) {
            env.set.push((format!("LEASEHOLD_TOKEN{suffix}"), token.to_string()));
        }
    }
    let lease = plan.lease.and_then(|_| held.remaining());
    if let Some(left) = [lease, plan.max_hold].into_iter().flatten().min() {
        let deadline = output::unix_micros() / 1_000 + output::millis(left);
        env.set.push(("LEASEHOLD_DEADLINE".to_owned(), deadline.to_string()));
    }
    env.set.push(("LEASEHOLD_STORE".to_owned(), client.store_url()));
    env
}

fn is_ours(key: &OsStr) -> bool {
    let key = key.as_encoded_bytes();
    [&b"LEASEHOLD_NAME"[..], b"LEASEHOLD_TOKEN", b"LEASEHOLD_DEADLINE"]
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

/// The command is done; the lock stays ours for the rest of `--min-hold`, unless a signal or its loss ends that.
async fn rest(plan: &Plan, began: Instant, held: &MultiGuard, signals: &mut Signals) {
    let until = began + plan.min_hold;
    if until <= Instant::now() {
        return;
    }
    tokio::select! {
        () = sleep_until(until) => {}
        _ = signals.next_that_ends_us() => {}
        _ = held.lost() => {}
    }
}

async fn give_back(held: MultiGuard, plan: &Plan, outcome: Outcome) -> Done {
    if let Err(e) = held.release().await {
        // A loss was reported when it came; one that came after the command ended did no harm.
        if e.kind() != Kind::Lost && e.kind() != Kind::NotHeld {
            exit::warn(
                plan.format,
                "release",
                format!("the lock could not be given back and ends by itself: {e}"),
            );
        }
    }
    if outcome.interrupted {
        // Only the command heard the Ctrl-C. The rest of our job (a script around us) should, too.
        let _ = kill_current_process_group(Signal::INT);
        let mut failure = Failure::silent(outcome.exit);
        failure.die_of = Some(Signal::INT);
        return Err(failure);
    }
    Ok(outcome.exit)
}
