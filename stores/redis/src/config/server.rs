//! One server: where it is, and how to be let in.

use std::fmt;
use std::path::{Path, PathBuf};

use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, Kind, Result};

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

/// A password. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The password itself, for the server only.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Who we are to a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
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
        let mut url = read::split(url)?;
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
        self.login = Login { user: user.map(str::to_owned), password: Some(Secret::new(password)) };
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

/// As a URL, without the password.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Unix(path) => {
                write!(f, "unix:{}", path.display())?;
                if self.db != 0 {
                    write!(f, "?db={}", self.db)?;
                }
                Ok(())
            }
            Address::Tcp { .. } => {
                let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
                write!(f, "{scheme}://{}{}", Shown(&self.login), self.address)?;
                if self.db != 0 {
                    write!(f, "/{}", self.db)?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("url", &self.to_string()).field("tls", &self.tls).finish()
    }
}

/// The part of a URL before the `@`, and the `@`.
pub(super) struct Shown<'a>(pub(super) &'a Login);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.user, &self.0.password) {
            (None, None) => Ok(()),
            (user, password) => {
                let user = user.as_deref().unwrap_or("");
                let password = if password.is_some() { ":***" } else { "" };
                write!(f, "{user}{password}@")
            }
        }
    }
}

/// Reads a password from a file: its first line.
pub(super) fn password_file(path: &Path) -> Result<Secret> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::new(Kind::Invalid, format!("the password file {} can't be read", path.display())).because(e)
    })?;
    Ok(Secret::new(text.lines().next().unwrap_or("")))
}
