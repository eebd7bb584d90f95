//! From a URL to a store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use leasehold_core::url::{Authority, StoreUrl, percent_decode};
use leasehold_core::{Error, Kind, Result};
use leasehold_net::{Login, login};
use leasehold_sql::tls::Tls;
use leasehold_sql::{Options, options, tls};
use mysql_async::{Opts, OptsBuilder};

/// A connection that says nothing for so long is asked by the kernel whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The server's port, if none is given.
const PORT: u16 = 3306;

/// What a MySQL store needs to know.
///
/// ```
/// use leasehold_mysql::Config;
/// let config = Config::parse("mysql://bob:secret@db.example/app?pool=2")?;
/// assert_eq!(config.url(), "mysql://bob:***@db.example/app?pool=2");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Config {
    /// All but the password.
    server: Opts,
    login: Login,
    host: (String, u16),
    pub(crate) options: Options,
    tls: Option<Tls>,
    shown: String,
    /// Whether the server has let us in once.
    pub(crate) known: Arc<AtomicBool>,
}

impl Config {
    /// Reads a URL: see [`from_url`](Config::from_url).
    pub fn parse(url: &str) -> Result<Self> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    /// Reads a URL: `mysql://[user:password@]host[:port]/database`, with these parameters:
    ///
    /// - `prefix`: what the names of the tables start with (`leasehold_`); `create=no`: missing tables are an error;
    /// - `pool`: how many connections a session has for statements at most (4); it has two more to be told;
    /// - `timeout`: how long a statement may take (5s); `retention`: how long the last token of an idle lock is kept (24h);
    /// - `user`, `password`, or `password-file`: the password is the first line of this file, which is read for every connection;
    /// - `sslmode=require`: encrypted, and the server must prove who it is, by a certificate of an authority that is generally trusted or
    ///   that is in the file `ca`.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        let options = Options::take(&mut url)?;
        let tls = Tls::take(&mut url)?;
        let place = url.authority()?;
        let login = Login::of(&place).with_params(&mut url, "")?;
        url.finish(&[options::PARAMS, tls::PARAMS, login::PARAMS].concat())?;
        let mut shown = options.shown();
        shown.extend(tls.iter().flat_map(Tls::shown));
        let shown = options::shown_url("mysql", &place, &login, &shown);
        let (server, host) = server(&place, &login, &options)?;
        Ok(Config { server, login, host, options, tls, shown, known: Arc::default() })
    }

    /// The URL as it may be printed: no password in it.
    pub fn url(&self) -> String {
        self.shown.clone()
    }

    /// What the driver needs to know for a connection that is made now.
    pub(crate) fn server(&self) -> Result<Opts> {
        let Some(password) = &self.login.password else { return Ok(self.server.clone()) };
        let password = password.read()?.reveal().to_owned();
        Ok(OptsBuilder::from_opts(self.server.clone()).pass(Some(password)).into())
    }

    /// Where the server is.
    pub(crate) fn hosts(&self) -> &[(String, u16)] {
        std::slice::from_ref(&self.host)
    }

    /// The same for one session, with its files read: those that say whom to believe.
    #[cfg(feature = "tls")]
    pub(crate) fn encrypted(&self) -> Result<Config> {
        let Some(tls) = &self.tls else { return Ok(Config { known: Arc::default(), ..self.clone() }) };
        let mut ssl = mysql_async::SslOpts::default();
        if let Some(pem) = tls.authorities()? {
            ssl = ssl.with_root_certs(vec![pem.into()]).with_disable_built_in_roots(true);
        }
        let server = OptsBuilder::from_opts(self.server.clone()).ssl_opts(ssl).into();
        Ok(Config { server, known: Arc::default(), ..self.clone() })
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn encrypted(&self) -> Result<Config> {
        if self.tls.is_some() {
            Err(invalid("this program was compiled without encryption"))
        } else {
            Ok(Config { known: Arc::default(), ..self.clone() })
        }
    }

    /// The name of a table.
    pub(crate) fn table(&self, name: &str) -> String {
        format!("{}{name}", self.options.prefix)
    }

    /// The name of a table for whoever is in another database.
    pub(crate) fn qualified(&self, name: &str) -> String {
        // There is one: a URL without is refused.
        let database = self.server.db_name().unwrap_or_default().replace('`', "``");
        format!("`{database}`.{}", self.table(name))
    }
}

/// Where the server is, and who we are to it.
fn server(place: &Authority, login: &Login, options: &Options) -> Result<(Opts, (String, u16))> {
    let bad = |what: &str| {
        invalid(what).advice("a MySQL store is given as mysql://user:password@host:port/database")
    };
    let [host] = place.hosts.as_slice() else { return Err(bad("the URL names more than one server")) };
    let database = percent_decode(&place.path)?;
    if database.is_empty() {
        return Err(bad("the URL names no database"));
    }
    let host = (percent_decode(&host.name)?, host.port.unwrap_or(PORT));
    let wait = options.timeout.as_secs().max(1);
    let server = OptsBuilder::default()
        .ip_or_hostname(host.0.clone())
        .tcp_port(host.1)
        .user(login.user.clone())
        .db_name(Some(database))
        // A socket that the server speaks of may lead elsewhere than the address that was given.
        .prefer_socket(false)
        .tcp_keepalive(Some(KEEPALIVE))
        .tcp_nodelay(true)
        // Those of a free lock, in both forms, and some room: one that is used must not make room for another meanwhile.
        .stmt_cache_size(12)
        .setup(vec![
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            format!(
                "SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES', innodb_lock_wait_timeout = {wait}, \
                 group_concat_max_len = 1048576"
            ),
        ]);
    Ok((server.into(), host))
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
        let config = Config::parse("mysql://bob:p%40ss@h1:3307/app?prefix=l_&timeout=1s").unwrap();
        assert_eq!(config.table("locks"), "l_locks");
        assert_eq!(config.server().unwrap().pass(), Some("p@ss"));
        assert_eq!((config.server.ip_or_hostname(), config.server.user()), ("h1", Some("bob")));
        assert_eq!((config.server.tcp_port(), config.server.db_name()), (3307, Some("app")));
        assert_eq!(config.url(), "mysql://bob:***@h1:3307/app?timeout=1000ms&prefix=l_");
        assert!(!format!("{config:?}").contains("p%40ss"));
    }

    #[test]
    fn bad_urls_are_refused_without_their_password() {
        for bad in [
            "mysql:",
            "mysql://bob:secret@h",
            "mysql://bob:secret@h:port/db",
            "mysql://bob:secret@h/db?sslmode=maybe",
            "mysql://bob:secret@h/db?ca=/x&sslmode=disable",
            "mysql://bob:secret@h/db?lease=3s",
        ] {
            let error = Config::parse(bad).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{bad}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
