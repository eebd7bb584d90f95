//! From a URL to a store.

use std::fmt;
use std::time::Duration;

use leasehold_core::url::{StoreUrl, duration};
use leasehold_core::{Error, Kind, Result};
use leasehold_redis::config::Server;

/// How long one node may take to answer. Far below a usual lease, and long enough for nodes on two continents.
const TIMEOUT: Duration = Duration::from_millis(500);

/// What the names of all keys and channels start with.
const PREFIX: &str = "leasehold:redlock:";

/// The longest lease, if no other is configured: also how long a set stays closed if nobody is left who knows better.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(3600);

/// More are no safer, and every one of them is asked for every lock.
const MOST_NODES: usize = 15;

const PARAMS: &[&str] = &[
    "timeout",
    "prefix",
    "longest-lease",
    "first-use",
    "user",
    "password",
    "password-file",
    "db",
    "ca",
    "cert",
    "key",
];

/// What to do with nodes that have no trace of a lock, all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstUse {
    /// They are new, and can be used at once.
    #[default]
    Now,
    /// They may have lost all their data at once: nobody holds before the longest lease has passed.
    Wait,
}

/// What a Redlock store needs to know.
///
/// ```
/// use leasehold_redlock::Config;
/// let config = Config::parse("redlock://bob:secret@a,b,c:7000?timeout=200ms")?;
/// assert_eq!(config.url(), "redlock://bob:***@a:6379,b:6379,c:7000?timeout=200ms");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub(crate) servers: Vec<Server>,
    timeout: Duration,
    prefix: String,
    longest_lease: Duration,
    first_use: FirstUse,
}

impl Config {
    /// These nodes: masters that know nothing of each other. At least three; an odd number, because one more node makes an even
    /// number that can bear no more losses, only fewer.
    pub fn new(servers: Vec<Server>) -> Result<Self> {
        let bad = |what: String, advice: &str| Err(Error::new(Kind::Invalid, what).advice(advice));
        match servers.len() {
            0..3 => {
                let what = format!("Redlock needs at least 3 nodes, and got {}", servers.len());
                return bad(what, "for one server use redis://; two are no quorum when one of them is down");
            }
            n if n > MOST_NODES => {
                return bad(format!("{n} nodes are too many"), "5 can bear the loss of 2; give up to 15");
            }
            _ => {}
        }
        for (n, server) in servers.iter().enumerate() {
            if servers[..n].iter().any(|other| other.address() == server.address()) {
                let what = format!("the node {} is given twice", server.address());
                return bad(what, "a quorum counts servers, so each must be another one");
            }
        }
        Ok(Config {
            servers,
            timeout: TIMEOUT,
            prefix: PREFIX.to_owned(),
            longest_lease: LONGEST_LEASE,
            first_use: FirstUse::default(),
        })
    }

    /// Reads a URL: see [`from_url`](Config::from_url).
    pub fn parse(url: &str) -> Result<Self> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    /// Reads a URL. Its forms:
    ///
    /// - `redlock://[user:password@]host[:port],host,host[/db]`: the same login and database on every node;
    /// - `redlocks://…`: the same, encrypted, with `?ca=PATH`, `?cert=PATH`, `?key=PATH`;
    /// - `redlock:URL,URL,URL`: each node with its own `redis://`, `rediss://` or `unix:` URL.
    ///
    /// Parameters: `timeout`, `prefix`, `longest-lease`, `first-use` (`now` or `wait`): see the method of that name. `user`,
    /// `password` and `password-file` are those of every node.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        let servers = match url.rest.strip_prefix("//") {
            Some(_) => same_login(&mut url)?,
            None => url.rest.split(',').map(Server::parse).collect::<Result<_>>()?,
        };
        let mut config = Config::new(servers)?;
        if let Some(text) = url.take("timeout") {
            config.timeout = positive("timeout", &text)?;
        }
        if let Some(text) = url.take("prefix") {
            config.prefix = text;
        }
        if let Some(text) = url.take("longest-lease") {
            config.longest_lease = positive("longest-lease", &text)?;
        }
        if let Some(text) = url.take("first-use") {
            config.first_use = match text.as_str() {
                "now" => FirstUse::Now,
                "wait" => FirstUse::Wait,
                _ => {
                    let what = "the first-use of the URL is neither now nor wait";
                    return Err(
                        Error::new(Kind::Invalid, what).advice("write first-use=wait, or leave it away")
                    );
                }
            };
        }
        url.finish(PARAMS)?;
        Ok(config)
    }

    /// How long one node may take to answer. 500 ms if it is not set. It should be far below the lease: an attempt is over
    /// when the slowest node that is needed has answered or its time is over.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What the names of all keys and channels start with. `leasehold:redlock:` if it is not set.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The longest lease that can be asked for. 1 hour if it is not set; all clients should have the same. If all nodes lose their data
    /// and that is noticed, nobody gets a lock for so long. (As long as one node or one client is left that knows the set, it is
    /// the longest lease that was really granted.)
    pub fn with_longest_lease(mut self, longest: Duration) -> Self {
        self.longest_lease = longest;
        self
    }

    /// What to do with nodes that have no trace of a lock, all of them.
    pub fn with_first_use(mut self, first_use: FirstUse) -> Self {
        self.first_use = first_use;
        self
    }

    /// How long one node may take to answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What the names of all keys and channels start with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The longest lease that can be asked for.
    pub fn longest_lease(&self) -> Duration {
        self.longest_lease
    }

    /// What to do with nodes that have no trace of a lock, all of them.
    pub fn first_use(&self) -> FirstUse {
        self.first_use
    }

    /// The nodes as they may be printed.
    pub fn nodes(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address().to_string()).collect()
    }

    /// The URL as it may be printed: no password in it.
    pub fn url(&self) -> String {
        let mut url = self.shown();
        let mut first = if url.contains('?') { '&' } else { '?' };
        let mut add = |key: &str, value: String| {
            url.push_str(&format!("{first}{key}={value}"));
            first = '&';
        };
        if self.timeout != TIMEOUT {
            add("timeout", format!("{}ms", self.timeout.as_millis()));
        }
        if self.prefix != PREFIX {
            add("prefix", self.prefix.replace('%', "%25").replace('&', "%26").replace('#', "%23"));
        }
        if self.longest_lease != LONGEST_LEASE {
            add("longest-lease", format!("{}ms", self.longest_lease.as_millis()));
        }
        if self.first_use == FirstUse::Wait {
            add("first-use", "wait".to_owned());
        }
        url
    }

    /// The short form if all nodes are alike.
    fn shown(&self) -> String {
        let split = |server: &Server| {
            let (shown, address) = (server.to_string(), server.address().to_string());
            let at = shown.find(&address)?;
            let scheme = shown[..at].strip_prefix("redis://").map(|login| ("redlock", login.to_owned()));
            let scheme =
                scheme.or_else(|| shown[..at].strip_prefix("rediss://").map(|l| ("redlocks", l.to_owned())));
            Some((scheme?, shown[at + address.len()..].to_owned()))
        };
        let parts: Option<Vec<_>> = self.servers.iter().map(split).collect();
        match parts {
            Some(parts) if parts.iter().all(|part| *part == parts[0]) => {
                let ((scheme, login), tail) = &parts[0];
                format!("{scheme}://{login}{}{tail}", self.nodes().join(","))
            }
            _ => {
                let all: Vec<String> = self.servers.iter().map(Server::to_string).collect();
                format!("redlock:{}", all.join(","))
            }
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.url()).finish()
    }
}

