//! What the URLs of all stores share: `scheme:rest?key=value&key=value`.

use std::time::Duration;

use crate::{Error, Kind, Result};

/// A store URL, split. Not a general URL parser: each store reads its own `rest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    /// What stands before the first colon, in lower case.
    pub scheme: String,
    /// What stands between the colon and the question mark.
    pub rest: String,
    /// The parameters, in order, percent-decoded.
    pub params: Vec<(String, String)>,
}

impl StoreUrl {
    /// Splits a URL.
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |what: String| {
            Error::new(Kind::Invalid, what).advice("a store is given as scheme:rest, as in file:/run/locks")
        };
        let (scheme, rest) = url
            .split_once(':')
            .ok_or_else(|| bad(format!("the store URL {:?} has no scheme", redact(url))))?;
        let sane =
            !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'-');
        if !sane {
            return Err(bad(format!("the store URL {:?} has no scheme", redact(url))));
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(r, q)| (r, Some(q)));
        let mut params = Vec::new();
        for pair in query.unwrap_or("").split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            params.push((percent_decode(key)?, percent_decode(value)?));
        }
        Ok(StoreUrl { scheme: scheme.to_ascii_lowercase(), rest: rest.to_owned(), params })
    }

    /// Takes a parameter out, so that [`finish`](StoreUrl::finish) can name those that nobody knew.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.params.iter().position(|(k, _)| k == key)?;
        Some(self.params.remove(at).1)
    }

    /// Refuses what is left over: a mistyped parameter must not be ignored in silence.
    pub fn finish(self, known: &[&str]) -> Result<()> {
        match self.params.first() {
            None => Ok(()),
            Some((key, _)) => {
                let known = if known.is_empty() {
                    "it takes none".to_owned()
                } else {
                    format!("it knows {}", known.join(", "))
                };
                let what = format!("{}: URLs have no parameter {key:?}", self.scheme);
                Err(Error::new(Kind::Invalid, what).advice(known))
            }
        }
    }
}

/// The URL as it may be printed: a password becomes `***`.
///
/// ```
/// use leasehold_core::url::redact;
/// assert_eq!(redact("redis://bob:secret@host:6379/0"), "redis://bob:***@host:6379/0");
/// assert_eq!(redact("file:/run/locks"), "file:/run/locks");
/// ```
pub fn redact(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return redact_params(url) };
    // The last '@' before the path ends the user part: a password may hold an unescaped '@'.
    let authority_end = rest.find('/').filter(|slash| !rest[*slash..].contains('@')).unwrap_or(rest.len());
    let redacted = match rest[..authority_end].rfind('@') {
        None => rest.to_owned(),
        Some(at) => {
            let user = rest[..at].split_once(':').map_or(&rest[..at], |(user, _)| user);
            let password = if rest[..at].contains(':') { ":***" } else { "" };
            format!("{user}{password}{}", &rest[at..])
        }
    };
    redact_params(&format!("{scheme}://{redacted}"))
}

fn redact_params(url: &str) -> String {
    let Some((head, query)) = url.split_once('?') else { return url.to_owned() };
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((key, _))
                if key.to_ascii_lowercase().contains("pass")
                    || key.to_ascii_lowercase().contains("secret") =>
            {
                format!("{key}=***")
            }
            _ => pair.to_owned(),
        })
        .collect();
    format!("{head}?{}", pairs.join("&"))
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
        Error::new(Kind::Invalid, format!("{key}={text} is not a duration"))
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
            ("x:y?password=1&a=2", "x:y?password=***&a=2"),
        ] {
            assert_eq!(redact(url), shown);
        }
        for broken in ["://bob:secret@h", "redis://h?password=secret%", "redis://h?password=secret%zz"] {
            assert!(!StoreUrl::parse(broken).unwrap_err().to_string().contains("secret"), "{broken}");
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
