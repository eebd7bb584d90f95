//! What the URLs of SQL stores have in common.

use std::time::Duration;

use leasehold_core::url::{StoreUrl, duration, redact};
use leasehold_core::{Error, Kind, Result};

/// How long one statement may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What the names of all tables start with.
const PREFIX: &str = "leasehold_";

/// How long what remains of an idle lock is kept: its last token. After that, time has passed it.
const RETENTION: Duration = Duration::from_secs(24 * 3600);

/// How many connections a session has for statements.
const POOL: usize = 4;

/// Longer ones leave no room for the rest of a table's name.
const LONGEST_PREFIX: usize = 40;

/// The parameters that every SQL store has.
pub const PARAMS: &[&str] = &["timeout", "prefix", "retention", "pool", "create"];

/// Options of every SQL store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long one statement may take, and a connection to come about.
    pub timeout: Duration,
    /// What the names of all tables start with.
    pub prefix: String,
    /// How long what remains of an idle lock is kept.
    pub retention: Duration,
    /// How many connections a session has for statements at most.
    pub pool: usize,
    /// Whether missing tables are created.
    pub create: bool,
}

impl Default for Options {
    fn default() -> Self {
        let prefix = PREFIX.to_owned();
        Options { timeout: TIMEOUT, prefix, retention: RETENTION, pool: POOL, create: true }
    }
}

impl Options {
    /// Takes its parameters out of a URL; others stay in it.
    pub fn take(url: &mut StoreUrl) -> Result<Self> {
        let mut options = Options::default();
        if let Some(text) = url.take("timeout") {
            options.timeout = positive("timeout", &text)?;
        }
        if let Some(text) = url.take("retention") {
            options.retention = duration("retention", &text)?;
        }
        if let Some(text) = url.take("prefix") {
            options.prefix = checked_prefix(text)?;
        }
        if let Some(text) = url.take("pool") {
            options.pool = text.parse().ok().filter(|pool| (1..=100).contains(pool)).ok_or_else(|| {
                Error::new(Kind::Invalid, format!("pool={text} is not a number of connections"))
                    .advice("write 1 to 100")
            })?;
        }
        if let Some(text) = url.take("create") {
            options.create = match text.as_str() {
                "yes" => true,
                "no" => false,
                _ => {
                    let what = format!("create={text} is neither yes nor no");
                    return Err(Error::new(Kind::Invalid, what));
                }
            };
        }
        Ok(options)
    }

    /// Its parameters as a URL has them, where they are not the usual ones.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let usual = Options::default();
        let mut shown = Vec::new();
        if self.timeout != usual.timeout {
            shown.push(("timeout", format!("{}ms", self.timeout.as_millis())));
        }
        if self.prefix != usual.prefix {
            shown.push(("prefix", self.prefix.clone()));
        }
        if self.retention != usual.retention {
            shown.push(("retention", format!("{}ms", self.retention.as_millis())));
        }
        if self.pool != usual.pool {
            shown.push(("pool", self.pool.to_string()));
        }
        if !self.create {
            shown.push(("create", "no".to_owned()));
        }
        shown
    }
}

/// A URL as it may be printed: the password hidden, and the parameters that are not the usual ones.
pub fn shown_url(scheme: &str, place: &str, params: &[(&str, String)]) -> String {
    let params: Vec<String> = params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let query = if params.is_empty() { String::new() } else { format!("?{}", params.join("&")) };
    format!("{}{query}", redact(&format!("{scheme}:{place}")))
}

fn positive(key: &str, text: &str) -> Result<Duration> {
    let length = duration(key, text)?;
    if length.is_zero() {
        let what = format!("{key}={text} leaves no time");
        return Err(Error::new(Kind::Invalid, what).advice("write 500ms, 5s, …"));
    }
    Ok(length)
}

/// Prefixes become part of statements, so they are plain.
fn checked_prefix(text: String) -> Result<String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let sane = !text.is_empty() && text.len() <= LONGEST_PREFIX && text.bytes().all(plain);
    if sane && !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(text);
    }
    Err(Error::new(Kind::Invalid, format!("prefix={text} can't be the beginning of a table's name"))
        .advice(format!("use a to z, 0 to 9 and _, at most {LONGEST_PREFIX}, and no digit first")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_was_given() {
        let text = "x:y?timeout=700ms&prefix=our_&retention=60000ms&pool=2&create=no";
        let mut url = StoreUrl::parse(text).unwrap();
        let options = Options::take(&mut url).unwrap();
        url.finish(&[]).unwrap();
        assert_eq!(shown_url("x", "y", &options.shown()), text);
        assert_eq!(shown_url("x", "//bob:secret@y/z", &[]), "x://bob:***@y/z");
        assert!(Options::default().shown().is_empty());
    }

    #[test]
    fn bad_options_are_refused() {
        for bad in
            ["prefix=", "prefix=a-b", "prefix=1a", "prefix=a;b", "pool=0", "pool=x", "timeout=0s", "create=1"]
        {
            let mut url = StoreUrl::parse(&format!("x:y?{bad}")).unwrap();
            assert_eq!(Options::take(&mut url).unwrap_err().kind(), Kind::Invalid, "{bad}");
        }
    }
}
