//! Programs that must be there, and how a missing one is installed.

use crate::sh::{self, Cmd, Done};

/// A program from outside that a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Program {
    /// How it is called, or the whole path of a file that is not called by name.
    pub(crate) name: &'static str,
    /// The Debian package that it comes in.
    pub(crate) package: &'static str,
    /// What it is for, to be read after "needed for".
    pub(crate) used_for: &'static str,
}

/// What `cargo xtask test` needs. A store that is tested against a real server adds its line here.
pub(crate) const FOR_TESTS: &[Program] = &[
    Program { name: "redis-server", package: "redis-server", used_for: "tests against real Redis servers" },
    Program { name: "redis-cli", package: "redis-tools", used_for: "looking at a Redis server through TLS" },
    Program {
        name: "java",
        package: "default-jre-headless",
        used_for: "tests against real ZooKeeper servers",
    },
    // The library has the server in it. The package `zookeeper` would add a user and a graphical Java.
    Program {
        name: "/usr/share/java/zookeeper.jar",
        package: "libzookeeper-java",
        used_for: "tests against real ZooKeeper servers",
    },
    // The server's programs have their version in their path; this file comes with whatever version it is.
    Program {
        name: "/usr/share/doc/postgresql/copyright",
        package: "postgresql",
        used_for: "tests against real PostgreSQL servers",
    },
    Program { name: "pgbouncer", package: "pgbouncer", used_for: "tests of PostgreSQL behind a pooler" },
    Program { name: "mariadbd", package: "mariadb-server", used_for: "tests against real MariaDB servers" },
    Program { name: "mariadb", package: "mariadb-client", used_for: "looking at a MariaDB server" },
    Program { name: "openssl", package: "openssl", used_for: "looking at a ZooKeeper server through TLS" },
    Program {
        name: "setpriv",
        package: "util-linux",
        used_for: "servers that die with the test that started them",
    },
    Program { name: "ip", package: "iproute2", used_for: "tests that cut the links between servers" },
    Program { name: "script", package: "bsdutils", used_for: "tests of the command on a terminal" },
    Program { name: "less", package: "less", used_for: "tests of the command in a pipeline" },
    Program { name: "pgrep", package: "procps", used_for: "tests that look for processes by name" },
];

/// What `cargo xtask bench` needs.
pub(crate) const FOR_BENCHES: &[Program] =
    &[Program { name: "flock", package: "util-linux", used_for: "comparing `leasehold run` with flock(1)" }];

/// What `cargo xtask bench redis` needs besides.
pub(crate) const FOR_REDIS_BENCH: &[Program] = &[Program {
    name: "redis-benchmark",
    package: "redis-tools",
    used_for: "the floor that Redis locks are compared with",
}];

/// Installs what is missing, or says what to install.
pub(crate) fn ensure(needed: &[Program]) -> Done {
    let missing = missing(needed, |program| sh::find(program).is_some());
    if missing.is_empty() {
        return Ok(());
    }
    let Some(root) = as_root() else { return Err(please_install(&missing)) };
    let packages = packages(&missing);
    println!("installing {}", packages.join(" "));
    let install = |verb: &str, more: &[&str]| {
        let words =
            root.iter().chain(&["apt-get", "-qq", "-y", verb]).chain(more).copied().collect::<Vec<_>>();
        Cmd::new(words[0]).args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive").run()
    };
    let mut install_all = vec!["--no-install-recommends"];
    install_all.extend(&packages);
    install("update", &[])
        .and_then(|()| install("install", &install_all))
        .map_err(|e| format!("{e}; {}", please_install(&missing)))?;
    let still = self::missing(&missing, |program| sh::find(program).is_some());
    if still.is_empty() { Ok(()) } else { Err(please_install(&still)) }
}

/// How to run a command as root: not at all, directly, or by a `sudo` that asks nothing.
fn as_root() -> Option<Vec<&'static str>> {
    sh::find("apt-get")?;
    let quickly = std::time::Duration::from_secs(10);
    let says = |cmd: Cmd| cmd.output_within(quickly).ok();
    if says(Cmd::new("id").args(["-u"])).is_some_and(|id| id.trim() == "0") {
        return Some(vec![]);
    }
    says(Cmd::new("sudo").args(["-n", "true"])).map(|_| vec!["sudo", "-n"])
}

fn missing(needed: &[Program], there: impl Fn(&str) -> bool) -> Vec<Program> {
    needed.iter().copied().filter(|program| !there(program.name)).collect()
}

fn packages(of: &[Program]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = of.iter().map(|program| program.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn please_install(missing: &[Program]) -> String {
    let what: Vec<String> = missing
        .iter()
        .map(|program| format!("`{}` (needed for {})", program.name, program.used_for))
        .collect();
    format!("not found: {}. Please run: apt-get install {}", what.join(", "), packages(missing).join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Program = Program { name: "a-server", package: "servers", used_for: "its tests" };
    const CLIENT: Program = Program { name: "a-client", package: "servers", used_for: "looking at it" };

    #[test]
    fn only_what_is_missing_is_installed_and_each_package_once() {
        assert_eq!(missing(&[SERVER, CLIENT], |program| program == "a-server"), [CLIENT]);
        assert_eq!(packages(&[SERVER, CLIENT]), ["servers"]);
    }

    #[test]
    fn nothing_is_done_when_all_is_there() {
        let by_name = Program { name: "sh", package: "dash", used_for: "this test" };
        ensure(&[by_name, Program { name: "/bin/sh", ..by_name }]).unwrap();
    }

    #[test]
    fn the_reader_is_told_what_to_install_and_why() {
        let told = please_install(&[SERVER]);
        assert_eq!(told, "not found: `a-server` (needed for its tests). Please run: apt-get install servers");
    }
}
