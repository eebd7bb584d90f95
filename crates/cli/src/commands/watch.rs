//! `leasehold watch [PREFIX]`

use leasehold::{Client, Event, Happened};
use serde_json::{Value, json};

use crate::args::{self, Format, Global};
use crate::commands::{Done, with_client};
use crate::exit::{self, Exit};
use crate::output::{self, Look, Out};

pub(crate) async fn run(global: Global, args: args::Watch) -> Done {
    with_client(&global, async |client| watch(&client, args.prefix, global.format).await).await
}

async fn watch(client: &Client, prefix: String, format: Format) -> Done {
    let mut out = Out::stdout();
    let mut events = client.watch(prefix).await?;
    while let Some(event) = events.next().await {
        // The stream goes on after an error: some events were missed.
        let event = match event {
            Ok(event) => event,
            Err(e) => {
                exit::warn(format, "missed", e.to_string());
                continue;
            }
        };
        match format {
            Format::Json => out.json(&json_of(&event))?,
            Format::Text => {
                let line = text_of(&event, &out);
                out.line(&line)?;
            }
        }
        out.flush()?;
    }
    Ok(Exit::OK)
}

fn text_of(event: &Event, out: &Out) -> String {
    let look = match event.what {
        Happened::Acquired => Look::Good,
        Happened::Lost(_) | Happened::Expired => Look::Bad,
        _ => Look::Plain,
    };
    let what = out.paint(&format!("{:<8}", event.what.as_str()), look);
    let name = out.paint(&output::printable(event.name.as_str()), Look::Name);
    let mut line = format!(
        "{}  {what}  {name}  {}  {}",
        output::moment(event.at),
        output::want(event.want),
        event.label
    );
    if let Some(token) = event.token {
        line.push_str(&format!("  token {token}"));
    }
    if let Happened::Lost(why) = event.what {
        line.push_str(&format!("  ({why})"));
    }
    line
}

fn json_of(event: &Event) -> Value {
    let mut object = json!({
        "at_unix_ms": event.at / 1_000,
        "name": event.name.as_str(),
        "event": event.what.as_str(),
        "reason": if let Happened::Lost(why) = event.what { Some(why.as_str()) } else { None },
        "label": event.label.to_string(),
        "session": event.session.to_string(),
        "token": event.token.map(|t| t.to_string()),
    });
    output::add_want(&mut object, event.want);
    object
}
