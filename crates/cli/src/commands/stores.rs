//! `leasehold stores`: what each store promises, from the data that the conformance suite checks.

use leasehold::{Death, Traits};
use serde_json::{Value, json};

use crate::args::{Format, Global};
use crate::commands::Done;
use crate::exit::Exit;
use crate::output::{self, Look, Out};

pub(crate) fn run(global: &Global) -> Done {
    let mut out = Out::stdout();
    for (at, store) in leasehold::stores().into_iter().enumerate() {
        match global.format {
            Format::Json => out.json(&json_of(store))?,
            Format::Text => {
                if at > 0 {
                    out.line("")?;
                }
                text(&mut out, store)?;
            }
        }
    }
    out.flush()?;
    Ok(Exit::OK)
}

fn text(out: &mut Out, store: &Traits) -> std::io::Result<()> {
    let name = out.paint(store.store, Look::Name);
    out.line(&name)?;
    let death = match store.death {
        Death::AtOnce => "noticed at once",
        Death::LeaseEnd => "noticed when the lease ends",
    };
    let shared = if store.shared { "yes" } else { "no, refused" };
    let leases =
        format!("{} to {}", output::duration(store.shortest_lease), output::duration(store.longest_lease));
    let urls = store.urls.join("  ");
    let outage = store.outage.map_or_else(
        || "there is no link to it".to_owned(),
        |time| format!("one of {} costs no lock, by default", output::duration(time)),
    );
    let mut promises = vec![
        ("URLs", urls.as_str()),
        ("reach", store.reach),
        ("crash of a holder", death),
        ("outages of a link", &outage),
        ("fencing tokens", store.tokens),
        ("order", store.order),
        ("shared, permits", shared),
        ("wake-up", store.wakeup),
        ("leases", &leases),
        ("what can break it", store.breaks),
    ];
    let default = default_of(store);
    let default = default.as_ref().map(|default| match default {
        Ok(folder) => (folder.path.display().to_string(), folder.split_by.to_owned()),
        Err(e) => ("none".to_owned(), e.to_string()),
    });
    if let Some((folder, split_by)) = &default {
        promises.extend([("default folder", folder.as_str()), ("", split_by.as_str())]);
    }
    for (what, promise) in promises {
        let what = out.paint(&format!("{what:<17}"), Look::Faint);
        out.line(&format!("  {what}  {promise}"))?;
    }
    Ok(())
}

/// The folder of the one store that needs no URL.
fn default_of(store: &Traits) -> Option<leasehold::Result<leasehold::DefaultFolder>> {
    (store.store == "file").then(leasehold::default_folder)
}

fn json_of(store: &Traits) -> Value {
    let default = default_of(store).and_then(Result::ok).map(|folder| folder.path.display().to_string());
    json!({
        "store": store.store,
        "default_folder": default,
        "urls": store.urls,
        "reach": store.reach,
        "death": match store.death {
            Death::AtOnce => "at once",
            Death::LeaseEnd => "lease end",
        },
        "outage_ms": store.outage.map(output::millis),
        "tokens": store.tokens,
        "order": store.order,
        "shared": store.shared,
        "wakeup": store.wakeup,
        "breaks": store.breaks,
        "shortest_lease_ms": output::millis(store.shortest_lease),
        "longest_lease_ms": output::millis(store.longest_lease),
    })
}
