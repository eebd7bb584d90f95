//! `leasehold release NAME --ask` asks the holders of a lock to give it back, `--force` takes it away from them; both say whom.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use leasehold::{Client, EntryView, Name, Retry, Token};
use serde_json::json;

use crate::args::{Format, Global, Release};
use crate::commands::{Done, with_client_of};
use crate::exit::{self, Exit, Failure};
use crate::output::{self, Look, Out};
use crate::stderr;

/// What to release.
pub(crate) struct Plan {
    name: Name,
    token: Option<Token>,
    how: How,
    /// How long to wait for what was asked for.
    wait: Option<Duration>,
}

/// How it is got back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Its holders are asked.
    Ask,
    /// It is taken away, after a look at whom from if the user has to say yes.
    Take { confirm: bool },
}

impl Plan {
    pub(crate) fn of(args: Release) -> Result<Self, Failure> {
        let (name, token) = (Name::new(args.name)?, args.token.map(Token));
        if args.ask {
            return Ok(Plan { name, token, how: How::Ask, wait: args.wait });
        }
        if !args.force {
            let why = "a lock is given back by its holder; to take it away from somebody who may still work under it takes --force";
            return Err(Failure::usage(why).advice("add --ask to ask for it, or --force to take it away"));
        }
        let on_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
        if !args.yes && !on_terminal {
            return Err(Failure::usage("there is no terminal to ask whether the lock may be taken away")
                .advice("add --yes"));
        }
        Ok(Plan { name, token, how: How::Take { confirm: !args.yes }, wait: args.wait })
    }
}

pub(crate) async fn run(global: Global, plan: Plan) -> Done {
    let until = plan.wait.map(|wait| Instant::now() + wait);
    let mut builder = Client::builder();
    if let Some(wait) = plan.wait {
        builder = builder.open_for(wait);
    }
    with_client_of(builder, &global, async |client| release(&client, plan, until, global.format).await).await
}

/// `until` is the end of the wait.
async fn release(client: &Client, plan: Plan, until: Option<Instant>, format: Format) -> Done {
    let mut expected = plan.token;
    let patient = until.map_or_else(|| client.clone(), |until| client.with_retry_for(left_until(until)));
    if plan.how == How::Ask {
        let asked = patient.request_release(&plan.name, expected).await?;
        report(&plan, &asked, format)?;
        let (Some(wait), Some(until)) = (plan.wait, until) else { return Ok(Exit::OK) };
        if gave_it_back(client, &plan.name, &asked, until).await? {
            return Ok(Exit::OK);
        }
        let what = format!("after {}, {:?} was not given back", output::duration(wait), plan.name.as_str());
        return Err(
            Failure::new(Exit::BUSY, "busy", what).advice("wait longer, or take it away with --force")
        );
    }
    if plan.how == (How::Take { confirm: true }) {
        let holders = client.inspect(&plan.name).await?.holders;
        if !holders.is_empty() && !confirmed(&plan.name, &holders).await? {
            return Err(Failure::new(Exit::REFUSED, "refused", "nothing was released, as you said"));
        }
        // Who said yes to this holder did not say yes to the one who may have come since.
        if let ([only], None) = (&holders[..], expected) {
            expected = only.token;
        }
    }
    if let Some(until) = until {
        let asked = patient.request_release(&plan.name, expected).await?;
        if gave_it_back(client, &plan.name, &asked, until).await? {
            report(&Plan { how: How::Ask, ..plan }, &asked, format)?;
            return Ok(Exit::OK);
        }
    }
    let taken = client.force_release(&plan.name, expected).await?;
    report(&plan, &taken, format)?;
    if !taken.is_empty() {
        exit::warn(format, "overlap", OVERLAP);
    }
    Ok(Exit::OK)
}

/// What everybody should know who takes a lock away.
const OVERLAP: &str = "the lock is free for the next holder now, and what ran under it may go on for a while: a command of `leasehold run` for \
    up to its --grace (5s), a program until it notices; --wait asks first, and fencing tokens keep late writers out";

fn left_until(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Waits until none of those that were asked holds the lock any more. A store that is away meanwhile is asked again
/// until the wait is over.
async fn gave_it_back(
    client: &Client,
    name: &Name,
    asked: &[EntryView],
    until: Instant,
) -> Result<bool, Failure> {
    const LOOK: Duration = Duration::from_millis(50);
    loop {
        let seen = client.with_retry_for(left_until(until)).inspect(name).await;
        let left = left_until(until);
        match seen {
            Ok(lock) => {
                let is_asked = |holder: &EntryView| asked.iter().any(|asked| asked.id == holder.id);
                if !lock.holders.iter().any(is_asked) {
                    return Ok(true);
                }
                if left.is_zero() {
                    return Ok(false);
                }
            }
            Err(e) if left.is_zero() || e.retry_advice() == Retry::Never => return Err(e.into()),
            Err(_) => {}
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

async fn confirmed(name: &Name, holders: &[EntryView]) -> Result<bool, Failure> {
    let whom: Vec<String> = holders.iter().map(describe).collect();
    stderr::say(format!("Take {} from {}? [y/N] ", output::printable(name.as_str()), whom.join(", ")));
    // The prompt blocks, so it has a thread of its own: a signal ends the program all the same.
    let (answered, answer) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = io::stdin().read_line(&mut line);
        let _ = answered.send(line);
    });
    let line = answer.await.unwrap_or_default();
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Says who was asked, or whom it was taken from.
fn report(plan: &Plan, whom: &[EntryView], format: Format) -> io::Result<()> {
    let mut out = Out::stdout();
    let (field, done) = match plan.how {
        How::Ask => ("asked", "asked"),
        How::Take { .. } => ("released", "taken from"),
    };
    match format {
        Format::Json => {
            let whom: Vec<_> = whom.iter().map(output::entry_json).collect();
            out.json(&json!({ "name": plan.name.as_str(), field: whom }))?;
        }
        Format::Text => {
            let name = out.paint(&output::printable(plan.name.as_str()), Look::Name);
            if whom.is_empty() {
                out.line(&format!("{name}: nobody held it"))?;
            }
            for entry in whom {
                out.line(&format!("{name}: {done} {}", describe(entry)))?;
            }
        }
    }
    out.flush()
}

/// `host:17 rsync (exclusive for 3m 02s, token 42)`
fn describe(entry: &EntryView) -> String {
    let since = entry.held_since.unwrap_or(entry.since);
    let token = entry.token.map_or_else(String::new, |token| format!(", token {token}"));
    format!(
        "{} ({} for {}{token})",
        entry.label,
        output::want(entry.want),
        output::duration(output::age(since))
    )
}
