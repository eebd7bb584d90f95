//! Three ZooKeeper servers that vote. Two are enough to serve.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Index;
use std::sync::Arc;
use std::thread;

use super::super::network::{Link, RemoteHost};
use super::super::poll::{try_until, until};
use super::super::port::Port;
use super::{ZooKeeper, ZooKeeperOptions};
use crate::wait::PATIENCE;

const MEMBERS: usize = 3;

/// In ticks: how long a new leader waits for followers, and after how long of silence a member is given up. A server on a busy
/// machine is silent for a while at times; but a leader whose follower went back to looking for one is missed by all until
/// the first limit.
const LIMITS: [&str; 2] = ["initLimit=15", "syncLimit=10"];

/// A server that looks for a leader in vain asks the others again after a pause that grows up to this, a minute by default:
/// longer than a test waits for those who come back.
const ASK_AGAIN: &str = "-Dzookeeper.fastleader.maxNotificationInterval=500";

/// Some servers that agree.
pub struct Ensemble {
    members: Vec<ZooKeeper>,
    /// They talk to each other on two ports each, also after a restart.
    _ports: Vec<[Port; 2]>,
}

impl Ensemble {
    /// Starts three servers and waits until they serve.
    pub fn start() -> Ensemble {
        Self::start_with(ZooKeeperOptions::new())
    }

    /// The same with options for each of them.
    pub fn start_with(options: ZooKeeperOptions) -> Ensemble {
        Self::start_on(options, None)
    }

    /// The same with the first member on a remote host. Of members who know the same, the one with the highest number
    /// becomes the leader, so the first one is a follower at the start.
    pub fn start_with_remote(options: ZooKeeperOptions, host: Arc<RemoteHost>) -> Ensemble {
        Self::start_on(options, Some(host))
    }

    fn start_on(options: ZooKeeperOptions, remote: Option<Arc<RemoteHost>>) -> Ensemble {
        let host = |number| remote.clone().filter(|_| number == 1);
        // Where the others reach it.
        let address = |number| match (&remote, host(number)) {
            (None, _) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            (_, None) => Link::Peers.local(),
            (_, Some(_)) => Link::Peers.remote(),
        };
        let ports: Vec<[Port; 2]> = (0..MEMBERS).map(|_| [Port::reserve(), Port::reserve()]).collect();
        let mut lines: Vec<String> = LIMITS.map(str::to_owned).into();
        lines.extend(ports.iter().zip(1..).map(|([sync, vote], number)| {
            format!("server.{number}={}:{}:{}", address(number), sync.number(), vote.number())
        }));
        let start = |number| {
            let mut options = options.clone().java(ASK_AGAIN);
            options.member = Some((number, lines.clone()));
            options.host = host(number);
            ZooKeeper::start(options)
        };
        let members = thread::scope(|scope| {
            let start = &start;
            let starting: Vec<_> = (1..=MEMBERS).map(|number| scope.spawn(move || start(number))).collect();
            starting.into_iter().map(|one| one.join().expect("a started server")).collect()
        });
        let ensemble = Ensemble { members, _ports: ports };
        ensemble.wait_until_ready();
        ensemble
    }

    /// All members, up or not, in the order of the [`url`](Self::url). One that is restarted needn't serve yet when its
    /// `restart` returns: see [`wait_until_ready`](Self::wait_until_ready).
    pub fn members(&self) -> &[ZooKeeper] {
        &self.members
    }

    /// `zookeeper://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT`, with the address of the remote host if there is one.
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.addresses())
    }

    /// `127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT`
    pub fn addresses(&self) -> String {
        let addresses: Vec<String> = self.members.iter().map(|one| one.address().to_string()).collect();
        addresses.join(",")
    }

    /// The leader. Waits while there is none.
    pub fn leader(&self) -> &ZooKeeper {
        until("there is a leader", || {
            let modes = self.modes();
            let at = modes.iter().position(|mode| mode.as_deref() == Some("leader"));
            at.map(|at| &self.members[at]).ok_or_else(|| format!("{modes:?}"))
        })
    }

    /// The others that serve.
    pub fn followers(&self) -> Vec<&ZooKeeper> {
        let modes = self.modes();
        let follows =
            |(member, mode): (_, Option<String>)| (mode.as_deref() == Some("follower")).then_some(member);
        self.members.iter().zip(modes).filter_map(follows).collect()
    }

    /// The member that a session is connected to now, if any.
    pub fn member_of(&self, session: i64) -> Option<&ZooKeeper> {
        self.up().find(|member| member.connected_sessions().contains(&session))
    }

    /// Kills the leader (SIGKILL); gives it, to be restarted.
    pub fn kill_leader(&self) -> &ZooKeeper {
        let leader = self.leader();
        leader.kill();
        leader
    }

    /// Waits until there is one leader and all others that are up follow it.
    pub fn wait_until_ready(&self) {
        let looked = try_until(PATIENCE, || {
            let modes = self.modes();
            let count = |wanted: &str| modes.iter().filter(|mode| mode.as_deref() == Some(wanted)).count();
            match (count("leader"), count("follower"), self.up().count()) {
                (1, followers, up) if followers + 1 == up => Ok(()),
                _ => Err(format!("{modes:?}")),
            }
        });
        if let Err(modes) = looked {
            let logs: Vec<String> = self.up().map(|member| member.log_tail()).collect();
            panic!("the servers never agreed: {modes}; their logs:\n{}", logs.join("\n\n"));
        }
    }

    /// Waits until nobody serves: a quorum is lost.
    pub fn wait_until_lost(&self) {
        until("nobody serves", || match self.modes() {
            modes if modes.iter().all(Option::is_none) => Ok(()),
            modes => Err(format!("{modes:?}")),
        });
    }

    /// How many watches are set, at all members that are up.
    pub fn watch_count(&self) -> u64 {
        self.up().map(|member| member.watch_count()).sum()
    }

    /// Waits until no node is left but those named, and no watch at any member that is up.
    pub fn wait_until_clean(&self, but: &[&str]) {
        self.up().for_each(|member| member.wait_until_clean(but));
    }

    fn up(&self) -> impl Iterator<Item = &ZooKeeper> {
        self.members.iter().filter(|member| member.is_up())
    }

    /// What each member says it is. A paused one would keep us waiting, and says nothing.
    fn modes(&self) -> Vec<Option<String>> {
        self.members.iter().map(|member| member.is_up().then(|| member.mode()).flatten()).collect()
    }
}

impl Index<usize> for Ensemble {
    type Output = ZooKeeper;

    fn index(&self, at: usize) -> &ZooKeeper {
        &self.members[at]
    }
}
