//! A Redis cluster: masters that share the slots, each with replicas.

use std::collections::BTreeSet;

use super::independent::{addresses, start_all};
use super::migration::Migration;
use super::poll::until;
use super::port::Port;
use super::redis::{Redis, RedisOptions, field_of};

/// How many slots a cluster has.
pub const SLOTS: u16 = 16384;

/// A node that is silent for so long counts as dead.
const NODE_TIMEOUT_MS: u32 = 1000;

/// A node as another node sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    port: u16,
    /// The port of its master; none for a master.
    follows: Option<u16>,
    failed: bool,
    /// The ranges of slots that it owns.
    slots: Vec<(u16, u16)>,
}

impl Seen {
    fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// A running cluster.
pub struct Cluster {
    nodes: Vec<Redis>,
    bus_ports: Vec<Port>,
}

impl Cluster {
    /// Starts a cluster and waits until it is in order.
    pub fn start(masters: usize, replicas_each: usize) -> Cluster {
        Self::start_with(masters, replicas_each, RedisOptions::new())
    }

    /// The same, with options for all nodes.
    pub fn start_with(masters: usize, replicas_each: usize, options: RedisOptions) -> Cluster {
        let bus_ports: Vec<Port> = (0..masters * (1 + replicas_each)).map(|_| Port::reserve()).collect();
        let nodes = start_all(bus_ports.iter().map(|bus| member(options.clone(), bus)).collect());
        let cluster = Cluster { nodes, bus_ports };
        cluster.share_slots(masters);
        cluster.meet();
        cluster.attach_replicas(masters);
        cluster.wait_until_ready();
        cluster
    }

    /// `redis+cluster://127.0.0.1:PORT,…` with all nodes.
    pub fn url(&self) -> String {
        format!("redis+cluster://{}{}", self.nodes[0].credentials(), addresses(&self.nodes))
    }

    /// All nodes; at the start the masters come first.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The node at this port.
    pub fn node(&self, port: u16) -> &Redis {
        self.nodes.iter().find(|node| node.port() == port).expect("a node of this cluster")
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        let node = self.up().next().expect("a node that is up");
        node.cli(&["CLUSTER", "KEYSLOT", key]).parse().expect("a slot")
    }

    /// The master that owns a slot. Waits while the nodes that are up don't agree.
    pub fn owner_of_slot(&self, slot: u16) -> &Redis {
        until("the nodes agree on the owner of a slot", || self.agreed_owner(slot))
    }

    /// The replicas that follow the node at this port.
    pub fn replicas_of(&self, port: u16) -> Vec<&Redis> {
        let seen = until("a node says what it sees", || view(self.up().next().ok_or("no node is up")?));
        let followers = seen.into_iter().filter(|seen| seen.follows == Some(port));
        followers.map(|seen| self.node(seen.port)).collect()
    }

    /// Kills the master that owns a slot; gives its port.
    pub fn kill_master_of(&self, slot: u16) -> u16 {
        let master = self.owner_of_slot(slot);
        master.kill();
        master.port()
    }

    /// Waits until all nodes that are up know an owner of this slot that is not at this port, and serve again.
    pub fn wait_for_new_owner(&self, slot: u16, old: u16) -> &Redis {
        until("the slot has a new owner", || {
            let owner = self.agreed_owner(slot)?;
            if owner.port() == old {
                return Err(format!("{old} still owns slot {slot}"));
            }
            self.up().try_for_each(serves)?;
            Ok(owner)
        })
    }

    /// Makes this replica the master of its slots, with the agreement of its master, and waits until all know.
    pub fn failover(&self, replica: u16) {
        // Refused while the replica has just lost its link or become one.
        until("the failover begins", || match self.node(replica).ask(&["CLUSTER", "FAILOVER"]) {
            Ok(reply) if reply.to_string() == "OK" => Ok(()),
            other => Err(format!("{other:?}")),
        });
        until("the replica is a master", || match self.node(replica).try_info("role")? {
            role if role == "master" => Ok(()),
            role => Err(role),
        });
        self.wait_until_ready();
    }

    /// Starts a killed node again, on its port and with its place in the cluster, and waits until all is in order.
    pub fn restart(&self, port: u16) {
        self.node(port).restart();
        self.wait_until_ready();
    }

    /// Moves a slot with all its keys to the master at this port.
    pub fn migrate_slot(&self, slot: u16, to: u16) {
        self.begin_migration(slot, to).finish();
    }

    /// Begins to move a slot. Until it is finished, the old owner sends clients that ask for a key it no longer has to the new
    /// one (`ASK`).
    pub fn begin_migration(&self, slot: u16, to: u16) -> Migration<'_> {
        Migration::begin(self, slot, to)
    }

    /// Waits until all nodes that are up see the same cluster, serve, and have their replicas in sync.
    pub fn wait_until_ready(&self) {
        until("the cluster is in order", || self.look());
    }

    pub(crate) fn up(&self) -> impl Iterator<Item = &Redis> {
        self.nodes.iter().filter(|node| node.is_up())
    }

