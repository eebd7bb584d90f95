//! `leasehold release NAME --ask` asks the holders of a lock to give it back, `--force` takes it away from them; both say whom.

use std::io::{self, IsTerminal, Write};

use leasehold::{Client, EntryView, Name, Token};
use serde_json::json;

use crate::args::{Format, Global, Release};
use crate::commands::{Done, with_client};
use crate::exit::{Exit, Failure};
use crate::output::{self, Look, Out};

/// What to release.
pub(crate) struct Plan {
    name: Name,
    token: Option<Token>,
    how: How,
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
            return Ok(Plan { name, token, how: How::Ask });
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
        Ok(Plan { name, token, how: How::Take { confirm: !args.yes } })
    }
}

pub(crate) async fn run(global: Global, plan: Plan) -> Done {
    with_client(&global, async |client| release(&client, plan, global.format).await).await
}

async fn release(client: &Client, plan: Plan, format: Format) -> Done {
    let mut expected = plan.token;
    if plan.how == How::Ask {
        let asked = client.request_release(&plan.name, expected).await?;
        report(&plan, &asked, format)?;
        return Ok(Exit::OK);
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
    let taken = client.force_release(&plan.name, expected).await?;
    report(&plan, &taken, format)?;
    Ok(Exit::OK)
}

async fn confirmed(name: &Name, holders: &[EntryView]) -> Result<bool, Failure> {
    let whom: Vec<String> = holders.iter().map(describe).collect();
    let mut stderr = io::stderr();
    let _ = write!(stderr, "Take {} from {}? [y/N] ", output::printable(name.as_str()), whom.join(", "));
    let _ = stderr.flush();
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
