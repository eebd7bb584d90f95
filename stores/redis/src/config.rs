//! From a URL to a store.

mod read;
mod server;

use std::fmt;
use std::time::Duration;

use leasehold_core::url::{StoreUrl, duration};
use leasehold_core::{Error, Kind, Result};

pub(crate) use read::Place;
pub use server::{Address, Server, Tls};

/// How long one command may take. Long enough for a failover that is noticed quickly, short against a usual lease.
const TIMEOUT: Duration = Duration::from_secs(3);

/// What the names of all keys and channels start with.
const PREFIX: &str = "leasehold:";

/// How long what remains of an idle lock is kept: its last token. After that, time has passed it.
const RETENTION: Duration = Duration::from_secs(24 * 3600);

/// How long a grant waits for replicas.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(1);

/// The parameters of a store, besides those of its servers.
const PARAMS: &[&str] = &["timeout", "prefix", "retention", "replicas", "replicas-timeout"];

/// What a Redis store needs to know.
///
/// ```
/// use std::time::Duration;
/// use leasehold_redis::Config;
/// let config = Config::parse("redis://bob:secret@db.example/2?timeout=500ms")?;
/// assert_eq!(config.timeout(), Duration::from_millis(500));
/// assert_eq!(config.url(), "redis://bob:***@db.example:6379/2?timeout=500ms");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub(crate) place: Place,
    timeout: Duration,
    prefix: String,
    retention: Duration,
    replicas: u32,
    replicas_timeout: Duration,
}

impl Config {
    /// One server. No replica has to have a grant; see [`with_replicas`](Config::with_replicas).
    pub fn single(server: Server) -> Self {
        Config::at(Place::One(server))
    }

    /// The master that these Sentinels call by this name. `server` says how to be let in at the master: its login,
    /// database and encryption; its address is not used. One replica has to have a grant.
    pub fn sentinel(sentinels: Vec<Server>, master: impl Into<String>, server: Server) -> Result<Self> {
        if sentinels.is_empty() {
            return Err(Error::new(Kind::Invalid, "no Sentinel is given").advice("give at least one"));
        }
        Ok(Config::at(Place::Sentinel { sentinels, master: master.into(), server }))
    }

    /// The cluster that these nodes are part of. One replica has to have a grant.
    pub fn cluster(nodes: Vec<Server>) -> Result<Self> {
        if nodes.is_empty() {
            return Err(
                Error::new(Kind::Invalid, "no node of the cluster is given").advice("give at least one")
            );
        }
        Ok(Config::at(Place::Cluster(nodes)))
    }

    fn at(place: Place) -> Self {
        // Whoever runs Sentinels or a cluster expects failovers, and a failover loses what no replica had.
        let replicas = match place {
            Place::One(_) => 0,
            Place::Sentinel { .. } | Place::Cluster(_) => 1,
        };
        Config {
            place,
            timeout: TIMEOUT,
            prefix: PREFIX.to_owned(),
            retention: RETENTION,
            replicas,
            replicas_timeout: REPLICAS_TIMEOUT,
        }
    }

    /// Reads a URL: see [`from_url`](Config::from_url).
    pub fn parse(url: &str) -> Result<Self> {
        Config::from_url(read::split(url)?)
    }

