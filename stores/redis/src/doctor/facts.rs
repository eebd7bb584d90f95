//! What was seen of one server. Everything that may be kept from us is an `Option`.

use std::time::Duration;

use super::fields::Fields;
use super::rights::Right;

/// What was seen of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Name and number of its program, such as `Redis 7.0.15`.
    pub version: Option<String>,
    /// What changes with every start of the server.
    pub run_id: Option<String>,
    /// How long it has been running.
    pub uptime: Option<Duration>,
    /// Its memory.
    pub memory: Memory,
    /// What it keeps on disk.
    pub persistence: Persistence,
    /// Its replicas, or its master.
    pub replication: Replication,
    /// Its clock against ours.
    pub clock: Option<Reading>,
    /// After how many seconds it closes connections that say nothing; 0 for never.
    pub idle_timeout: Option<u64>,
    /// What `CONFIG GET` and `INFO` would have told, if we were allowed to ask.
    pub hidden: Vec<&'static str>,
}

/// How much memory a server uses and may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// How much it uses.
    pub used: Option<u64>,
    /// How much it may use; 0 for all that there is.
    pub limit: Option<u64>,
    /// What it does when that is used up.
    pub policy: Option<String>,
    /// How many keys it has thrown away since it started.
    pub evicted: u64,
    /// How much the machine has.
    pub machine: Option<u64>,
}

/// What a server keeps on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Persistence {
    /// Whether every write goes to a log.
    pub log: Option<bool>,
    /// When the log goes to the disk: `always`, `everysec`, `no`.
    pub sync: Option<String>,
    /// When snapshots are made; empty for never.
    pub snapshots: Option<String>,
    /// The last try to write something failed.
    pub failing: bool,
}

/// The part of a server in replication.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replication {
    /// Whose replica it is, if it is one.
    pub replica_of: Option<String>,
    /// Its replicas; `None` if we may not know.
    pub replicas: Option<Vec<Replica>>,
    /// How many replicas must be there for a write (`min-replicas-to-write`).
    pub needed: Option<u64>,
}

/// One replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replica {
    /// Where it is.
    pub address: String,
    /// Whether it follows; else it is still copying.
    pub online: bool,
    /// How long it has been silent.
    pub silent: Duration,
    /// How many bytes it is behind.
    pub behind: u64,
}

/// A clock, read over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// By how many microseconds it is ahead of ours.
    pub ahead: i64,
    /// How far off that can be: half of the time that asking took.
    pub error: Duration,
}

/// One of the Sentinels that the URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sentinel {
    /// Where it is.
    pub(crate) node: String,
    /// What it says, or why it says nothing.
    pub(crate) watch: Result<Watch, String>,
}

/// How a Sentinel watches the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watch {
    /// Where the master is, by its word.
    pub(crate) master: String,
    /// How many must agree that the master is gone.
    pub(crate) quorum: u64,
    /// How many Sentinels it knows, itself among them, dead or alive.
    pub(crate) sentinels: u64,
    /// Whether a failover could be made now, or why not; `None` if it can't be asked that.
    pub(crate) able: Option<Result<(), String>>,
}

/// The scripts of the store in a server's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cache {
    /// How many of them the server knows.
    pub(crate) ours: Option<usize>,
    /// How many there are.
    pub(crate) of: usize,
    /// How many scripts of all it knows.
    pub(crate) all: Option<u64>,
}

/// What was seen of one server, as far as only the store asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) facts: Facts,
    pub(crate) cache: Cache,
    /// What our user may not do; `None` if that could not be asked.
    pub(crate) denied: Option<Vec<Right>>,
    /// How many Sentinels listen to it.
    pub(crate) sentinels: Option<u64>,
    /// The highest token among some of the locks.
    pub(crate) highest: u64,
    /// Microseconds since 1970, by our clock.
    pub(crate) now: u64,
}

impl Facts {
    /// From the answers of `INFO` and `CONFIG GET`, as far as there are any.
    pub(crate) fn of(info: &Fields, config: &Fields) -> Self {
        let mut hidden = Vec::new();
        if info.is_empty() {
            hidden.push("INFO");
        }
        if config.is_empty() {
            hidden.push("CONFIG GET");
        }
        Facts {
            version: version(info),
            run_id: info.get("run_id").map(str::to_owned),
            uptime: info.number("uptime_in_seconds").map(Duration::from_secs),
            memory: memory(info, config),
            persistence: persistence(info, config),
            replication: replication(info, config),
            clock: None,
            idle_timeout: config.number("timeout"),
            hidden,
        }
    }
}

