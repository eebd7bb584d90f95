//! From a URL to a store.

use std::fmt;
use std::time::Duration;

use leasehold_core::url::{StoreUrl, duration, percent_decode};
use leasehold_core::{Error, Kind, Result};
use leasehold_net::Password;

/// ZooKeeper's port, if none is given.
const PORT: u16 = 2181;

/// How long one request may take. Long enough for an election that is quick, short against a usual lease.
const TIMEOUT: Duration = Duration::from_secs(3);

/// How long a session outlives its client: as long as a lease of the other stores. A server with the usual bounds gives up to 40 s.
const SESSION: Duration = Duration::from_secs(30);

/// The node that all locks are in.
const ROOT: &str = "leasehold";

const PARAMS: &[&str] =
    &["session", "timeout", "root", "acl", "auth", "user", "password", "password-file", "ca", "cert", "key"];

/// What a ZooKeeper store needs to know.
///
/// ```
/// use std::time::Duration;
/// use leasehold_zookeeper::Config;
/// let config = Config::parse("zk://bob:secret@zk1,zk2:2182/app?session=6s")?;
/// assert_eq!(config.session(), Duration::from_secs(6));
/// assert_eq!(config.url(), "zookeeper://bob:***@zk1:2181,zk2:2182/app?session=6s");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    hosts: Vec<(String, u16)>,
    chroot: String,
    session: Duration,
    timeout: Duration,
    root: String,
    acl: Acl,
    login: Option<Login>,
    tls: Option<Tls>,
}

/// Who may touch the nodes that this store makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Acl {
    /// Everybody: `acl=open`. ZooKeeper's own default, and this store's.
    #[default]
    Open,
    /// Whoever is logged in as the same user: `acl=creator`. All clients of a lock need the same login.
    Creator,
    /// As `Creator`, and everybody may look: `acl=creator-read`.
    CreatorAndReaders,
}

/// A user and how it is shown to the server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: Password,
    pub(crate) scheme: Scheme,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Scheme {
    /// ZooKeeper's `digest`: the server believes it and compares it with the ACLs of nodes.
    #[default]
    Digest,
    /// SASL with DIGEST-MD5: the server checks the password.
    Sasl,
}

/// Files of an encrypted connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Who may sign the server's certificate.
    pub(crate) ca: String,
    /// What we show to the server: certificate and key.
    pub(crate) identity: Option<(String, String)>,
}

impl Config {
    /// Servers at these addresses, with the usual options.
    pub fn new(hosts: impl IntoIterator<Item = (String, u16)>) -> Result<Self> {
        let hosts: Vec<_> = hosts.into_iter().collect();
        if hosts.is_empty() {
            return Err(bad("the URL names no server", "write zookeeper://host:port,host:port"));
        }
        Ok(Config {
            hosts,
            chroot: String::new(),
            session: SESSION,
            timeout: TIMEOUT,
            root: ROOT.to_owned(),
            acl: Acl::Open,
            login: None,
            tls: None,
        })
    }

