//! A master, two replicas, and three sentinels that watch over them.

use std::net::SocketAddr;
use std::thread;

use super::independent::start_all;
use super::poll::until;
use super::process::{Process, Program};
use super::redis::{Redis, RedisOptions, answers, connect};
use super::resp::Reply;

/// What the sentinels call the set.
const NAME: &str = "leasehold";

/// How many sentinels must agree that the master is down.
const QUORUM: usize = 2;

/// A master counts as down after this; a failover that gets stuck is tried again after twice the timeout.
const CONFIG: &str = "\
bind 127.0.0.1
port {port}
dir {folder}/data
sentinel monitor NAME 127.0.0.1 MASTER QUORUM
sentinel down-after-milliseconds NAME 700
sentinel failover-timeout NAME 1500
sentinel parallel-syncs NAME 2
";

/// Sentinels take ten seconds for what a test wants in one. These are as short as they can be: once a failover begins, a
/// sentinel asks a replica for news only once a second, whatever is set here; it passes over a replica whose news is older than
/// three times `info-period`, or five times `ping-period` if the master is down; and a sentinel that sees a replica act as a
/// master without knowing why turns it back after four times `publish-period`. Tilt is half a minute of standing still when a
/// sentinel finds that its clock jumped, which on a loaded machine it seems to do.
const IN_A_HURRY: [(&str, &str); 7] = [
    ("info-period", "1000"),
    ("ping-period", "500"),
    ("ask-period", "100"),
    ("publish-period", "600"),
    ("min-link-reconnect-period", "200"),
    ("tilt-trigger", "5000"),
    ("tilt-period", "1000"),
];

/// A Redis set with failover by sentinels.
pub struct Sentinels {
    nodes: Vec<Redis>,
    sentinels: Vec<Process>,
}

impl Sentinels {
    /// Starts everything and waits until it is in order.
    pub fn start() -> Sentinels {
        Self::start_with(RedisOptions::new())
    }

    /// The same, with options for the master and its replicas.
    pub fn start_with(options: RedisOptions) -> Sentinels {
        let nodes = start_all(vec![options.in_a_set(); 3]);
        let master = &nodes[0];
        for replica in &nodes[1..] {
            replica.cli(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        }
        // Sentinels count only replicas that are in the master's list when they ask.
        nodes[1..].iter().for_each(wait_until_linked);
        let sentinels = thread::scope(|scope| {
            let starting: Vec<_> = (0..3).map(|_| scope.spawn(|| start_sentinel(master))).collect();
            starting.into_iter().map(|one| one.join().expect("a started sentinel")).collect()
        });
        let set = Sentinels { nodes, sentinels };
        set.wait_until_ready();
        set
    }

    /// `redis+sentinel://127.0.0.1:PORT,…/NAME/0`
    pub fn url(&self) -> String {
        let sentinels: Vec<String> = self.sentinels.iter().map(|one| one.address().to_string()).collect();
        format!("redis+sentinel://{}{}/{NAME}/0", self.nodes[0].credentials(), sentinels.join(","))
    }

    /// What the sentinels call the set.
    pub fn master_name(&self) -> &'static str {
        NAME
    }

