//! What the URLs of all stores share: `scheme:rest?key=value&key=value`.
//!
//! # Passwords
//!
//! A URL may have a password in it, and a malformed one may have it anywhere. So no error shows a part of what was given,
//! except the scheme and the names of parameters; what is printed of a URL is made anew from what was read, by the store
//! ([`Store::url`](crate::store::Store::url)) or by [`redact`].

use std::fmt;
use std::time::Duration;

use crate::{Error, Kind, Result};

/// A store URL, split. Not a general URL parser: each store reads its own `rest`.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    /// What stands before the first colon, in lower case.
    pub scheme: String,
    /// What stands between the colon and the question mark.
    pub rest: String,
    /// The parameters, in order, percent-decoded.
    pub params: Vec<(String, String)>,
    /// Whether a password was among the parameters: what follows it could be a part of it.
    has_password: bool,
}

/// Without what could be a password: anything but the scheme.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({}:***)", self.scheme)
    }
}

impl StoreUrl {
    /// Splits a URL.
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = split_scheme(url).ok_or_else(|| {
            Error::new(Kind::Invalid, "the store URL has no scheme")
                .advice("a store is given as scheme:rest, as in file:/run/locks")
        })?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if query.contains('@') {
            let what = "the store URL has an @ behind its question mark";
            return Err(Error::new(Kind::Invalid, what)
                .advice("write a ? in a password as %3F, and an @ in a parameter as %40"));
        }
        let mut params = Vec::new();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            params.push((percent_decode(key)?, percent_decode(value)?));
        }
        let has_password = params.iter().any(|(key, _)| key.ends_with("password"));
        Ok(StoreUrl { scheme: scheme.to_ascii_lowercase(), rest: rest.to_owned(), params, has_password })
    }

    /// The same parameters behind another place.
    pub fn with_place(&self, scheme: &str, rest: String) -> StoreUrl {
        StoreUrl { scheme: scheme.to_owned(), rest, ..self.clone() }
    }

    /// Takes a parameter out, so that [`finish`](StoreUrl::finish) can name those that nobody knew.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.params.iter().position(|(k, _)| k == key)?;
        Some(self.params.remove(at).1)
    }

    /// Refuses what is left over: a mistyped parameter must not be ignored in silence.
    pub fn finish(self, known: &[&str]) -> Result<()> {
        let Some((key, _)) = self.params.first() else { return Ok(()) };
        let known = if known.is_empty() {
            "it takes none".to_owned()
        } else {
            format!("it knows {}", known.join(", "))
        };
        let bad = |what, advice| Err(Error::new(Kind::Invalid, what).advice(advice));
        if self.has_password {
            let what = format!("{}: URLs don't have one of the parameters that were given", self.scheme);
            return bad(what, format!("write a & in a password as %26; {known}"));
        }
        bad(format!("{}: URLs have no parameter {key:?}", self.scheme), known)
    }

    /// Reads `//[user[:password]@]host[:port][,host[:port]…][/path]`. The last `@` ends the user part: a password may hold
    /// an unescaped `@`, `/`, `:` or `#`.
    pub fn authority(&self) -> Result<Authority> {
        let form = || format!("write {}://host:port, or {0}://[::1]:port", self.scheme);
        let no_host = || Error::new(Kind::Invalid, "the URL names no host").advice(form());
        let rest = self.rest.strip_prefix("//").ok_or_else(no_host)?;
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        if hosts.is_empty() {
            return Err(no_host());
        }
        let wrong = |n: usize| {
            let what = format!("host number {} of the URL is not a host and a port", n + 1);
            Error::new(Kind::Invalid, what).advice(form())
        };
        let hosts = hosts.split(',').enumerate();
        let hosts =
            hosts.map(|(n, text)| Host::parse(text).ok_or_else(|| wrong(n))).collect::<Result<_>>()?;
        let (user, password) = match login {
            None => (None, None),
            Some(login) => match login.split_once(':') {
                Some((user, password)) => (Some(percent_decode(user)?), Some(percent_decode(password)?)),
                None => (Some(percent_decode(login)?), None),
            },
        };
        let user = user.filter(|user| !user.is_empty());
        Ok(Authority { user, password, hosts, path: path.to_owned() })
    }

    /// Refuses a user and a password where a path or a name is expected, which is printed as it is.
    pub fn without_login(&self) -> Result<()> {
        match self.rest.split_once(':') {
            Some((_, rest)) if rest.contains('@') => {
                Err(Error::new(Kind::Invalid, format!("{}: URLs have no user and password", self.scheme))
                    .advice("leave out what looks like one"))
            }
            _ => Ok(()),
        }
    }
}

