//! From the text of a URL to servers.

use std::path::PathBuf;

use leasehold_core::url::{StoreUrl, percent_decode};
use leasehold_core::{Error, Kind, Result};

use super::server::{Address, Login, PORT, Secret, Server, Tls, password_file};

/// The port of a Sentinel, if none is given.
const SENTINEL_PORT: u16 = 26379;

/// The parameters of every server.
pub(super) const SERVER_PARAMS: &[&str] = &["user", "password", "password-file", "db", "ca", "cert", "key"];

/// Where a store's servers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// One server.
    One(Server),
    /// The master that Sentinels name.
    Sentinel {
        /// The Sentinels, each with its own login.
        sentinels: Vec<Server>,
        /// What they call it.
        master: String,
        /// How to be let in at the master; its address is not used.
        server: Server,
    },
    /// A cluster, and some of its nodes.
    Cluster(Vec<Server>),
}

/// Splits a URL. What does not split could be a password, so the error does not show it.
pub(super) fn split(url: &str) -> Result<StoreUrl> {
    StoreUrl::parse(url).map_err(|e| match url.contains('@') || url.contains("password") {
        true => bad("the URL can't be read", "write a %, ? or & in a password as %25, %3F or %26"),
        false => e,
    })
}

/// Refuses a URL whose password was taken for a parameter, before it is shown as one.
pub(super) fn no_password_in_params<'a>(mut keys: impl Iterator<Item = &'a str>) -> Result<()> {
    match keys.any(|key| key.contains('@')) {
        true => Err(bad("the URL has a question mark before its host", "write a ? in a password as %3F")),
        false => Ok(()),
    }
}

/// Reads one server and takes its parameters out.
pub(super) fn server(url: &mut StoreUrl) -> Result<Server> {
    no_password_in_params(url.params.iter().map(|(key, _)| key.as_str()))?;
    match url.scheme.as_str() {
        "redis" | "rediss" => {
            let (login, hosts, path) = authority(url)?;
            let mut hosts = addresses(&hosts, PORT)?;
            let address = hosts.swap_remove(0);
            if !hosts.is_empty() {
                return Err(bad(
                    format!("{}:// takes one server, and got {}", url.scheme, hosts.len() + 1),
                    "write redis+sentinel:// or redis+cluster:// for several",
                ));
            }
            finish_server(url, address, login, &path)
        }
        "unix" | "redis+unix" => {
            let path = url.rest.strip_prefix("//").unwrap_or(&url.rest);
            if !path.starts_with('/') || path.contains('\0') {
                return Err(bad("the URL has no path of a socket", "write unix:/run/redis.sock"));
            }
            let address = Address::Unix(PathBuf::from(path));
            finish_server(url, address, Login::default(), "")
        }
        other => Err(bad(
            format!("{other}: is not a scheme of one Redis server"),
            "write redis://host:port, rediss://host:port or unix:/path",
        )),
    }
}

/// Reads the servers of any scheme and takes their parameters out.
pub(super) fn place(url: &mut StoreUrl) -> Result<Place> {
    match url.scheme.as_str() {
        "redis+sentinel" | "rediss+sentinel" => sentinel(url),
        "redis+cluster" | "rediss+cluster" => cluster(url),
        "redis" | "rediss" | "unix" | "redis+unix" => Ok(Place::One(server(url)?)),
        other => Err(bad(
            format!("{other}: is not a scheme of Redis"),
            "it knows redis://, rediss://, unix:, redis+sentinel:// and redis+cluster://",
        )),
    }
}

fn sentinel(url: &mut StoreUrl) -> Result<Place> {
    let (login, hosts, path) = authority(url)?;
    let (name, db) = path.split_once('/').unwrap_or((&path, ""));
    let master = percent_decode(name)?;
    if master.is_empty() {
        return Err(bad(
            "the URL does not say which master the Sentinels watch",
            "write redis+sentinel://host1,host2,host3/mymaster",
        ));
    }
    let addresses = addresses(&hosts, SENTINEL_PORT)?;
    let own_login = given_login(url, "sentinel-", Login::default())?;
    let server = finish_server(url, Address::tcp("", PORT), login, db)?;
    let sentinels = addresses
        .into_iter()
        .map(|address| Server { address, login: own_login.clone(), db: 0, tls: server.tls.clone() })
        .collect();
    Ok(Place::Sentinel { sentinels, master, server })
}

