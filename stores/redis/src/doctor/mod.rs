//! What this store can find out about its servers before locks are trusted to them.
//!
//! # Layout
//!
//! - `collect`: asking a server; `cluster`: asking it about all of them; `sentinels`: asking those who watch it. `fields` reads
//!   the answers, `rights` is what our user must be allowed to do.
//! - [`Facts`]: what was seen of one server.
//! - `rules`: what that means for locks. Pure.

mod cluster;
mod collect;
mod facts;
mod fields;
mod rights;
mod rules;
mod sentinels;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::doctor::Finding;
use leasehold_core::{Result, SessionId};

pub use facts::{Facts, Memory, Persistence, Reading, Replica, Replication};
pub use rules::judge_server;

use crate::config::{Address, Config, Place, Server};
use crate::store::Redis;
use crate::wire::{Expected, Link, Pushes, Slot, Target, Wire};
use cluster::View;
use collect::{Alone, Master};
use rules::{Demands, Way};

/// Looks at every master.
pub(crate) async fn examine(store: &Redis) -> Result<Vec<Finding>> {
    let wire = Wire::open(store.config.clone(), SessionId::random()?, Arc::new(Nobody)).await?;
    let found = look(store, &wire).await;
    wire.close().await;
    found
}

async fn look(store: &Redis, wire: &Wire) -> Result<Vec<Finding>> {
    let mut found = vec![rules::encryption(way(&store.config))];
    found.extend(match &store.config.place {
        Place::Cluster(_) => look_at_cluster(store, wire).await?,
        Place::One(_) | Place::Sentinel { .. } => look_at(store, Master { wire, slot: Slot(0) }).await?,
    });
    Ok(found)
}

/// What is found about one master.
async fn look_at(store: &Redis, master: Master<'_>) -> Result<Vec<Finding>> {
    let seen = collect::master(store, master).await?;
    let config = &store.config;
    let sentinels = match &config.place {
        Place::Sentinel { sentinels, master, .. } => {
            Some(sentinels::look(sentinels, master, config.timeout()).await)
        }
        Place::One(_) | Place::Cluster(_) => None,
    };
    let demands = Demands { prefix: config.prefix(), replicas: config.replicas() };
    Ok(rules::judge(&seen, sentinels.as_deref(), demands))
}

/// What is found about a cluster and all its masters. One that does not answer is a finding, unless none does.
async fn look_at_cluster(store: &Redis, wire: &Wire) -> Result<Vec<Finding>> {
    let mut looks = Vec::new();
    for slot in wire.masters().await? {
        looks.push((slot, look_at_member(store, Master { wire, slot }).await));
    }
    if let [(_, Err(first)), ..] = &looks[..]
        && looks.iter().all(|(_, look)| look.is_err())
    {
        return Err(first.clone());
    }
    let view = looks.iter().find_map(|(_, look)| look.as_ref().ok()?.0.clone()).unwrap_or_default();
    let mut found = rules::cluster::judge(&view);
    for (slot, look) in looks {
        let place = |view: &View| view.owner(slot).map(str::to_owned);
        match look {
            Ok((own, about)) => {
                let node = own.as_ref().and_then(View::asked).map(str::to_owned).or_else(|| place(&view));
                found.extend(about.into_iter().map(|finding| Finding { node: node.clone(), ..finding }));
            }
            Err(e) => found.push(Finding { node: place(&view), ..rules::silent(e.what()) }),
        }
    }
    Ok(found)
}

async fn look_at_member(store: &Redis, master: Master<'_>) -> Result<(Option<View>, Vec<Finding>)> {
    Ok((cluster::view(&master).await?, look_at(store, master).await?))
}

/// What can be seen of one server. Every answer has to come within `time`.
pub async fn facts(link: &Link, time: Duration) -> Result<Facts> {
    collect::facts(&Alone(link, time)).await
}

/// What can be seen of one server that need not be a master. Every answer has to come within `time`.
pub async fn facts_of(server: &Server, time: Duration) -> Result<Facts> {
    let target = Target::Fixed(Arc::new(server.clone()), Expected::AnyRole);
    facts(&Link::to(target, time), time).await
}

/// How the servers are reached.
fn way(config: &Config) -> Way {
    let servers: Vec<&Server> = match &config.place {
        Place::One(server) => vec![server],
        Place::Sentinel { sentinels, .. } => sentinels.iter().collect(),
        Place::Cluster(nodes) => nodes.iter().collect(),
    };
    let like = match &config.place {
        Place::One(server) | Place::Sentinel { server, .. } => server,
        Place::Cluster(nodes) => &nodes[0],
    };
    Way {
        local: servers.iter().all(|server| is_local(&server.address)),
        encrypted: like.tls.is_some(),
        password: like.login.password.is_some(),
    }
}

fn is_local(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp { host, .. } if host == "localhost" => true,
        Address::Tcp { host, .. } => host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
    }
}

/// A session that wants to hear nothing.
struct Nobody;

impl Pushes for Nobody {
    fn note(&self, _: &[u8]) {}

    fn event(&self, _: &[u8]) {}

    fn resumed(&self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_local_only_if_it_never_leaves_the_host() {
        for (url, local, encrypted, password) in [
            ("redis://127.0.0.1:7000", true, false, false),
            ("redis://[::1]:7000", true, false, false),
            ("redis://bob:x@localhost", true, false, true),
            ("unix:/run/redis.sock", true, false, false),
            ("redis://db.example", false, false, false),
            ("rediss://:x@db.example", false, true, true),
            ("redis+cluster://127.0.0.1,10.0.0.1", false, false, false),
        ] {
            let config = Config::parse(url).unwrap();
            assert_eq!(way(&config), Way { local, encrypted, password }, "{url}");
        }
    }
}