/// What a URL says of its servers: see [`StoreUrl::authority`].
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// The user, decoded.
    pub user: Option<String>,
    /// The password, decoded.
    pub password: Option<String>,
    /// At least one.
    pub hosts: Vec<Host>,
    /// What stands behind the slash, as it was written.
    pub path: String,
}

/// Without the password.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .finish()
    }
}

/// A host and a port, as a URL has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name or number, without brackets and as it was written.
    pub name: String,
    /// Its port, if one was given.
    pub port: Option<u16>,
}

impl Host {
    /// `host`, `host:port`, `[::1]`, `[::1]:port`.
    fn parse(text: &str) -> Option<Host> {
        let (name, port, sane): (_, _, fn(char) -> bool) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, port) = rest.split_once(']')?;
                (name.contains(':').then_some(name)?, port, |c| {
                    c.is_alphanumeric() || matches!(c, ':' | '.' | '%')
                })
            }
            None => {
                let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (name, port, |c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '%'))
            }
        };
        if name.is_empty() || !name.chars().all(sane) {
            return None;
        }
        let port = match port.strip_prefix(':') {
            Some(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
            None if port.is_empty() => None,
            None => return None,
        };
        Some(Host { name: name.to_owned(), port })
    }
}

/// The scheme, and what follows its colon.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let sane = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'-';
    (!scheme.is_empty() && scheme.bytes().all(sane)).then_some((scheme, rest))
}

/// The URL as it may be printed: a password becomes `***`, and so do all parameters. Where it is not certain what is a
/// password, all that follows the scheme does.
///
/// ```
/// use leasehold_core::url::redact;
/// assert_eq!(redact("redis://bob:secret@host:6379/0"), "redis://bob:***@host:6379/0");
/// assert_eq!(redact("redis://bob:se?cret@host"), "redis:***");
/// assert_eq!(redact("file:/run/locks"), "file:/run/locks");
/// ```
pub fn redact(url: &str) -> String {
    match split_scheme(url) {
        None => "***".to_owned(),
        Some((scheme, rest)) => {
            format!("{scheme}:{}", redact_rest(rest).unwrap_or_else(|| "***".to_owned()))
        }
    }
}

/// `None` if it is not certain where the password is.
fn redact_rest(rest: &str) -> Option<String> {
    let plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/'));
    let (place, query) = rest.split_once('?').map_or((rest, ""), |(place, _)| (place, "?***"));
    if rest[place.len()..].contains('@') {
        return None;
    }
    let Some(authority) = place.strip_prefix("//") else {
        return plain(place).then(|| format!("{place}{query}"));
    };
    let (login, servers) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').map_or((login, ""), |(user, _)| (user, ":***"));
    let (hosts, path) = servers.split_at(servers.find('/').unwrap_or(servers.len()));
    let sane = plain(user) && plain(path) && hosts.split(',').all(|host| Host::parse(host).is_some());
    let at = if authority.contains('@') { "@" } else { "" };
    sane.then(|| format!("//{user}{password}{at}{servers}{query}"))
}

