//! From a URL to a store.

use std::fmt;
use std::time::Duration;

use leasehold_core::url::{Authority, StoreUrl, percent_decode};
use leasehold_core::{Error, Kind, Result};
use leasehold_net::{Login, login};
use leasehold_sql::tls::Tls;
use leasehold_sql::{Options, options, tls};

/// Parameters of this store besides those that all SQL stores have.
const PARAMS: &[&str] = &["schema", "application_name", "target_session_attrs"];

/// A connection that says nothing for so long is asked by the kernel whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The server's port, if none is given.
const PORT: u16 = 5432;

/// The longest name of anything in PostgreSQL.
const LONGEST_NAME: usize = 63;

/// What a PostgreSQL store needs to know.
///
/// ```
/// use leasehold_postgres::Config;
/// let config = Config::parse("postgres://bob:secret@db.example/app?pool=2")?;
/// assert_eq!(config.url(), "postgres://bob:***@db.example/app?pool=2");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Config {
    /// All but the password.
    server: tokio_postgres::Config,
    login: Login,
    hosts: Vec<(String, u16)>,
    pub(crate) options: Options,
    pub(crate) schema: Option<String>,
    pub(crate) tls: Option<Tls>,
    shown: String,
}

impl Config {
    /// Reads a URL: see [`from_url`](Config::from_url).
    pub fn parse(url: &str) -> Result<Self> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    /// Reads a URL: `postgres://[user:password@]host[:port][,host2…]/database`, with these parameters:
    ///
    /// - `prefix`: what the names of the tables start with (`leasehold_`); `schema`: where they are;
    /// - `create=no`: missing tables are an error;
    /// - `pool`: how many connections a session has for statements at most (4); it has one more to be told;
    /// - `timeout`: how long a statement may take (5s); `retention`: how long the last token of an idle lock is kept (24h);
    /// - `user`, `password`, or `password-file`: the password is the first line of this file, which is read for every connection;
    /// - `sslmode=require`: encrypted, and the server must prove who it is, by a certificate of an authority that this system trusts or
    ///   that is in the file `ca`;
    /// - `application_name`, `target_session_attrs`: as in libpq.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        let options = Options::take(&mut url)?;
        let schema = url.take("schema").map(checked_schema).transpose()?;
        let tls = Tls::take(&mut url)?;
        let mut given = Vec::new();
        for key in ["application_name", "target_session_attrs"] {
            given.extend(url.take(key).map(|value| (key, value)));
        }
        let place = url.authority()?;
        let login = Login::of(&place).with_params(&mut url, "")?;
        url.finish(&[options::PARAMS, tls::PARAMS, login::PARAMS, PARAMS].concat())?;
        let (mut server, hosts) = server(&place, &login)?;
        for (key, value) in &given {
            match (*key, value.as_str()) {
                ("application_name", name) => drop(server.application_name(name)),
                (_, "any") => {}
                (_, "read-write") => {
                    server.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
                }
                (key, _) => {
                    return Err(invalid(format!("the {key} of the URL is not known"))
                        .advice("write any or read-write"));
                }
            }
        }
        if server.get_application_name().is_none() {
            server.application_name("leasehold");
        }
        server.connect_timeout(options.timeout).keepalives_idle(KEEPALIVE);
        server.tcp_user_timeout(KEEPALIVE * 2);
        use tokio_postgres::config::SslMode;
        server.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        let mut shown = options.shown();
        shown.extend(schema.iter().map(|schema| ("schema", schema.clone())));
        shown.extend(tls.iter().flat_map(Tls::shown));
        shown.extend(given);
        let shown = options::shown_url("postgres", &place, &login, &shown);
        Ok(Config { server, login, hosts, options, schema, tls, shown })
    }

    /// The URL as it may be printed: no password in it.
    pub fn url(&self) -> String {
        self.shown.clone()
    }

    /// What the driver needs to know for a connection that is made now.
    pub(crate) fn server(&self) -> Result<tokio_postgres::Config> {
        let mut server = self.server.clone();
        if let Some(password) = &self.login.password {
            server.password(password.read()?.reveal());
        }
        Ok(server)
    }

    /// The servers, without those that are sockets of this host.
    pub(crate) fn hosts(&self) -> &[(String, u16)] {
        &self.hosts
    }

    /// The name of a table, as statements have it.
    pub(crate) fn table(&self, name: &str) -> String {
        let table = format!("{}{name}", self.options.prefix);
        match &self.schema {
            Some(schema) => format!("{schema}.{table}"),
            None => table,
        }
    }
}

/// Where the servers are, and who we are to them.
fn server(place: &Authority, login: &Login) -> Result<(tokio_postgres::Config, Vec<(String, u16)>)> {
    let mut server = tokio_postgres::Config::new();
    let mut hosts = Vec::new();
    for host in &place.hosts {
        // A path in percent escapes is that of a socket of this host.
        let (name, port) = (percent_decode(&host.name)?, host.port.unwrap_or(PORT));
        server.host(&name).port(port);
        if !name.starts_with('/') {
            hosts.push((name, port));
        }
    }
    let Some(user) = login.user.as_deref().filter(|user| !user.is_empty()) else {
        return Err(invalid("the URL names no user")
            .advice("a PostgreSQL store is given as postgres://user:password@host:port/database"));
    };
    server.user(user);
    let database = percent_decode(&place.path)?;
    if !database.is_empty() {
        server.dbname(&database);
    }
    Ok((server, hosts))
}

/// The schema becomes part of statements, so it is plain.
fn checked_schema(text: String) -> Result<String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let sane = (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(plain);
    if sane && !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(text);
    }
    Err(invalid("the schema of the URL is not a plain name").advice("use a to z, 0 to 9 and _"))
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Config").field(&self.shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_and_how() {
        let config =
            Config::parse("postgres://bob:p%40ss@h1:5433,h2/app?schema=ours&prefix=l_&timeout=1s").unwrap();
        assert_eq!(config.table("locks"), "ours.l_locks");
        let server = config.server().unwrap();
        assert_eq!(server.get_password(), Some(&b"p@ss"[..]));
        assert_eq!((server.get_hosts().len(), server.get_ports()), (2, &[5433, 5432][..]));
        assert_eq!((server.get_user(), server.get_dbname()), (Some("bob"), Some("app")));
        assert_eq!(config.url(), "postgres://bob:***@h1:5433,h2/app?timeout=1000ms&prefix=l_&schema=ours");
        assert!(!format!("{config:?}").contains("p%40ss"));
        let local = Config::parse("postgres://bob@%2Frun%2Fpg/app").unwrap();
        // A user without a password may be a password.
        assert_eq!(local.url(), "postgres://***@%2Frun%2Fpg/app");
        assert!(local.hosts().is_empty());
        assert!(matches!(local.server.get_hosts(), [tokio_postgres::config::Host::Unix(_)]));
    }

    #[test]
    fn bad_urls_are_refused_without_their_password() {
        for bad in [
            "postgres:",
            "postgres://",
            "postgres:///db",
            "postgres://bob:secret@h:port/db",
            "postgres://bob:secret@h/db?schema=a-b",
            "postgres://bob:secret@h/db?sslmode=maybe",
            "postgres://bob:secret@h/db?ca=/x&sslmode=disable",
            "postgres://bob:secret@h/db?lease=3s",
            "postgres://bob:secret@h/db?target_session_attrs=x",
        ] {
            let error = Config::parse(bad).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{bad}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
