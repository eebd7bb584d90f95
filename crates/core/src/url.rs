//! What the URLs of all stores share: `scheme:rest?key=value&key=value`.
//!
//! # Passwords
//!
//! A URL may have a password in it, and a malformed one may have it anywhere. So no error shows a part of what was
//! given, except a scheme that is known and the name of a parameter that is nearly a known one; what is printed of a
//! URL is made anew from what was read, by the store ([`Store::url`](crate::store::Store::url)) or by [`redact`].

use std::fmt;
use std::time::Duration;

use crate::{Error, Kind, Result};

/// The schemes of the stores of this project, whether they are compiled in or not: these can be shown.
pub const SCHEMES: &[&str] = &[
    "file",
    "memory",
    "mariadb",
    "mysql",
    "postgres",
    "postgresql",
    "redis",
    "redis+cluster",
    "redis+sentinel",
    "redis+unix",
    "rediss",
    "rediss+cluster",
    "rediss+sentinel",
    "redlock",
    "redlocks",
    "unix",
    "zk",
    "zk+tls",
    "zookeeper",
    "zookeeper+tls",
];

/// Those of [`SCHEMES`] that are followed by a path or a name.
const SCHEMES_OF_PATHS: &[&str] = &["file", "memory", "redis+unix", "unix"];

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

