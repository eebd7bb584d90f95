//! What the URLs of SQL stores have in common.

use std::time::Duration;

use leasehold_core::url::{Authority, Host, StoreUrl, duration};
use leasehold_core::{Error, Kind, Result};
use leasehold_net::Login;

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
                Error::new(Kind::Invalid, "the pool of the URL is not a number of connections")
                    .advice("write 1 to 100")
            })?;
        }
        if let Some(text) = url.take("create") {
            options.create = match text.as_str() {
                "yes" => true,
                "no" => false,
                _ => {
                    let what = "the create of the URL is neither yes nor no";
                    return Err(Error::new(Kind::Invalid, what).advice("write create=no, or leave it away"));
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

/// The URL as it may be printed: no password in it, and the parameters that are not the usual ones.
pub fn shown_url(scheme: &str, place: &Authority, login: &Login, params: &[(&str, String)]) -> String {
    let host = |host: &Host| {
        let name = if host.name.contains(':') { format!("[{}]", host.name) } else { host.name.clone() };
        host.port.map_or(name.clone(), |port| format!("{name}:{port}"))
    };
    let hosts: Vec<String> = place.hosts.iter().map(host).collect();
    let mut params: Vec<String> =
        params.iter().map(|(key, value)| format!("{key}={}", escape(value))).collect();
    params.extend(
        login.password_file().map(|path| format!("password-file={}", escape(&path.to_string_lossy()))),
    );
    let query = if params.is_empty() { String::new() } else { format!("?{}", params.join("&")) };
    let path = if place.path.is_empty() { String::new() } else { format!("/{}", place.path) };
    format!("{scheme}://{}{}{path}{query}", login.shown(escape), hosts.join(","))
}

/// Escapes what would end a part of a URL.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '%' | '?' | '&' | '#' | '@' | ':' | ' ' => out.push_str(&format!("%{:02X}", c as u32)),
            c => out.push(c),
        }
        out
    })
}

fn positive(key: &str, text: &str) -> Result<Duration> {
    let length = duration(key, text)?;
    if length.is_zero() {
        let what = format!("the {key} of the URL leaves no time");
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
    Err(Error::new(Kind::Invalid, "the prefix of the URL can't be the beginning of a table's name")
        .advice(format!("use a to z, 0 to 9 and _, at most {LONGEST_PREFIX}, and no digit first")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_was_given() {
        let shown = |text: &str| {
            let mut url = StoreUrl::parse(text).unwrap();
            let (options, place) = (Options::take(&mut url).unwrap(), url.authority().unwrap());
            let login = Login::of(&place).with_params(&mut url, "").unwrap();
            url.finish(&[]).unwrap();
            shown_url("x", &place, &login, &options.shown())
        };
        for text in [
            "x://y/z?timeout=700ms&prefix=our_&retention=60000ms&pool=2&create=no",
            concat!("x://bob@[::1]:7,h:8/z?password-file=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ] {
            assert_eq!(shown(text), text);
        }
        assert_eq!(shown("x://b%40b:sec%20ret@y/z"), "x://b%40b:***@y/z");
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
