//! A network of the test's own, with a remote host that can lose a link.
//!
//! A network namespace is a network: nothing leaves it, its addresses are free, and the kernel removes it, with all
//! links, when its last process ends, whatever that dies of. The remote host is one more of them. Only Linux has them.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, Command, Output};

use super::poll::until;
use super::spawn;

/// Set in the process that runs in the namespace.
const INSIDE: &str = "LEASEHOLD_IN_NETWORK_NAMESPACE";

/// Makes a namespace, also for a user who isn't root.
const UNSHARE: [&str; 2] = ["--map-root-user", "--net"];

/// Runs a test in a network namespace of its own: starts this program again there, for this test alone. `test` is the
/// whole name of the test that calls it. Fails where the system forbids namespaces.
pub fn in_private_network(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        run("ip", &["link", "set", "lo", "up"]);
        return body();
    }
    let unshare = || {
        let mut command = Command::new(spawn::find("unshare", "util-linux"));
        command.args(UNSHARE);
        command
    };
    let allowed = unshare().arg("true").output().expect("`unshare` starts");
    let why = text(&allowed);
    assert!(
        allowed.status.success(),
        "this test needs network namespaces: run it as root, or where users may make them; {why}"
    );
    let mut inside = unshare();
    inside.arg(std::env::current_exe().expect("this program")).args(["--exact", test, "--nocapture"]);
    let ended = inside.env(INSIDE, "").output().expect("`unshare` starts");
    let said = text(&ended);
    assert!(ended.status.success(), "{said}");
    assert!(said.contains("1 passed"), "no test is called {test}:\n{said}");
}

/// Which of the two links to a [`RemoteHost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The one that clients use.
    Clients,
    /// The one that servers use among themselves.
    Peers,
}

impl Link {
    const ALL: [Link; 2] = [Link::Clients, Link::Peers];

    fn name(self) -> &'static str {
        match self {
            Link::Clients => "clients",
            Link::Peers => "peers",
        }
    }

    /// Our address on it. The networks are those that are kept for documentation.
    pub fn local(self) -> IpAddr {
        self.address(1)
    }

    /// The remote host's address on it.
    pub fn remote(self) -> IpAddr {
        self.address(2)
    }

    fn address(self, host: u8) -> IpAddr {
        match self {
            Link::Clients => Ipv4Addr::new(192, 0, 2, host),
            Link::Peers => Ipv4Addr::new(198, 51, 100, host),
        }
        .into()
    }
}

/// A host of its own, joined to this one by two links. There is one in a [private network](in_private_network).
#[derive(Debug)]
pub struct RemoteHost {
    /// Does nothing; the namespace is there as long as it is.
    keeper: Child,
}

impl RemoteHost {
    /// Makes the host and both links. Only for tests [in a private network](in_private_network).
    pub fn start() -> RemoteHost {
        assert!(std::env::var_os(INSIDE).is_some(), "a remote host is for tests in a private network");
        let args = ["--net", "sleep", "infinity"].map(Into::into);
        let unshare = spawn::find("unshare", "util-linux");
        let host = RemoteHost { keeper: spawn::spawn(&unshare, &args, |_| {}).expect("`unshare` starts") };
        let ours = std::fs::read_link("/proc/self/ns/net").expect("our namespace");
        until("the remote host has a namespace", || match std::fs::read_link(host.namespace()) {
            Ok(theirs) if theirs != ours => Ok(()),
            theirs => Err(format!("{theirs:?}")),
        });
        host.ip(&["link", "set", "lo", "up"]);
        let pid = host.keeper.id().to_string();
        for link in Link::ALL {
            let name = link.name();
            run("ip", &["link", "add", name, "type", "veth", "peer", "name", name, "netns", &pid]);
            run("ip", &["address", "add", &format!("{}/24", link.local()), "dev", name]);
            run("ip", &["link", "set", name, "up"]);
            host.ip(&["address", "add", &format!("{}/24", link.remote()), "dev", name]);
            host.mend(link);
        }
        host
    }

    /// Takes a link down: connections over it stay open, and nothing arrives.
    pub fn cut(&self, link: Link) {
        self.ip(&["link", "set", link.name(), "down"]);
    }

    /// Brings it up again.
    pub fn mend(&self, link: Link) {
        self.ip(&["link", "set", link.name(), "up"]);
    }

    /// A program that becomes another one on this host, under the same process id, and what goes before the other's
    /// name.
    pub(crate) fn enter(&self) -> (PathBuf, [String; 2]) {
        let namespace = format!("--net={}", self.namespace().display());
        (spawn::find("nsenter", "util-linux"), [namespace, "--".to_owned()])
    }

    fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.keeper.id()).into()
    }

    fn ip(&self, args: &[&str]) {
        let (nsenter, before) = self.enter();
        let nsenter = nsenter.to_str().expect("a readable path");
        let before = before.iter().map(String::as_str);
        run(nsenter, &before.chain(["ip"]).chain(args.iter().copied()).collect::<Vec<_>>());
    }
}

impl Drop for RemoteHost {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

fn run(program: &str, args: &[&str]) {
    spawn::find("ip", "iproute2");
    let ended = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(ended.status.success(), "{program} {args:?}: {}", text(&ended));
}

/// What a program said.
fn text(of: &Output) -> String {
    [&of.stdout, &of.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}
