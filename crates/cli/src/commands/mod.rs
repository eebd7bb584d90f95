//! One file a command.

mod completions;
mod doctor;
mod ls;
mod man;
mod release;
mod run;
mod schema;
mod show;
mod stores;
mod watch;

use std::ffi::OsStr;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use leasehold::{Client, ClientBuilder, Outage};
use rustix::process::Signal;
use tokio::time::timeout;

use crate::args::{Cli, Command, Format, Global};
use crate::exit::{self, Exit, Failure};
use crate::output;
use crate::signals::Signals;

/// What a command comes to.
pub(crate) type Done = Result<Exit, Failure>;

/// Does what was asked.
pub(crate) fn run(cli: Cli) -> Done {
    let Cli { global, command } = cli;
    match command {
        Command::Run(args) => {
            let plan = run::Plan::of(*args, global.format)?;
            let guard = run::guard(&plan)?;
            block_on(run::run(global, plan, guard))
        }
        Command::Ls(args) => block_on(ls::run(global, args)),
        Command::Show(args) => block_on(show::run(global, args)),
        Command::Watch(args) => block_on(watch::run(global, args)),
        Command::Release(args) => {
            let plan = release::Plan::of(args)?;
            block_on(release::run(global, plan))
        }
        Command::Doctor(args) => block_on(doctor::run(global, args)),
        Command::Stores => stores::run(&global),
        Command::Schema(args) => schema::run(&global, &args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// One thread is enough for one claim, and it starts fastest.
fn block_on(work: impl Future<Output = Done>) -> Done {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        Failure::new(Exit::UNAVAILABLE, "system", format!("the program could not start: {e}"))
    })?;
    let ended = runtime.block_on(work);
    runtime.shutdown_background();
    ended
}

/// A client of the store that was asked for. `program` is what others read if no label was given.
async fn connect_with(builder: ClientBuilder, global: &Global, program: &OsStr) -> Result<Client, Failure> {
    let label = global.label.clone().unwrap_or_else(|| label_for(program));
    Ok(leasehold::connect_with(builder.label(label), global.store.as_deref().unwrap_or("")).await?)
}

/// One line when the store is not available for a moment, which names what is waited for, and one when it is again.
fn report(outage: &Outage<'_>, format: Format) {
    match outage {
        Outage::Began { error, certain_for, .. } => {
            let certain = certain_for.map_or_else(String::new, |time| {
                format!(" (what is held is certain for {} more)", output::duration(time))
            });
            exit::warn(format, "unavailable", format!("the store is waited for{certain}: {error}"));
        }
        Outage::Ended { lasted, .. } => {
            let what = format!("the store is available again after {}", output::duration(*lasted));
            exit::warn(format, "available", what);
        }
        _ => {}
    }
}

/// `host:pid program`
fn label_for(program: &OsStr) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let program = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    format!("{host}:{} {program}", std::process::id())
}

/// How long a store that does not answer may keep us at the end.
const GIVE_BACK: Duration = Duration::from_secs(5);
/// After which time it is said that it does.
const SAY_THAT_WE_WAIT: Duration = Duration::from_secs(1);

/// Gives everything back before the end. A store that does not answer keeps the program for [`GIVE_BACK`] at most, and no longer than until
/// a signal comes after that was said: what the store still has ends by itself. `said_in` is `None` if nothing is to be said.
async fn close(client: &Client, ended: &Done, signals: &mut Signals, said_in: Option<Format>) {
    /// It has just been waited for in vain.
    const NONE: Duration = Duration::from_millis(50);
    let away = matches!(ended, Err(failure) if failure.store_is_away);
    let mut closing = std::pin::pin!(client.close());
    let first = if away { NONE } else { SAY_THAT_WE_WAIT };
    if timeout(first, &mut closing).await.is_ok() || away {
        return;
    }
    let rest = GIVE_BACK - SAY_THAT_WE_WAIT;
    if let Some(format) = said_in {
        let (store, most) = (client.store_url(), output::duration(rest));
        exit::warn(
            format,
            "close",
            format!("{store} is waited for to end the session, {most} more at the most"),
        );
    }
    tokio::select! {
        biased;
        _ = timeout(rest, closing) => {}
        _ = signals.next_that_ends_us() => {}
    }
}

/// The work with a client, ended early by a signal: the session is closed in either case.
async fn with_client<F>(global: &Global, work: impl FnOnce(Client) -> F) -> Done
where
    F: Future<Output = Done>,
{
    with_client_of(Client::builder(), global, work).await
}

/// The same with more options.
async fn with_client_of<F>(builder: ClientBuilder, global: &Global, work: impl FnOnce(Client) -> F) -> Done
where
    F: Future<Output = Done>,
{
    let mut signals = catch(Signals::that_end_us())?;
    let format = global.format;
    let builder = builder.on_outage(move |outage| report(outage, format));
    let client = tokio::select! {
        client = connect_with(builder, global, OsStr::new("leasehold")) => client?,
        signal = signals.next_that_ends_us() => return Err(ended_by(signal)),
    };
    let ended = tokio::select! {
        ended = work(client.clone()) => ended,
        signal = signals.next_that_ends_us() => Err(ended_by(signal)),
    };
    close(&client, &ended, &mut signals, Some(global.format)).await;
    ended
}

fn catch(signals: std::io::Result<Signals>) -> Result<Signals, Failure> {
    signals.map_err(|e| Failure::new(Exit::UNAVAILABLE, "system", format!("signals can't be caught: {e}")))
}

/// A signal ended the program before its work was done.
fn ended_by(signal: Signal) -> Failure {
    Failure::silent(Exit::of_signal(signal.as_raw()))
}