    /// Reads a URL: see [`from_url`](Config::from_url).
    pub fn parse(url: &str) -> Result<Self> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    /// Reads a URL: `zookeeper://[user:password@]host[:port],host…[/chroot]`, or `zk://…`; `zookeeper+tls://…` and
    /// `zk+tls://…` encrypt, with `?ca=PATH`, `?cert=PATH` and `?key=PATH`.
    ///
    /// `user`, `password` and `password-file` can also be parameters: others on this host can see the arguments of a
    /// program, but not what is in a file. The file is read for every session. `auth=digest` (the usual) or `auth=sasl` says how they are shown. The other
    /// parameters are `session`, `timeout`, `root` and `acl`: see the `with_…` method of that name.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        let place = url.authority()?;
        let hosts = place.hosts.iter().map(|host| (host.name.clone(), host.port.unwrap_or(PORT)));
        let mut config = Config::new(hosts)?.with_chroot(&place.path)?;
        config.login = read_login(leasehold_net::Login::of(&place), &mut url)?;
        if url.scheme.ends_with("+tls") {
            config.tls = Some(read_tls(&mut url)?);
        }
        if let Some(text) = url.take("session") {
            config.session = positive("session", &text)?;
        }
        if let Some(text) = url.take("timeout") {
            config.timeout = positive("timeout", &text)?;
        }
        if let Some(text) = url.take("root") {
            config = config.with_root(text)?;
        }
        match url.take("acl").as_deref() {
            None | Some("open") => {}
            Some("creator") => config = config.with_acl(Acl::Creator),
            Some("creator-read") => config = config.with_acl(Acl::CreatorAndReaders),
            Some(_) => {
                return Err(bad("the acl of the URL is not known", "write open, creator or creator-read"));
            }
        }
        if config.acl != Acl::Open && config.login.is_none() {
            return Err(bad(
                "an ACL of the creator needs a user",
                "write zookeeper://user:password@host or acl=open",
            ));
        }
        url.finish(PARAMS)?;
        Ok(config)
    }

    /// The node under which all others are, as in ZooKeeper's own connect strings. It must exist.
    pub fn with_chroot(mut self, chroot: &str) -> Result<Self> {
        let chroot = percent_decode(chroot.trim_matches('/'))?;
        if chroot.split('/').any(|part| !chroot.is_empty() && !is_node(part)) {
            return Err(bad("what follows the host is not a path of nodes", "write zookeeper://host/a/b"));
        }
        self.chroot = chroot;
        Ok(self)
    }

    /// How long a session outlives its client: after this time (30 s if it is not set) what a crashed client held goes to
    /// others. The server has bounds for it.
    pub fn with_session(mut self, session: Duration) -> Self {
        self.session = session;
        self
    }

    /// How long one request may take. 3 s if it is not set.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The node that all locks are in, `leasehold` if it is not set. Stores with different ones don't see each other.
    pub fn with_root(mut self, root: impl Into<String>) -> Result<Self> {
        self.root = root.into();
        if !is_node(&self.root) || self.root == "zookeeper" {
            return Err(bad("the root is not the name of a node", "write a plain name, as in root=locks"));
        }
        Ok(self)
    }

    /// Who may touch the nodes that are made.
    pub fn with_acl(mut self, acl: Acl) -> Self {
        self.acl = acl;
        self
    }

    /// How long a session should outlive its client.
    pub fn session(&self) -> Duration {
        self.session
    }

    /// How long one request may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The path of the node that all locks are in, below the chroot.
    pub fn root(&self) -> String {
        format!("/{}", self.root)
    }

    /// The same, without its slash.
    pub(crate) fn root_name(&self) -> &str {
        &self.root
    }

    pub(crate) fn acl(&self) -> Acl {
        self.acl
    }

    pub(crate) fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(crate) fn chroot(&self) -> &str {
        &self.chroot
    }

    pub(crate) fn hosts(&self) -> &[(String, u16)] {
        &self.hosts
    }

    /// `host:port,host:port`
    pub(crate) fn addresses(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(|(host, port)| shown(host, *port)).collect();
        hosts.join(",")
    }

    /// As ZooKeeper's clients write it.
    pub(crate) fn connect_string(&self) -> String {
        self.with_chroot_at_end(self.addresses())
    }

    /// The same with so many copies of all addresses.
    pub(crate) fn connect_string_times(&self, copies: usize) -> String {
        self.with_chroot_at_end(vec![self.addresses(); copies].join(","))
    }

    fn with_chroot_at_end(&self, addresses: String) -> String {
        match self.chroot.as_str() {
            "" => addresses,
            chroot => format!("{addresses}/{chroot}"),
        }
    }

    /// The URL as it may be printed: no password in it.
    pub fn url(&self) -> String {
        let tls = if self.tls.is_some() { "+tls" } else { "" };
        let login = self.login.as_ref().map_or(String::new(), |login| match &login.password {
            Password::Given(_) => format!("{}:***@", escape(&login.user)),
            Password::File(_) => format!("{}@", escape(&login.user)),
        });
        let mut params = Vec::new();
        if let Some(Password::File(path)) = self.login.as_ref().map(|login| &login.password) {
            params.push(format!("password-file={}", escape(&path.to_string_lossy())));
        }
        let time = |d: Duration| match d.subsec_millis() {
            0 => format!("{}s", d.as_secs()),
            _ => format!("{}ms", d.as_millis()),
        };
        if self.session != SESSION {
            params.push(format!("session={}", time(self.session)));
        }
        if self.timeout != TIMEOUT {
            params.push(format!("timeout={}", time(self.timeout)));
        }
        if self.root != ROOT {
            params.push(format!("root={}", self.root));
        }
        match self.acl {
            Acl::Open => {}
            Acl::Creator => params.push("acl=creator".into()),
            Acl::CreatorAndReaders => params.push("acl=creator-read".into()),
        }
        if self.login.as_ref().is_some_and(|login| login.scheme == Scheme::Sasl) {
            params.push("auth=sasl".into());
        }
        let query = if params.is_empty() { String::new() } else { format!("?{}", params.join("&")) };
        format!("zookeeper{tls}://{login}{}{query}", self.connect_string())
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.url()).finish()
    }
}

fn bad(what: impl Into<String>, advice: &str) -> Error {
    Error::new(Kind::Invalid, what).advice(advice)
}

