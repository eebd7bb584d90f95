//! From the text of a URL to servers.

use std::path::PathBuf;

use leasehold_core::url::{Host, StoreUrl, percent_decode};
use leasehold_core::{Error, Kind, Result};
use leasehold_net::Login;

use super::server::{Address, PORT, Server, Tls};

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

/// Reads one server and takes its parameters out.
pub(super) fn server(url: &mut StoreUrl) -> Result<Server> {
    match url.scheme.as_str() {
        "redis" | "rediss" => {
            let (login, mut hosts, path) = authority(url, PORT)?;
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
            url.without_login()?;
            let path = url.rest.strip_prefix("//").unwrap_or(&url.rest);
            if !path.starts_with('/') || path.contains('\0') {
                return Err(bad("the URL has no path of a socket", "write unix:/run/redis.sock"));
            }
            let address = Address::Unix(PathBuf::from(path));
            finish_server(url, address, Login::default(), "")
        }
        // Without the scheme: in a list, what stands before a colon may be a part of a password.
        _ => Err(bad(
            "one of the URLs is not that of a Redis server",
            "write redis://host:port, rediss://host:port or unix:/path, and a comma in a password as %2C",
        )),
    }
}

/// Reads the servers of any scheme and takes their parameters out.
pub(super) fn place(url: &mut StoreUrl) -> Result<Place> {
    match url.scheme.as_str() {
        "redis+sentinel" | "rediss+sentinel" => sentinel(url),
        "redis+cluster" | "rediss+cluster" => cluster(url),
        "redis" | "rediss" | "unix" | "redis+unix" => Ok(Place::One(server(url)?)),
        _ => Err(bad(
            "the URL is not one of Redis",
            "it knows redis://, rediss://, unix:, redis+sentinel:// and redis+cluster://",
        )),
    }
}

fn sentinel(url: &mut StoreUrl) -> Result<Place> {
    let (login, addresses, path) = authority(url, SENTINEL_PORT)?;
    let (name, db) = path.split_once('/').unwrap_or((&path, ""));
    let master = percent_decode(name)?;
    if master.is_empty() {
        return Err(bad(
            "the URL does not say which master the Sentinels watch",
            "write redis+sentinel://host1,host2,host3/mymaster",
        ));
    }
    let own_login = with_password(Login::default().with_params(url, "sentinel-")?)?;
    let server = finish_server(url, Address::tcp("", PORT), login, db)?;
    let sentinels = addresses
        .into_iter()
        .map(|address| Server { address, login: own_login.clone(), db: 0, tls: server.tls.clone() })
        .collect();
    Ok(Place::Sentinel { sentinels, master, server })
}

fn cluster(url: &mut StoreUrl) -> Result<Place> {
    let (login, addresses, path) = authority(url, PORT)?;
    let like = finish_server(url, addresses[0].clone(), login, &path)?;
    if like.db != 0 {
        return Err(bad("a cluster has no database but 0", "leave the number away"));
    }
    Ok(Place::Cluster(addresses.into_iter().map(|address| like.moved_to(address)).collect()))
}

/// The login, the servers and the path.
fn authority(url: &StoreUrl, default_port: u16) -> Result<(Login, Vec<Address>, String)> {
    let authority = url.authority()?;
    let login = Login::of(&authority);
    let address = |host: &Host| Address::tcp(&*host.name, host.port.unwrap_or(default_port));
    Ok((login, authority.hosts.iter().map(address).collect(), authority.path))
}

/// Reads what can be a parameter of any server: login, database, encryption.
fn finish_server(url: &mut StoreUrl, address: Address, login: Login, db: &str) -> Result<Server> {
    let login = with_password(login.with_params(url, "")?)?;
    let db = match (db, url.take("db")) {
        ("", None) => 0,
        ("", Some(db)) => db_number(&db)?,
        (db, None) => db_number(db)?,
        (_, Some(_)) => return Err(bad("the URL gives the database twice", "leave one of them away")),
    };
    let tls = tls(url)?;
    Ok(Server { address, login, db, tls })
}

/// A user alone is never let in; most often it is a password whose colon was forgotten.
fn with_password(login: Login) -> Result<Login> {
    if login.user.is_some() && login.password.is_none() {
        return Err(bad(
            "the URL has a user and no password",
            "write redis://:PASSWORD@host for a password alone, redis://USER:PASSWORD@host or redis://USER@host?password-file=PATH",
        ));
    }
    Ok(login)
}

fn db_number(text: &str) -> Result<u32> {
    text.parse()
        .map_err(|_| bad("the URL has no number where that of a database belongs", "write 0, 1, 2, …"))
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