    fn share_slots(&self, masters: usize) {
        for (at, master) in self.nodes[..masters].iter().enumerate() {
            let edge = |at: usize| usize::from(SLOTS) * at / masters;
            let (first, last) = (edge(at).to_string(), (edge(at + 1) - 1).to_string());
            master.cli(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            // Different from the start, or the nodes would have to sort that out first.
            master.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
        }
    }

    /// Everybody is introduced to everybody: gossip would take longer.
    fn meet(&self) {
        for node in &self.nodes {
            for (other, bus) in self.nodes.iter().zip(&self.bus_ports) {
                let (port, bus) = (other.port().to_string(), bus.number().to_string());
                node.cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
    }

    fn attach_replicas(&self, masters: usize) {
        for (at, replica) in self.nodes[masters..].iter().enumerate() {
            let master = id(&self.nodes[at % masters]);
            // Refused until the two have met.
            until("a node becomes a replica", || match replica.ask(&["CLUSTER", "REPLICATE", &master]) {
                Ok(reply) if reply.to_string() == "OK" => Ok(()),
                other => Err(format!("{other:?}")),
            });
        }
    }

    fn agreed_owner(&self, slot: u16) -> Result<&Redis, String> {
        let mut owners = BTreeSet::new();
        for node in self.up() {
            let seen = view(node)?;
            let owner = seen.iter().find(|seen| seen.owns(slot)).map(|seen| seen.port);
            owners.insert(owner.ok_or_else(|| format!("nobody owns slot {slot}: {seen:?}"))?);
        }
        match owners.first() {
            Some(owner) if owners.len() == 1 => Ok(self.node(*owner)),
            _ => Err(format!("slot {slot} belongs to {owners:?}")),
        }
    }

    /// What is not in order yet.
    fn look(&self) -> Result<(), String> {
        let mut first: Option<Vec<Seen>> = None;
        for node in self.up() {
            serves(node)?;
            let seen = view(node)?;
            if seen.len() != self.nodes.len() {
                return Err(format!("{} sees only {seen:?}", node.port()));
            }
            if let Some(wrong) = seen.iter().find(|seen| seen.failed == self.node(seen.port).is_up()) {
                return Err(format!("{} sees {wrong:?}, which is wrong", node.port()));
            }
            match &first {
                Some(first) if *first != seen => {
                    return Err(format!("{seen:?} is not {first:?}"));
                }
                _ => first = Some(seen),
            }
        }
        self.up().try_for_each(in_sync)
    }
}

fn member(options: RedisOptions, bus: &Port) -> RedisOptions {
    options
        .in_a_set()
        .line("cluster-enabled yes")
        .line("cluster-config-file nodes.conf")
        .line("cluster-announce-ip 127.0.0.1")
        // Else it is the port plus 10000, which nobody has reserved.
        .line(format!("cluster-port {}", bus.number()))
        .line(format!("cluster-node-timeout {NODE_TIMEOUT_MS}"))
}

/// The name of a node inside the cluster.
pub(crate) fn id(node: &Redis) -> String {
    node.cli(&["CLUSTER", "MYID"])
}

fn serves(node: &Redis) -> Result<(), String> {
    let info = node.ask(&["CLUSTER", "INFO"]).map_err(|e| e.to_string())?.to_string();
    match field_of(&info, "cluster_state") {
        Some("ok") => Ok(()),
        state => Err(format!("the state of {} is {state:?}", node.port())),
    }
}

/// Whether a node, if it is a replica, has all that its master has.
fn in_sync(node: &Redis) -> Result<(), String> {
    if node.try_info("role")? == "master" {
        return Ok(());
    }
    match node.try_info("master_link_status")? {
        status if status == "up" => Ok(()),
        status => Err(format!("the link of {} is {status}", node.port())),
    }
}

/// All nodes as this one sees them, by port.
fn view(node: &Redis) -> Result<Vec<Seen>, String> {
    let text = node.ask(&["CLUSTER", "NODES"]).map_err(|e| e.to_string())?.to_string();
    // ID IP:PORT@BUS FLAGS MASTER PING PONG EPOCH LINK SLOTS…
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let port_of = |line: &[&str]| -> Option<u16> {
        let (_, port) = line.get(1)?.split_once('@')?.0.rsplit_once(':')?;
        port.parse().ok()
    };
    let seen = |line: &Vec<&str>| -> Option<Seen> {
        let flags: Vec<&str> = line.get(2)?.split(',').collect();
        if flags.contains(&"handshake") {
            return None;
        }
        let master = lines.iter().find(|other| other[0] == line[3]);
        let slots = line.get(8..)?.iter().filter(|range| !range.starts_with('['));
        let range = |range: &&str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        Some(Seen {
            port: port_of(line)?,
            follows: master.and_then(|master| port_of(master)),
            failed: flags.contains(&"fail"),
            slots: slots.map(range).collect::<Option<_>>()?,
        })
    };
    let mut nodes: Vec<Seen> = lines.iter().filter_map(seen).collect();
    nodes.sort();
    Ok(nodes)
}