fn version(info: &Fields) -> Option<String> {
    match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(valkey), _) => Some(format!("Valkey {valkey}")),
        (None, Some(redis)) => Some(format!("Redis {redis}")),
        (None, None) => None,
    }
}

fn memory(info: &Fields, config: &Fields) -> Memory {
    let policy = config.get("maxmemory-policy").or_else(|| info.get("maxmemory_policy"));
    Memory {
        used: info.number("used_memory"),
        limit: config.number("maxmemory").or_else(|| info.number("maxmemory")),
        policy: policy.map(str::to_owned),
        evicted: info.number("evicted_keys").unwrap_or(0),
        machine: info.number("total_system_memory"),
    }
}

fn persistence(info: &Fields, config: &Fields) -> Persistence {
    let log = match (config.get("appendonly"), info.get("aof_enabled")) {
        (Some(on), _) => Some(on == "yes"),
        (None, Some(on)) => Some(on == "1"),
        (None, None) => None,
    };
    let failed = |field: &str| info.get(field).is_some_and(|status| status != "ok");
    Persistence {
        log,
        sync: config.get("appendfsync").map(str::to_owned),
        snapshots: config.get("save").map(str::to_owned),
        failing: failed("rdb_last_bgsave_status")
            || failed("aof_last_write_status")
            || failed("aof_last_bgrewrite_status"),
    }
}

fn replication(info: &Fields, config: &Fields) -> Replication {
    let replica_of = (info.get("role") == Some("slave")).then(|| {
        format!("{}:{}", info.get("master_host").unwrap_or("?"), info.get("master_port").unwrap_or("?"))
    });
    let offset: u64 = info.number("master_repl_offset").unwrap_or(0);
    let replica = |text: &str| {
        let fields = Fields::of_parts(text);
        Replica {
            address: format!("{}:{}", fields.get("ip").unwrap_or("?"), fields.get("port").unwrap_or("?")),
            online: fields.get("state") == Some("online"),
            silent: Duration::from_secs(fields.number("lag").unwrap_or(0)),
            behind: offset.saturating_sub(fields.number("offset").unwrap_or(offset)),
        }
    };
    let count: Option<usize> = info.number("connected_slaves");
    let all = |count| (0..count).filter_map(|at| info.get(&format!("slave{at}"))).map(replica).collect();
    Replication { replica_of, replicas: count.map(all), needed: config.number("min-replicas-to-write") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_a_server_become_facts() {
        let info = Fields::of_lines(
            "redis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:60\r\nused_memory:900\r\nmaxmemory:1000\r\n\
             maxmemory_policy:allkeys-lru\r\nevicted_keys:3\r\naof_enabled:1\r\nrdb_last_bgsave_status:err\r\n\
             role:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=90,lag=1\r\n\
             slave1:ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0\r\nmaster_repl_offset:100\r\n",
        );
        let facts = Facts::of(&info, &Fields::default());
        assert_eq!(facts.version.as_deref(), Some("Redis 7.0.15"));
        assert_eq!((facts.memory.limit, facts.memory.policy.as_deref()), (Some(1000), Some("allkeys-lru")));
        assert_eq!((facts.persistence.log, facts.persistence.failing), (Some(true), true));
        let replicas = facts.replication.replicas.unwrap();
        let first = &replicas[0];
        assert_eq!((first.address.as_str(), first.online, first.behind), ("10.0.0.2:6379", true, 10));
        assert!(!replicas[1].online);
        assert_eq!(facts.hidden, ["CONFIG GET"]);
    }

    #[test]
    fn a_replica_says_whose_it_is() {
        let info = Fields::of_lines("role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n");
        let facts = Facts::of(&info, &Fields::default());
        assert_eq!(facts.replication.replica_of.as_deref(), Some("10.0.0.1:6379"));
    }

    #[test]
    fn a_server_that_tells_nothing_has_no_facts() {
        let facts = Facts::of(&Fields::default(), &Fields::default());
        assert_eq!(facts, Facts { hidden: vec!["INFO", "CONFIG GET"], ..Facts::default() });
    }
}
