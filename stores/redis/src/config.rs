//! From a URL to a store.

mod read;
mod server;

use std::fmt;
use std::time::Duration;

use leasehold_core::url::{StoreUrl, duration};
use leasehold_core::{Error, Kind, Result};

pub(crate) use read::Place;
pub use server::{Address, Server, Tls};
use server::{escape, password_file, with_params};

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
        Config::from_url(StoreUrl::parse(url)?)
    }

    /// Reads a URL. Its forms:
    ///
    /// - `redis://[user:password@]host[:port][/db]`
    /// - `unix:/path/to/socket`, with `?db=1`
    /// - `redis+sentinel://[user:password@]host1[:port],host2,…/master-name[/db]`, with `?sentinel-user=…` and
    ///   `?sentinel-password=…` or `?sentinel-password-file=PATH` for the Sentinels themselves
    /// - `redis+cluster://[user:password@]host1[:port],host2,…`
    /// - `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…`: encrypted, with `?ca=PATH`, `?cert=PATH`, `?key=PATH`
    ///
    /// `user`, `password` and `password-file` can also be parameters: others on this host can see the arguments of a
    /// program, but not what is in a file. The file is read for every connection, so a password can be replaced. The other parameters are `timeout`, `prefix`, `retention`, `replicas` and
    /// `replicas-timeout`: see the `with_…` method of that name.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        let mut config = Config::at(read::place(&mut url)?);
        let mut known: Vec<&str> = PARAMS.iter().chain(read::SERVER_PARAMS).copied().collect();
        if matches!(config.place, Place::Sentinel { .. }) {
            known.extend(["sentinel-user", "sentinel-password", "sentinel-password-file"]);
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
                Error::new(Kind::Invalid, "the replicas of the URL are not a number")
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
            return Err(Error::new(Kind::Invalid, "the prefix can't be used")
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
        self.like().db.into()
    }

    /// Whether this is a cluster.
    pub fn is_cluster(&self) -> bool {
        matches!(self.place, Place::Cluster(_))
    }

    /// The servers that are connected to first, without those that are sockets of this host.
    pub(crate) fn hosts(&self) -> Vec<(String, u16)> {
        let servers = match &self.place {
            Place::One(server) => std::slice::from_ref(server),
            Place::Sentinel { sentinels: servers, .. } | Place::Cluster(servers) => servers,
        };
        let host = |server: &Server| match &server.address {
            Address::Tcp { host, port } => Some((host.clone(), *port)),
            Address::Unix(_) => None,
        };
        servers.iter().filter_map(host).collect()
    }

    /// Whether connections are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.like().tls.is_some()
    }

    /// The URL as it may be printed: no password in it.
    pub fn url(&self) -> String {
        let default = Config::at(self.place.clone());
        let mut params = self.like().params();
        if let Place::Sentinel { sentinels, .. } = &self.place {
            let login = &sentinels[0].login;
            params.extend(login.user.iter().map(|user| format!("sentinel-user={}", escape(user))));
            params.extend(password_file(login, "sentinel-"));
        }
        for (name, time, usual) in [
            ("timeout", self.timeout, default.timeout),
            ("retention", self.retention, default.retention),
            ("replicas-timeout", self.replicas_timeout, default.replicas_timeout),
        ] {
            params.extend((time != usual).then(|| format!("{name}={}ms", time.as_millis())));
        }
        params.extend((self.prefix != default.prefix).then(|| format!("prefix={}", escape(&self.prefix))));
        params.extend((self.replicas != default.replicas).then(|| format!("replicas={}", self.replicas)));
        with_params(self.shown_place(), &params)
    }

    /// A server that stands for all: its login, database and encryption.
    fn like(&self) -> &Server {
        match &self.place {
            Place::One(server) | Place::Sentinel { server, .. } => server,
            Place::Cluster(nodes) => &nodes[0],
        }
    }

    /// The URL up to the parameters.
    fn shown_place(&self) -> String {
        let hosts = |servers: &[Server]| {
            servers.iter().map(|server| server.address.to_string()).collect::<Vec<_>>().join(",")
        };
        let like = self.like();
        let (scheme, login) = (like.scheme(), like.shown_login());
        match &self.place {
            Place::One(server) => server.place(),
            Place::Sentinel { sentinels, master, server } => {
                let db = if server.db == 0 { String::new() } else { format!("/{}", server.db) };
                format!("{scheme}+sentinel://{login}{}/{}{db}", hosts(sentinels), escape(master))
            }
            Place::Cluster(nodes) => format!("{scheme}+cluster://{login}{}", hosts(nodes)),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.url()).finish()
    }
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

    fn bad(url: &str) -> Error {
        let e = match Config::parse(url) {
            Ok(config) => panic!("{url} was read as {config:?}"),
            Err(e) => e,
        };
        assert_eq!(e.kind(), Kind::Invalid, "{e}");
        assert!(e.advice_text().is_some(), "{e}");
        for shown in [e.to_string(), format!("{e:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        e
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        for (url, printed) in [
            ("redis://h", "redis://h:6379"),
            ("redis://h:7/0", "redis://h:7"),
            ("redis://[::1]:7/3", "redis://[::1]:7/3"),
            (
                concat!("redis://bob@h?password-file=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
                &format!(
                    "redis://bob@h:6379?password-file={}%2FCargo.toml",
                    env!("CARGO_MANIFEST_DIR").replace('/', "%2F")
                ),
            ),
            ("redis://[fe80::1]", "redis://[fe80::1]:6379"),
            ("redis://h?db=4&timeout=1s&replicas=0", "redis://h:6379/4?timeout=1000ms"),
            ("redis://h?prefix=a%26b:&replicas=2", "redis://h:6379?prefix=a%26b%3A&replicas=2"),
            ("unix:/run/r.sock?db=1", "unix:/run/r.sock?db=1"),
            ("redis+unix:///run/r.sock", "unix:/run/r.sock"),
            ("redis+sentinel://a,b:1/my%2Fmaster/2", "redis+sentinel://a:26379,b:1/my%2Fmaster/2"),
            ("redis+cluster://a,b:1?replicas=0", "redis+cluster://a:6379,b:1?replicas=0"),
            (
                "redis+cluster://a?retention=1h&replicas-timeout=2s",
                "redis+cluster://a:6379?retention=3600000ms&replicas-timeout=2000ms",
            ),
        ] {
            let config = Config::parse(url).unwrap();
            assert_eq!(config.url(), printed);
            assert_eq!(Config::parse(printed).unwrap(), config);
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn certificates_are_part_of_the_url() {
        let url = "rediss+cluster://h:1?ca=%2Fa.pem&cert=%2Fb.pem&key=%2Fc.pem";
        let config = Config::parse(url).unwrap();
        assert_eq!(config.url(), url);
        assert_eq!(config.like().tls, Some(Tls::new().with_ca("/a.pem").with_identity("/b.pem", "/c.pem")));
        for url in ["rediss://h?cert=/a", "rediss://h?key=/a", "redis://h?ca=/a", "unix:/s?ca=/a"] {
            bad(url);
        }
    }

    #[test]
    fn logins_are_decoded_and_never_shown() {
        let login = |url: &str| {
            let config = Config::parse(url).unwrap();
            for shown in [config.url(), format!("{config:?}"), format!("{:?}", config.place)] {
                assert!(!shown.contains("hunter2"), "{shown}");
            }
            let login = config.like().login.clone();
            (
                login.user.unwrap_or_default(),
                login.password.map_or(String::new(), |word| word.read().unwrap().reveal().to_owned()),
            )
        };
        let pair = |user: &str, word: &str| (user.to_owned(), word.to_owned());
        assert_eq!(login("redis://:hunter2@h"), pair("", "hunter2"));
        assert_eq!(login("redis://b%40b:hunter2%3F%2f@h"), pair("b@b", "hunter2?/"));
        assert_eq!(login("redis://bob:hunter2@@/x@h/1"), pair("bob", "hunter2@@/x"));
        assert_eq!(login("redis://bob:hunter2:x@h"), pair("bob", "hunter2:x"));
        assert_eq!(login("redis://bob@h?password=hunter2"), pair("bob", "hunter2"));
        assert_eq!(
            login("redis+sentinel://bob:hunter2@h/m?sentinel-password=hunter2"),
            pair("bob", "hunter2")
        );
        assert_eq!(login("redis+cluster://bob:hunter2@h,i"), pair("bob", "hunter2"));
        assert_eq!(login("unix:/s?user=bob&password=hunter2"), pair("bob", "hunter2"));
    }

    #[test]
    fn who_runs_sentinels_or_a_cluster_expects_failovers() {
        let replicas = |url: &str| Config::parse(url).unwrap().replicas();
        assert_eq!(
            ["redis://h", "unix:/s", "redis+sentinel://h/m", "redis+cluster://h"].map(replicas),
            [0, 0, 1, 1]
        );
    }

    #[test]
    fn sentinels_have_a_login_of_their_own() {
        let config =
            Config::parse("redis+sentinel://bob:one@h/m?sentinel-user=ann&sentinel-password=two").unwrap();
        let Place::Sentinel { sentinels, server, .. } = &config.place else { panic!("{config:?}") };
        let word =
            |server: &Server| server.login.password.clone().unwrap().read().unwrap().reveal().to_owned();
        assert_eq!((word(server), word(&sentinels[0])), ("one".to_owned(), "two".to_owned()));
        assert_eq!(sentinels[0].login.user.as_deref(), Some("ann"));
    }

    #[test]
    fn bad_urls_are_refused_with_advice() {
        for url in [
            "redis:h",
            "redis://",
            "redis://:hunter2@",
            "redis://h:x",
            "redis://h:99999",
            "redis://a:1:2",
            "redis://[::1",
            "redis://[::1]x",
            "redis://h/x",
            "redis://h/-1",
            "redis://h/1?db=2",
            "redis://a,b",
            "redis://h?timeout=0s",
            "redis://h?timeout=5",
            "redis://h?replicas=x",
            "redis://h?nonsense=1",
            "redis://hunter2@h",
            "redis://u%3Ahunter2@h",
            "redis://h?user=hunter2",
            "redis+sentinel://h/m?sentinel-user=hunter2",
            "unix:/run/r.sock?user=hunter2",
            "redis://u@h?hunter2=1",
            "hunter2:x@h",
            "redis://h?prefix={a}",
            "redis://h?sentinel-password=hunter2",
            "redis://:hunter2@h?password=hunter2",
            "redis://u:hunter2%@h",
            "redis://h?password=hunter2%",
            "redis://u:x?hunter2@h",
            "redis://u:x?a=1&hunter2@h",
            "redis+sentinel://h",
            "redis+sentinel://h/",
            "redis+cluster://h/1",
            "unix:",
            "unix:relative",
            "http://h",
        ] {
            bad(url);
        }
    }
}
