//! From a URL to a store.

use std::fmt;
use std::time::Duration;

use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, Kind, Result};
use leasehold_sql::tls::Tls;
use leasehold_sql::{Options, options, tls};
use mysql_async::{Opts, OptsBuilder};

/// A connection that says nothing for so long is asked by the kernel whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);

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
    pub(crate) server: Opts,
    pub(crate) options: Options,
    tls: Option<Tls>,
    shown: String,
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
    /// - `sslmode=require`: encrypted, and the server must prove who it is, by a certificate of an authority that is generally trusted or
    ///   that is in the file `ca`.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        let options = Options::take(&mut url)?;
        let tls = Tls::take(&mut url)?;
        let place = url.rest.clone();
        url.finish(&[options::PARAMS, tls::PARAMS].concat())?;
        let mut shown = options.shown();
        shown.extend(tls.iter().flat_map(Tls::shown));
        let shown = options::shown_url("mysql", &place, &shown);
        let server = server(&place, &options)?;
        Ok(Config { server, options, tls, shown })
    }

    /// The URL as it may be printed: no password in it.
    pub fn url(&self) -> String {
        self.shown.clone()
    }

    /// The same with its files read: those that say whom to believe.
    #[cfg(feature = "tls")]
    pub(crate) fn encrypted(&self) -> Result<Config> {
        let Some(tls) = &self.tls else { return Ok(self.clone()) };
        let mut ssl = mysql_async::SslOpts::default();
        if let Some(pem) = tls.authorities()? {
            ssl = ssl.with_root_certs(vec![pem.into()]).with_disable_built_in_roots(true);
        }
        let server = OptsBuilder::from_opts(self.server.clone()).ssl_opts(ssl).into();
        Ok(Config { server, ..self.clone() })
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn encrypted(&self) -> Result<Config> {
        if self.tls.is_some() {
            Err(invalid("this program was compiled without encryption"))
        } else {
            Ok(self.clone())
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

/// Reads what says where the server is. What the parser complains of is not shown: there may be a password in it.
fn server(place: &str, options: &Options) -> Result<Opts> {
    let bad = |what: &str| {
        invalid(what).advice("a MySQL store is given as mysql://user:password@host:port/database")
    };
    let server = Opts::from_url(&format!("mysql:{place}")).map_err(|_| bad("the URL can't be read"))?;
    if server.db_name().is_none_or(str::is_empty) {
        return Err(bad("the URL names no database"));
    }
    let wait = options.timeout.as_secs().max(1);
    let server = OptsBuilder::from_opts(server)
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
    Ok(server.into())
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
        assert_eq!(config.server.pass(), Some("p@ss"));
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