fn cluster(url: &mut StoreUrl) -> Result<Place> {
    let (login, hosts, path) = authority(url)?;
    let addresses = addresses(&hosts, PORT)?;
    let like = finish_server(url, addresses[0].clone(), login, &path)?;
    if like.db != 0 {
        return Err(bad("a cluster has no database but 0", "leave the number away"));
    }
    Ok(Place::Cluster(addresses.into_iter().map(|address| like.moved_to(address)).collect()))
}

/// `//user:password@hosts/path`, split. A password may hold an unescaped `@` or `/`.
fn authority(url: &StoreUrl) -> Result<(Login, String, String)> {
    let no_host = || bad("the URL names no host", format!("write {}://host:port", url.scheme));
    let rest = url.rest.strip_prefix("//").ok_or_else(no_host)?;
    let (login, rest) = match rest.rfind('@') {
        Some(at) => (login(&rest[..at])?, &rest[at + 1..]),
        None => (Login::default(), rest),
    };
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    if hosts.is_empty() {
        return Err(no_host());
    }
    Ok((login, hosts.to_owned(), path.to_owned()))
}

fn login(text: &str) -> Result<Login> {
    // The text of the error is our own: the decoder's would show what it could not decode.
    let decoded = |text: &str| {
        percent_decode(text).map_err(|_| {
            bad("the user or the password has a broken percent escape", "write a percent sign as %25")
        })
    };
    let (user, password) = text.split_once(':').map_or((text, None), |(user, word)| (user, Some(word)));
    let user = decoded(user)?;
    Ok(Login {
        user: Some(user).filter(|user| !user.is_empty()),
        password: password.map(decoded).transpose()?.map(Secret::new),
    })
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>> {
    hosts.split(',').map(|host| address(host, port)).collect()
}

/// `host`, `host:port`, `[::1]`, `[::1]:port`.
fn address(text: &str, default_port: u16) -> Result<Address> {
    let wrong = || bad(format!("{text:?} is not a host and a port"), "write host:6379, or [::1]:6379");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if port.is_empty() => (host, None),
                None => return Err(wrong()),
            }
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(wrong()),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let sane = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '@');
    if !sane {
        return Err(wrong());
    }
    let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| wrong()))?;
    Ok(Address::tcp(host, port))
}

/// Reads what can be a parameter of any server: login, database, encryption.
fn finish_server(url: &mut StoreUrl, address: Address, login: Login, db: &str) -> Result<Server> {
    let login = given_login(url, "", login)?;
    let db = match (db, url.take("db")) {
        ("", None) => 0,
        ("", Some(db)) => db_number(&db)?,
        (db, None) => db_number(db)?,
        (_, Some(_)) => return Err(bad("the URL gives the database twice", "leave one of them away")),
    };
    let tls = tls(url)?;
    Ok(Server { address, login, db, tls })
}

/// Adds what the parameters say to a login.
fn given_login(url: &mut StoreUrl, which: &str, mut login: Login) -> Result<Login> {
    if let Some(user) = url.take(&format!("{which}user")) {
        login.user = Some(user);
    }
    let file = url.take(&format!("{which}password-file"));
    let given = [
        login.password.take(),
        url.take(&format!("{which}password")).map(Secret::new),
        file.map(|path| password_file(path.as_ref())).transpose()?,
    ];
    let mut given = given.into_iter().flatten();
    login.password = given.next();
    match given.next() {
        Some(_) => Err(bad("the URL gives a password twice", "leave one of them away")),
        None => Ok(login),
    }
}

fn db_number(text: &str) -> Result<u32> {
    text.parse().map_err(|_| bad(format!("{text:?} is not the number of a database"), "write 0, 1, 2, …"))
}

fn tls(url: &mut StoreUrl) -> Result<Option<Tls>> {
    let tls = Tls {
        ca: url.take("ca").map(PathBuf::from),
        cert: url.take("cert").map(PathBuf::from),
        key: url.take("key").map(PathBuf::from),
    };
    let encrypted = url.scheme.starts_with("rediss");
    if !encrypted && tls != Tls::default() {
        return Err(bad("certificates are given, but the connection is not encrypted", "write rediss://"));
    }
    if tls.cert.is_some() != tls.key.is_some() {
        return Err(bad("cert and key go together", "give both, or none"));
    }
    if encrypted && cfg!(not(feature = "tls")) {
        return Err(bad(
            "this program was built without TLS",
            "build it with the feature `tls` of leasehold-redis",
        ));
    }
    Ok(encrypted.then_some(tls))
}

fn bad(what: impl Into<String>, advice: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what).advice(advice)
}
