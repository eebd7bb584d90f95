//! Asking the Sentinels themselves: whom they watch, how many of them they know, and whether they could elect a master now.

use std::error::Error as _;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Error, Kind, Result};
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::facts::{Sentinel, Watch};
use super::fields::Fields;
use crate::config::{Address, Server};
use crate::wire::{Expected, ask};

/// Asks all of them at once. One that does not answer within `time`, or knows no such master, is part of what was seen.
pub(crate) async fn look(sentinels: &[Server], master: &str, time: Duration) -> Vec<Sentinel> {
    join_all(sentinels.iter().map(async |sentinel| {
        let watch = watch(sentinel, master, Instant::now() + time).await;
        Sentinel { node: sentinel.address.to_string(), watch: watch.map_err(|e| words(&e)) }
    }))
    .await
}

async fn watch(sentinel: &Server, master: &str, deadline: Instant) -> Result<Watch> {
    let put = |what: &str| {
        let mut cmd: Cmd = redis::cmd("SENTINEL");
        cmd.arg(what).arg(master);
        cmd
    };
    let seen = ask(sentinel, Expected::Sentinel, &put("MASTER"), deadline).await?;
    let able = ask(sentinel, Expected::Sentinel, &put("CKQUORUM"), deadline).await;
    read(&seen, able).ok_or_else(|| Error::new(Kind::Store, "it answers with something that makes no sense"))
}

fn read(seen: &Value, able: Result<Value>) -> Option<Watch> {
    let seen = Fields::of_list(seen);
    Some(Watch {
        master: Address::tcp(seen.get("ip")?, seen.number("port")?).to_string(),
        quorum: seen.number("quorum")?,
        sentinels: seen.number::<u64>("num-other-sentinels")?.saturating_add(1),
        able: match able {
            Ok(_) => Some(Ok(())),
            // Any other error says that it can't be asked, not that it can't be done.
            Err(e) => words(&e)
                .split_once("NOQUORUM")
                .map(|(_, why)| Err(why.trim_matches([':', ' ', '.']).to_owned())),
        },
    })
}

/// What went wrong, with the server's own words if there are any.
fn words(error: &Error) -> String {
    match error.source() {
        Some(cause) => format!("{}: {cause}", error.what()),
        None => error.what().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sentinel_says_is_read() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let pairs = ["ip", "10.0.0.1", "port", "6379", "quorum", "2", "num-other-sentinels", "4"];
        let seen = Value::Array(pairs.map(bulk).to_vec());
        let refused = |text: &str| Err(Error::new(Kind::Store, "refused").because(text.to_owned()));
        let watch = Watch { master: "10.0.0.1:6379".to_owned(), quorum: 2, sentinels: 5, able: Some(Ok(())) };
        assert_eq!(read(&seen, Ok(Value::Okay)), Some(watch.clone()));
        let able = Some(Err("1 usable Sentinels".to_owned()));
        let none = Watch { able, ..watch.clone() };
        assert_eq!(read(&seen, refused("NOQUORUM: 1 usable Sentinels. ")), Some(none));
        // One that may not be asked is not one that says no.
        assert_eq!(read(&seen, refused("NOPERM")), Some(Watch { able: None, ..watch }));
        assert_eq!(read(&Value::Nil, Ok(Value::Okay)), None);
    }
}