/// Nodes that have all but the host in common.
fn same_login(url: &mut StoreUrl) -> Result<Vec<Server>> {
    let rest = url.rest.trim_start_matches('/').to_owned();
    let scheme = if url.scheme == "redlocks" { "rediss" } else { "redis" };
    // A password may hold an unescaped '@'.
    let (login, rest) = rest.rsplit_once('@').map_or(("", rest.as_str()), |(login, rest)| (login, rest));
    let (hosts, db) = rest.split_once('/').unwrap_or((rest, ""));
    let at = if login.is_empty() { "" } else { "@" };
    let mut left = Vec::new();
    let servers = hosts.split(',').map(|host| {
        let rest = format!("//{login}{at}{host}/{db}");
        let mut one = url.with_place(scheme, rest);
        let server = Server::take_from(&mut one)?;
        left = one.params;
        Ok(server)
    });
    let servers = servers.collect::<Result<Vec<_>>>()?;
    url.params = left;
    Ok(servers)
}

fn positive(key: &str, text: &str) -> Result<Duration> {
    match duration(key, text)? {
        Duration::ZERO => {
            Err(Error::new(Kind::Invalid, format!("{key} is zero")).advice("write 500ms, 3s, 1h, …"))
        }
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_shown_without_its_password() {
        for (url, shown) in [
            ("redlock://a,b,c", "redlock://a:6379,b:6379,c:6379"),
            ("redlock://a:1,b:2,c:3/4", "redlock://a:1,b:2,c:3/4"),
            ("redlock://u:p@w@a,b,c", "redlock://u:***@a:6379,b:6379,c:6379"),
            (
                "redlock://a,b,c?password=x&first-use=wait",
                "redlock://:***@a:6379,b:6379,c:6379?first-use=wait",
            ),
            (
                "redlock://a,b,c?longest-lease=5m&prefix=x:",
                "redlock://a:6379,b:6379,c:6379?prefix=x:&longest-lease=300000ms",
            ),
            ("redlock:redis://a,redis://:x@b,unix:/c", "redlock:redis://a:6379,redis://:***@b:6379,unix:/c"),
            #[cfg(feature = "tls")]
            ("redlocks://a,b,c", "redlocks://a:6379,b:6379,c:6379"),
        ] {
            assert_eq!(Config::parse(url).unwrap().url(), shown);
        }
    }

    #[test]
    fn too_few_nodes_and_the_same_node_twice_are_refused() {
        for url in [
            "redlock://a",
            "redlock://a,b",
            "redlock://a,b,a:6379",
            "redlock://a,b,c?lease=3s",
            "redlock://a,,c",
        ] {
            let e = Config::parse(url).unwrap_err();
            assert_eq!(e.kind(), Kind::Invalid, "{url}: {e}");
        }
        assert!(Config::parse("redlock://a,b").unwrap_err().to_string().contains("at least 3"));
    }
}