/// Decodes `%41`. Anything else stays as it is.
pub fn percent_decode(text: &str) -> Result<String> {
    // Without the text: it may be a password.
    let bad = || {
        Error::new(Kind::Invalid, "a part of the URL has a broken percent escape")
            .advice("write a percent sign as %25")
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |b: Option<u8>| b.and_then(|b| (b as char).to_digit(16)).ok_or_else(bad);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

/// Reads a duration parameter: `500ms`, `30s`, `2m`, `1h`.
pub fn duration(key: &str, text: &str) -> Result<Duration> {
    let bad = || {
        Error::new(Kind::Invalid, format!("the {key} of the URL is not a duration"))
            .advice("write 500ms, 30s, 2m or 1h")
    };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().map_err(|_| bad())?;
    let millis = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(bad()),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_splits_into_scheme_rest_and_params() {
        let mut url = StoreUrl::parse("FILE:/a b?x=%2F&lease=5s").unwrap();
        assert_eq!((url.scheme.as_str(), url.rest.as_str()), ("file", "/a b"));
        assert_eq!(url.take("x").as_deref(), Some("/"));
        let e = url.finish(&["x"]).unwrap_err();
        assert!(e.to_string().contains("lease"), "{e}");
    }

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("redis://:secret@h", "redis://:***@h"),
            ("mysql://bob:p@ss@h/db", "mysql://bob:***@h/db"),
            ("mysql://bob:p/s@s@h/db", "mysql://bob:***@h/db"),
            ("redis://bob@h", "redis://bob@h"),
            ("redis://bob:secret@[::1]:7,h:8/0", "redis://bob:***@[::1]:7,h:8/0"),
            ("redis://bob:secret", "redis:***"),
            ("redis:/bob:secret@h", "redis:***"),
            ("redis://b@b:secret@h", "redis:***"),
            ("redis://bob:se?cret@h", "redis:***"),
            ("redlock:redis://:secret@h", "redlock:***"),
            ("x:y?password=1&a=2", "x:y?***"),
            ("bob secret", "***"),
        ] {
            assert_eq!(redact(url), shown);
        }
        for broken in [
            "://bob:secret@h",
            "redis://h?password=secret%",
            "redis://h?password=secret%zz",
            "redis://u:x?secret@h",
        ] {
            assert!(!StoreUrl::parse(broken).unwrap_err().to_string().contains("secret"), "{broken}");
        }
        let url = StoreUrl::parse("redis://bob:secret@h?password=secret&secret=1").unwrap();
        for text in [format!("{url:?}"), format!("{:?}", url.authority()), format!("{:?}", url.finish(&[]))] {
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn an_authority_has_a_login_hosts_and_a_path() {
        let read = |url: &str| StoreUrl::parse(url).unwrap().authority();
        let given = read("x://b%40b:a:b@c/d#%3F@h,h2:7,[::1],[::1]:8/path/more").unwrap();
        assert_eq!((given.user.as_deref(), given.password.as_deref()), (Some("b@b"), Some("a:b@c/d#?")));
        let hosts: Vec<_> = given.hosts.iter().map(|host| (host.name.as_str(), host.port)).collect();
        assert_eq!(hosts, [("h", None), ("h2", Some(7)), ("::1", None), ("::1", Some(8))]);
        assert_eq!(given.path, "path/more");
        assert_eq!(read("x://:p@h").unwrap().user, None);
        for bad in [
            "x:h",
            "x:/h",
            "x://",
            "x://u@",
            "x://,",
            "x://h,,h",
            "x://h:",
            "x://h:x",
            "x://h:0",
            "x://h:99999",
            "x://h:1:2",
            "x://h o",
            "x://[::1",
            "x://[::1]x",
            "x://[h]",
            "x://u:%zz@h",
            "x://bob:secret",
        ] {
            let error = read(bad).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{bad}");
            assert!(error.advice_text().is_some() && !error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("lease", "250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("lease", "2m").unwrap(), Duration::from_secs(120));
        for bad in ["", "5", "s", "5d", "99999999999999999999s", "é"] {
            assert_eq!(duration("lease", bad).unwrap_err().kind(), Kind::Invalid);
        }
    }
}
