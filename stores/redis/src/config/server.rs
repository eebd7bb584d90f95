//! One server: where it is, and how to be let in.

use std::fmt;
use std::path::PathBuf;

use leasehold_core::Result;
use leasehold_core::url::StoreUrl;
use leasehold_net::{Login, Password, Secret};

use super::read;

/// The port of a Redis server, if none is given.
pub(super) const PORT: u16 = 6379;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host, by name or number, and a port.
    Tcp {
        /// Its name or number, without brackets.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A Unix socket on this host.
    Unix(PathBuf),
}

impl Address {
    /// A host and a port.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Address::Tcp { host: host.into(), port }
    }

    /// The host, if it has one.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Address::Tcp { host, .. } => Some(host),
            Address::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// How a connection is encrypted. The files are PEM, and are read for each new connection: renewed certificates are
/// picked up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

impl Tls {
    /// Encrypted, with a server that an authority known to this system vouches for.
    pub fn new() -> Self {
        Tls::default()
    }

    /// The authorities that vouch for the server, instead of those known to this system.
    pub fn with_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// The certificate and the key that we show to the server.
    pub fn with_identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.cert = Some(cert.into());
        self.key = Some(key.into());
        self
    }
}

/// One server: where it is, who we are to it, which of its databases, and whether it is encrypted.
///
/// ```
/// use leasehold_redis::config::Server;
/// let server = Server::parse("redis://bob:secret@db.example:7000/2")?;
/// assert_eq!(server.to_string(), "redis://bob:***@db.example:7000/2");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    pub(crate) address: Address,
    pub(crate) login: Login,
    pub(crate) db: u32,
    pub(crate) tls: Option<Tls>,
}

impl Server {
    /// A server that asks for no password.
    pub fn new(address: Address) -> Self {
        Server { address, login: Login::default(), db: 0, tls: None }
    }

    /// Reads `redis://…`, `rediss://…`, `unix:…` or `redis+unix:…`, with none of the parameters of a store.
    pub fn parse(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        let server = Server::take_from(&mut url)?;
        url.finish(read::SERVER_PARAMS)?;
        Ok(server)
    }

    /// Reads the part of a URL that names a server, and takes its parameters out. The rest is the caller's, who also
    /// calls [`StoreUrl::finish`].
    pub fn take_from(url: &mut StoreUrl) -> Result<Self> {
        read::server(url)
    }

    /// The user and the password.
    pub fn with_login(mut self, user: Option<&str>, password: impl Into<String>) -> Self {
        let password = Some(Password::Given(Secret::new(password)));
        self.login = Login { user: user.map(str::to_owned), password };
        self
    }

    /// The number of the database.
    pub fn with_db(mut self, db: u32) -> Self {
        self.db = db;
        self
    }

    /// Encrypted.
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The number of its database.
    pub fn db(&self) -> u32 {
        self.db
    }

    /// The same in everything but the place.
    pub(crate) fn moved_to(&self, address: Address) -> Self {
        Server { address, ..self.clone() }
    }
}

impl Server {
    /// What a URL says of it behind the question mark.
    pub(super) fn params(&self) -> Vec<String> {
        let mut params = Vec::new();
        if let Address::Unix(_) = self.address {
            params.extend(self.login.user.iter().map(|user| format!("user={}", escape(user))));
            params.extend((self.db != 0).then(|| format!("db={}", self.db)));
        }
        params.extend(password_file(&self.login, ""));
        let Tls { ca, cert, key } = self.tls.clone().unwrap_or_default();
        for (name, path) in [("ca", ca), ("cert", cert), ("key", key)] {
            params.extend(path.map(|path| format!("{name}={}", escape(&path.to_string_lossy()))));
        }
        params
    }

    /// What a URL says of it before the question mark.
    pub(super) fn place(&self) -> String {
        match &self.address {
            Address::Unix(path) => format!("unix:{}", path.display()),
            Address::Tcp { .. } => {
                let db = if self.db == 0 { String::new() } else { format!("/{}", self.db) };
                format!("{}://{}{}{db}", self.scheme(), self.shown_login(), self.address)
            }
        }
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "rediss" } else { "redis" }
    }

    /// The part of a URL before the `@`, and the `@`.
    pub(super) fn shown_login(&self) -> String {
        self.login.shown(escape)
    }
}

/// As a URL, without the password.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_params(self.place(), &self.params()))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.to_string()).finish()
    }
}

/// Puts parameters behind a URL.
pub(super) fn with_params(place: String, params: &[String]) -> String {
    if params.is_empty() { place } else { format!("{place}?{}", params.join("&")) }
}

/// Escapes what would end a part of a URL.
pub(super) fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '%' | '?' | '&' | '=' | '/' | '@' | '#' | ':' | ' ' => {
                out.push_str(&format!("%{:02X}", c as u32))
            }
            c => out.push(c),
        }
        out
    })
}

/// The parameter that names the file of a password.
pub(super) fn password_file(login: &Login, prefix: &str) -> Option<String> {
    let path = login.password_file()?;
    Some(format!("{prefix}password-file={}", escape(&path.to_string_lossy())))
}