    /// The ports of the sentinels.
    pub fn sentinel_ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(Process::port).collect()
    }

    /// The sentinels, to be killed or paused. See [`restart_sentinel`](Self::restart_sentinel) for the way back.
    pub fn sentinels(&self) -> &[Process] {
        &self.sentinels
    }

    /// The master and the replicas. The first one was the master at the start.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The node at this port.
    pub fn node(&self, port: u16) -> &Redis {
        self.nodes.iter().find(|node| node.port() == port).expect("a node of this set")
    }

    /// The port of the master, as all sentinels that are up see it now. Waits while they don't agree.
    pub fn master(&self) -> u16 {
        until("the sentinels agree on a master", || self.agreed_master())
    }

    /// Kills the master; gives its port.
    pub fn kill_master(&self) -> u16 {
        let master = self.master();
        self.node(master).kill();
        master
    }

    /// Pauses the master; gives its port. Resumed after a failover, it believes for a moment that it is still the master.
    pub fn pause_master(&self) -> u16 {
        let master = self.master();
        self.node(master).pause();
        master
    }

    /// Asks the sentinels to make a replica the master, and waits until it is. Gives the port of the new master.
    pub fn failover(&self) -> u16 {
        let old = self.master();
        let asked = self.sentinels_up().next().expect("a sentinel that is up");
        until("a sentinel makes another node the master", || {
            let seen = self.tell(asked, &["SENTINEL", "MASTER", NAME])?;
            if value(&seen, "port") != Some(old.to_string()) {
                return Ok(());
            }
            // It gives up if no replica is in good health just then. While it is at work it must not be asked again: it would
            // begin anew with the master that it has just made.
            if value(&seen, "flags").is_some_and(|flags| !flags.contains("failover_in_progress")) {
                self.tell(asked, &["SENTINEL", "FAILOVER", NAME])?;
            }
            Err(format!("{seen:?}"))
        });
        self.wait_for_new_master(old)
    }

    /// Waits until all sentinels that are up know a master that is not at this port, and it knows that it is. Gives its port.
    pub fn wait_for_new_master(&self, old: u16) -> u16 {
        until("there is a new master", || match self.agreed_master()? {
            master if master == old => Err(format!("the master is still {old}")),
            master if self.node(master).try_info("role")? != "master" => {
                Err(format!("{master} is not ready"))
            }
            master => Ok(master),
        })
    }

    /// Starts a killed node again, on its port, and waits until all is in order with it.
    pub fn restart(&self, port: u16) {
        self.node(port).restart();
        self.wait_until_ready();
    }

    /// Starts a killed sentinel again, on its port, and waits until all is in order with it.
    pub fn restart_sentinel(&self, port: u16) {
        let sentinel = self.sentinels.iter().find(|one| one.port() == port).expect("a sentinel of this set");
        sentinel.restart();
        hurry(sentinel.address());
        self.wait_until_ready();
    }

    /// Waits until the sentinels that are up see each other, a master, and all other nodes that are up as its replicas, in
    /// sync.
    pub fn wait_until_ready(&self) {
        until("the sentinels and their servers are in order", || self.look());
    }

    /// What is not in order yet.
    fn look(&self) -> Result<(), String> {
        let master = self.agreed_master()?;
        for node in self.nodes.iter().filter(|node| node.is_up()) {
            let wanted = if node.port() == master { "master" } else { "slave" };
            let role = node.try_info("role")?;
            if role != wanted {
                return Err(format!("{} is a {role}, should be a {wanted}", node.port()));
            }
            if wanted == "slave" {
                is_linked(node, master)?;
            }
        }
        for at in self.sentinels_up() {
            let seen = self.tell(at, &["SENTINEL", "MASTER", NAME])?;
            expect(&seen, "num-other-sentinels", "2")?;
            expect(&seen, "num-slaves", "2")?;
            expect(&seen, "flags", "master")?;
            let replicas = self.tell(at, &["SENTINEL", "REPLICAS", NAME])?;
            for replica in replicas.items() {
                let port = value(replica, "port").and_then(|port| port.parse().ok()).unwrap_or(0);
                if self.node(port).is_up() {
                    expect(replica, "flags", "slave")?;
                    expect(replica, "master-link-status", "ok")?;
                }
            }
        }
        Ok(())
    }

    fn sentinels_up(&self) -> impl Iterator<Item = usize> {
        (0..self.sentinels.len()).filter(|at| self.sentinels[*at].is_up())
    }

    fn agreed_master(&self) -> Result<u16, String> {
        let mut masters = Vec::new();
        for at in self.sentinels_up() {
            let address = self.tell(at, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
            let port = address.items().get(1).and_then(|port| port.to_string().parse::<u16>().ok());
            masters.push(port.ok_or_else(|| format!("no master: {address:?}"))?);
        }
        masters.dedup();
        match masters[..] {
            [master] => Ok(master),
            _ => Err(format!("the sentinels say {masters:?}")),
        }
    }

    fn tell(&self, at: usize, words: &[&str]) -> Result<Reply, String> {
        tell(self.sentinels[at].address(), words)
    }
}

fn start_sentinel(master: &Redis) -> Process {
    let mut config = CONFIG
        .replace("NAME", NAME)
        .replace("MASTER", &master.port().to_string())
        .replace("QUORUM", &QUORUM.to_string());
    if let Some(password) = master.password() {
        config += &format!("sentinel auth-pass {NAME} {password}\n");
    }
    let sentinel = Process::start(Program {
        name: "redis-server",
        package: "redis-server",
        args: vec!["{folder}/sentinel.conf".to_owned(), "--sentinel".to_owned()],
        files: vec![("sentinel.conf", config)],
        ready: Box::new(|address| answers(address, None)),
    });
    hurry(sentinel.address());
    sentinel
}

/// A sentinel forgets this when it ends.
fn hurry(sentinel: SocketAddr) {
    let mut words = vec!["SENTINEL", "DEBUG"];
    words.extend(IN_A_HURRY.iter().flat_map(|(name, value)| [*name, *value]));
    match tell(sentinel, &words) {
        Ok(Reply::Status(_)) => {}
        other => panic!("a sentinel can't be hurried: {other:?}"),
    }
}

fn tell(sentinel: SocketAddr, words: &[&str]) -> Result<Reply, String> {
    connect(sentinel, None).and_then(|mut connection| connection.ask(words)).map_err(|e| e.to_string())
}

fn wait_until_linked(replica: &Redis) {
    until("a replica is in sync", || match replica.try_info("master_link_status")? {
        status if status == "up" => Ok(()),
        status => Err(status),
    });
}

/// Whether a replica follows this master and is in sync.
fn is_linked(replica: &Redis, master: u16) -> Result<(), String> {
    let (port, status) = (replica.try_info("master_port")?, replica.try_info("master_link_status")?);
    if port == master.to_string() && status == "up" {
        return Ok(());
    }
    Err(format!("{} follows {port} and is {status}; the master is {master}", replica.port()))
}

/// A value in an answer that is a list of names and values.
fn value(pairs: &Reply, name: &str) -> Option<String> {
    pairs.items().chunks(2).find(|pair| pair[0].to_string() == name)?.get(1).map(Reply::to_string)
}

fn expect(pairs: &Reply, name: &str, wanted: &str) -> Result<(), String> {
    match value(pairs, name) {
        Some(found) if found == wanted => Ok(()),
        found => Err(format!("a sentinel says {name} {found:?}, should be {wanted}")),
    }
}