    /// Reads a URL. Its forms:
    ///
    /// - `redis://[user:password@]host[:port][/db]`
    /// - `unix:/path/to/socket`, with `?db=1`
    /// - `redis+sentinel://[user:password@]host1[:port],host2,…/master-name[/db]`, with `?sentinel-user=…` and
    ///   `?sentinel-password=…` for the Sentinels themselves
    /// - `redis+cluster://[user:password@]host1[:port],host2,…`
    /// - `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…`: encrypted, with `?ca=PATH`, `?cert=PATH`, `?key=PATH`
    ///
    /// `user`, `password` and `password-file` can also be parameters: others on this host can see the arguments of a
    /// program, but not what is in a file. The other parameters are `timeout`, `prefix`, `retention`, `replicas` and
    /// `replicas-timeout`: see the `with_…` method of that name.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        read::no_password_in_params(url.params.iter().map(|(key, _)| key.as_str()))?;
        let mut config = Config::at(read::place(&mut url)?);
        let mut known: Vec<&str> = PARAMS.iter().chain(read::SERVER_PARAMS).copied().collect();
        if matches!(config.place, Place::Sentinel { .. }) {
            known.extend(["sentinel-user", "sentinel-password"]);
        }
        if let Some(text) = url.take("timeout") {
            config.timeout = positive("timeout", &text)?;
        }
        if let Some(text) = url.take("prefix") {
            config = config.with_prefix(text)?;
        }
        if let Some(text) = url.take("retention") {
            config.retention = positive("retention", &text)?;
        }
        if let Some(text) = url.take("replicas") {
            config.replicas = text.parse().map_err(|_| {
                Error::new(Kind::Invalid, format!("replicas={text} is not a number"))
                    .advice("write 0, 1, 2, …")
            })?;
        }
        if let Some(text) = url.take("replicas-timeout") {
            config.replicas_timeout = positive("replicas-timeout", &text)?;
        }
        url.finish(&known)?;
        Ok(config)
    }

    /// How long one command may take. 3 s if it is not set.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What the names of all keys and channels start with. `leasehold:` if it is not set. Stores with different prefixes
    /// on one server don't see each other.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        // A hash tag in the prefix would put all locks of a cluster on one node.
        if prefix.contains(['{', '}', '\0', '\r', '\n']) || prefix.len() > 128 {
            return Err(Error::new(Kind::Invalid, format!("the prefix {prefix:?} can't be used"))
                .advice("give up to 128 bytes of text without braces"));
        }
        self.prefix = prefix;
        Ok(self)
    }

    /// How long what remains of an idle lock is kept. 24 h if it is not set.
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// How many replicas must have a grant before it counts. With 0, a failover can lose a lock that somebody holds.
    pub fn with_replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// How long a grant waits for replicas. 1 s if it is not set.
    pub fn with_replicas_timeout(mut self, timeout: Duration) -> Self {
        self.replicas_timeout = timeout;
        self
    }

    /// How long one command may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What the names of all keys and channels start with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// How long what remains of an idle lock is kept.
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// How many replicas must have a grant before it counts.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// How long a grant waits for replicas.
    pub fn replicas_timeout(&self) -> Duration {
        self.replicas_timeout
    }

    /// The number of the database: part of the names of channels, which all databases of a server share.
    pub fn db(&self) -> i64 {
        match &self.place {
            Place::One(server) | Place::Sentinel { server, .. } => server.db.into(),
            Place::Cluster(_) => 0,
        }
    }

    /// Whether this is a cluster.
    pub fn is_cluster(&self) -> bool {
        matches!(self.place, Place::Cluster(_))
    }

    /// The URL as it may be printed: no password in it.
    pub fn url(&self) -> String {
        let default = Config::at(self.place.clone());
        let mut params = Vec::new();
        let mut time = |key: &str, time: Duration, default: Duration| {
            if time != default {
                params.push(format!("{key}={}ms", time.as_millis()));
            }
        };
        time("timeout", self.timeout, default.timeout);
        time("retention", self.retention, default.retention);
        time("replicas-timeout", self.replicas_timeout, default.replicas_timeout);
        if self.prefix != default.prefix {
            params.push(format!("prefix={}", escape(&self.prefix)));
        }
        if self.replicas != default.replicas {
            params.push(format!("replicas={}", self.replicas));
        }
        let place = shown(&self.place);
        let first = if place.contains('?') { '&' } else { '?' };
        match params.is_empty() {
            true => place,
            false => format!("{place}{first}{}", params.join("&")),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.url()).finish()
    }
}

/// The part of a URL before the parameters of a store.
fn shown(place: &Place) -> String {
    let hosts = |servers: &[Server]| {
        servers.iter().map(|server| server.address.to_string()).collect::<Vec<_>>().join(",")
    };
    let scheme = |server: &Server| if server.tls.is_some() { "rediss" } else { "redis" };
    match place {
        Place::One(server) => server.to_string(),
        Place::Sentinel { sentinels, master, server } => {
            let (scheme, login) = (scheme(server), server::Shown(&server.login));
            let db = if server.db == 0 { String::new() } else { format!("/{}", server.db) };
            format!("{scheme}+sentinel://{login}{}/{}{db}", hosts(sentinels), escape(master))
        }
        Place::Cluster(nodes) => {
            let (scheme, login) = (scheme(&nodes[0]), server::Shown(&nodes[0].login));
            format!("{scheme}+cluster://{login}{}", hosts(nodes))
        }
    }
}

/// Escapes what would end a part of a URL.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '%' | '?' | '&' | '=' | '/' | '@' | '#' | ' ' => out.push_str(&format!("%{:02X}", c as u32)),
            c => out.push(c),
        }
        out
    })
}

fn positive(key: &str, text: &str) -> Result<Duration> {
    match duration(key, text)? {
        Duration::ZERO => {
            Err(Error::new(Kind::Invalid, format!("{key} is zero")).advice("write 500ms, 3s, 1h, …"))
        }
        time => Ok(time),
    }
}