/// Without what could be a password: anything.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreUrl(***)")
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

    /// Refuses what is left over: a mistyped parameter must not be ignored in silence. Its name is shown if it is
    /// nearly one that is known: any other may be a part of a password.
    pub fn finish(self, known: &[&str]) -> Result<()> {
        let Some((key, _)) = self.params.first() else { return Ok(()) };
        let advice = if known.is_empty() {
            "it takes none".to_owned()
        } else {
            format!("it knows {}", known.join(", "))
        };
        let bad = |what, advice| Err(Error::new(Kind::Invalid, what).advice(advice));
        if !self.has_password && known.iter().any(|known| is_nearly(key, known)) {
            return bad(format!("{}: URLs have no parameter {key:?}", self.scheme), advice);
        }
        let what = format!("{}: URLs don't have one of the parameters that were given", self.scheme);
        bad(what, format!("write a ? in a password as %3F, and a & as %26; {advice}"))
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
        if user.as_ref().is_some_and(|user| user.contains(':')) {
            let what = "the URL has an escaped colon in the user before its host";
            return Err(Error::new(Kind::Invalid, what).advice(
                "write the colon between user and password as it is, and a user that has one in it as ?user=",
            ));
        }
        Ok(Authority { user, password, hosts, path: path.to_owned() })
    }

    /// Refuses a user and a password where a path or a name is expected, which is printed as it is.
    pub fn without_login(&self) -> Result<()> {
        let colon = self.rest.split_once(':').is_some_and(|(_, rest)| rest.contains('@'));
        if colon || (self.rest.starts_with("//") && self.rest.contains('@')) {
            return Err(Error::new(
                Kind::Invalid,
                format!("{}: URLs have no user and password", self.scheme),
            )
            .advice(format!(
                "leave out what looks like one; a path with an @ is written {}:/PATH",
                self.scheme
            )));
        }
        Ok(())
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

/// Whether one word is another with a slip of the pen: one letter more, less or wrong, or two of a longer word.
fn is_nearly(given: &str, known: &str) -> bool {
    let most = if known.len() < 5 { 1 } else { 2 };
    if given.len().abs_diff(known.len()) > most {
        return false;
    }
    // The distances of a beginning of the given word from every beginning of the other.
    let known = known.as_bytes();
    let mut row: Vec<usize> = (0..=known.len()).collect();
    for (n, letter) in given.bytes().enumerate() {
        let mut left_above = std::mem::replace(&mut row[0], n + 1);
        for at in 0..known.len() {
            let changed = left_above + usize::from(known[at] != letter);
            left_above = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(left_above + 1);
        }
    }
    row[known.len()] <= most
}

/// The URL as it may be printed: a password becomes `***`, and so do all parameters, and a user without a password:
/// it may be one. Where it is not certain what is a password, all that follows the scheme does, and for a scheme that
/// is not one of [`SCHEMES`] everything.
///
/// ```
/// use leasehold_core::url::redact;
/// assert_eq!(redact("redis://bob:secret@host:6379/0"), "redis://bob:***@host:6379/0");
/// assert_eq!(redact("redis://secret@host"), "redis://***@host");
/// assert_eq!(redact("redis://bob:se?cret@host"), "redis:***");
/// assert_eq!(redact("secret://host"), "***");
/// assert_eq!(redact("file:/run/locks"), "file:/run/locks");
/// ```
pub fn redact(url: &str) -> String {
    let is_known = |scheme: &str| SCHEMES.contains(&scheme.to_ascii_lowercase().as_str());
    match split_scheme(url).filter(|(scheme, _)| is_known(scheme)) {
        None => "***".to_owned(),
        Some((scheme, rest)) => {
            let is_path = SCHEMES_OF_PATHS.contains(&scheme.to_ascii_lowercase().as_str());
            format!("{scheme}:{}", redact_rest(rest, is_path).unwrap_or_else(|| "***".to_owned()))
        }
    }
}

/// `None` if it is not certain where the password is.
fn redact_rest(rest: &str, is_path: bool) -> Option<String> {
    let plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/'));
    let (place, query) = rest.split_once('?').map_or((rest, ""), |(place, _)| (place, "?***"));
    if rest[place.len()..].contains('@') {
        return None;
    }
    let Some(authority) = place.strip_prefix("//") else {
        return (is_path && plain(place)).then(|| format!("{place}{query}"));
    };
    let (login, servers) = match authority.rsplit_once('@') {
        None => (String::new(), authority),
        Some((login, servers)) => match login.split_once(':') {
            Some((user, _)) => (plain(user).then(|| format!("{user}:***@"))?, servers),
            None => ("***@".to_owned(), servers),
        },
    };
    let (hosts, path) = servers.split_at(servers.find('/').unwrap_or(servers.len()));
    let sane = plain(path) && hosts.split(',').all(|host| Host::parse(host).is_some());
    sane.then(|| format!("//{login}{servers}{query}"))
}

/// Encodes what a reader of parameters could take for something else. [`percent_decode`] gives the text back.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' ' | '#' | '%' | '&' | '?' | '@' => encoded.push_str(&format!("%{:02X}", u32::from(c))),
            c => encoded.push(c),
        }
    }
    encoded
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
        let e = url.finish(&["x", "leases"]).unwrap_err();
        assert!(e.to_string().contains("\"lease\"") && e.to_string().contains("leases"), "{e}");
    }

    #[test]
    fn only_a_slip_of_the_pen_is_named() {
        for (given, known, nearly) in [
            ("timeout", "timeout", true),
            ("timeuot", "timeout", true),
            ("sesion", "session", true),
            ("pasword-file", "password-file", true),
            ("do", "db", true),
            ("x", "db", false),
            ("hunter2SECRET", "timeout", false),
            ("", "db", false),
            ("passwordhunter2", "password", false),
            ("pröfix", "prefix", true),
        ] {
            assert_eq!(is_nearly(given, known), nearly, "{given} {known}");
            let url = StoreUrl::parse(&format!("x:y?{given}=1")).unwrap();
            let said = url.finish(&[known]).unwrap_err().to_string();
            assert_eq!(said.contains(&format!("{given:?}")), nearly, "{said}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("redis://:secret@h", "redis://:***@h"),
            ("mysql://bob:p@ss@h/db", "mysql://bob:***@h/db"),
            ("mysql://bob:p/s@s@h/db", "mysql://bob:***@h/db"),
            ("redis://bob@h", "redis://***@h"),
            ("redis://bob%3Asecret@h", "redis://***@h"),
            ("redis:secret", "redis:***"),
            ("REDIS://bob:secret@h/1", "REDIS://bob:***@h/1"),
            ("nosuch://secret@h", "***"),
            ("nosuch:secret", "***"),
            ("secret:x@h", "***"),
            ("memory:orders", "memory:orders"),
            ("redis://bob:secret@[::1]:7,h:8/0", "redis://bob:***@[::1]:7,h:8/0"),
            ("redis://bob:secret", "redis:***"),
            ("redis:/bob:secret@h", "redis:***"),
            ("redis://b@b:secret@h", "redis:***"),
            ("redis://b?b=secret", "redis://b?***"),
            ("redis://bob:se?cret@h", "redis:***"),
            ("redlock:redis://:secret@h", "redlock:***"),
            ("memory:y?password=1&a=2", "memory:y?***"),
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
            "x://bob%3Asecret@h",
            "x://bob%3asecret:x@h",
        ] {
            let error = read(bad).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{bad}");
            assert!(error.advice_text().is_some() && !error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_login_where_a_path_is_expected_is_refused() {
        for (url, fine) in [
            ("unix:/run/r.sock", true),
            ("unix:///run/r.sock", true),
            ("file:/home/bob@corp/locks", true),
            ("file:///home/bob@corp/locks", false),
            ("unix:bob:secret@h", false),
            ("memory://secret@h", false),
        ] {
            let checked = StoreUrl::parse(url).unwrap().without_login();
            assert_eq!(checked.is_ok(), fine, "{url}");
            assert!(checked.err().is_none_or(|e| !e.to_string().contains("secret")));
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