fn positive(key: &str, text: &str) -> Result<Duration> {
    let time = duration(key, text)?;
    if time.is_zero() {
        return Err(bad(format!("the {key} of the URL is no time at all"), "write 500ms, 10s or 2m"));
    }
    // The protocol has 31 bits of milliseconds for it.
    if time > Duration::from_secs(24 * 3600) {
        return Err(bad(format!("the {key} of the URL is longer than a day"), "write 500ms, 10s or 2m"));
    }
    Ok(time)
}

/// Escapes what would end a part of a URL.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '%' | '?' | '&' | '#' | '@' | ':' | '/' | ' ' => out.push_str(&format!("%{:02X}", c as u32)),
            c => out.push(c),
        }
        out
    })
}

fn shown(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn is_node(text: &str) -> bool {
    let sane = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '+' | '=' | '@' | ' ');
    !text.is_empty() && !matches!(text, "." | "..") && text.chars().all(sane)
}

fn read_login(inline: leasehold_net::Login, url: &mut StoreUrl) -> Result<Option<Login>> {
    let given = inline.with_params(url, "")?;
    let scheme = match url.take("auth").as_deref() {
        None | Some("digest") => Scheme::Digest,
        Some("sasl") => Scheme::Sasl,
        Some(_) => return Err(bad("the auth of the URL is not known", "write digest or sasl")),
    };
    match (given.user, given.password) {
        (None, None) if scheme == Scheme::Sasl => {
            Err(bad("auth=sasl needs a user", "write zookeeper://user:password@host"))
        }
        (None, None) => Ok(None),
        (Some(user), Some(password)) if !user.is_empty() && !user.contains(':') => {
            Ok(Some(Login { user, password, scheme }))
        }
        _ => Err(bad("a login needs a user and a password", "write zookeeper://user:password@host")),
    }
}

fn read_tls(url: &mut StoreUrl) -> Result<Tls> {
    if cfg!(not(feature = "tls")) {
        return Err(Error::new(Kind::Refused, "this program was built without encryption for ZooKeeper")
            .advice("build it with the feature zookeeper-tls"));
    }
    let identity = match (url.take("cert"), url.take("key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => {
            return Err(bad("a certificate needs its key, and a key its certificate", "give cert= and key="));
        }
    };
    let ca = url.take("ca").ok_or_else(|| {
        bad(
            "an encrypted connection needs to know who may sign the server's certificate",
            "give ca=PATH, a PEM file; ca=/etc/ssl/certs/ca-certificates.crt are the system's on many systems",
        )
    })?;
    Ok(Tls { ca, identity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown_without_passwords() {
        for (url, shown) in [
            ("zookeeper://h", "zookeeper://h:2181"),
            ("zk://h1:1,h2,h3:3/", "zookeeper://h1:1,h2:2181,h3:3"),
            ("zk://h/a/b?session=900ms&timeout=1s", "zookeeper://h:2181/a/b?session=900ms&timeout=1s"),
            ("zk://[::1]:7/a", "zookeeper://[::1]:7/a"),
            (
                "zk://bob:s%40c%2Fret@h?acl=creator&auth=sasl",
                "zookeeper://bob:***@h:2181?acl=creator&auth=sasl",
            ),
            ("zk://h?user=bob&password=secret&root=x", "zookeeper://bob:***@h:2181?root=x"),
        ] {
            let config = Config::parse(url).unwrap();
            assert_eq!(config.url(), shown);
            assert!(!format!("{config:?}").contains("ret"));
        }
    }

    #[test]
    fn bad_urls_are_refused_with_advice_and_without_passwords() {
        for url in [
            "zookeeper://",
            "zookeeper://,",
            "zk://h:0",
            "zk://h:99999",
            "zk://h:x",
            "zk://[::1",
            "zk://h o",
            "zk://h/a//b",
            "zk://h/../b",
            "zk://h/a\u{1}",
            "zk://h?session=0s",
            "zk://h?session=5",
            "zk://h?session=25h",
            "zk://h?root=a/b",
            "zk://h?root=zookeeper",
            "zk://h?root=",
            "zk://h?acl=all",
            "zk://h?acl=creator",
            "zk://h?auth=sasl",
            "zk://h?auth=kerberos",
            "zk://bob@h",
            "zk://:secret@h",
            "zk://h?password=secret",
            "zk://bob:secret?@h",
            "zk://bob:secret%zz@h",
            "zk://bob:secret@h?password-file=/no/such/file",
            "zk://h?sesion=3s",
        ] {
            let error = Config::parse(url).expect_err(url);
            assert_eq!(error.kind(), Kind::Invalid, "{url}: {error}");
            assert!(error.advice_text().is_some(), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn encryption_that_was_not_built_is_refused() {
        let error = Config::parse("zookeeper+tls://h").unwrap_err();
        assert_eq!(error.kind(), Kind::Refused, "{error}");
    }
}
