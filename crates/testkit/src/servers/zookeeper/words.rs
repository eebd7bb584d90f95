//! What a server says of itself: its four letter words, and how to read them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that is starting may take a connection and answer nothing.
const LIMIT: Duration = Duration::from_secs(2);

/// Asks one word.
pub fn ask(server: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // It closes in a hurry, sometimes with a reset.
        Err(e) if answer.is_empty() || e.kind() != io::ErrorKind::ConnectionReset => return Err(e),
        _ if answer.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
        _ => {}
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The mode in an answer to `srvr`; none if the server doesn't serve.
pub fn mode(srvr: &str) -> Option<&str> {
    srvr.lines().find_map(|line| line.strip_prefix("Mode: "))
}

/// A figure in an answer to `mntr`.
pub fn figure(mntr: &str, name: &str) -> Option<u64> {
    let value = mntr.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'))?;
    value.trim().parse::<f64>().ok().map(|value| value as u64)
}

/// The paths in an answer to `wchp`, each with the sessions that watch it.
pub fn watches(wchp: &str) -> BTreeMap<String, BTreeSet<i64>> {
    let mut found: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    let mut path = None;
    for line in wchp.lines() {
        match (line.strip_prefix('\t'), &path) {
            (Some(id), Some(path)) => {
                found.entry(String::clone(path)).or_default().extend(session(id));
            }
            _ => path = line.starts_with('/').then(|| line.to_owned()),
        }
    }
    found
}

/// The sessions with ephemeral nodes in an answer to `dump`.
pub fn ephemerals(dump: &str) -> BTreeMap<i64, BTreeSet<String>> {
    let mut found: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    let mut owner = None;
    let section = dump.lines().skip_while(|line| !line.starts_with("Sessions with Ephemerals")).skip(1);
    for line in section.take_while(|line| !line.starts_with("Connections")) {
        match (line.strip_prefix('\t'), owner) {
            (Some(path), Some(owner)) => {
                found.entry(owner).or_default().insert(path.to_owned());
            }
            _ => owner = session(line.trim_end_matches(':')),
        }
    }
    found
}

/// The sessions in an answer to `cons`.
pub fn connected(cons: &str) -> BTreeSet<i64> {
    cons.lines().filter_map(|line| session(line.split("sid=").nth(1)?.split(',').next()?)).collect()
}

/// `0x10000a1b2c3d4e5`; the highest bit is the highest of the server's number, so it may be negative.
fn session(text: &str) -> Option<i64> {
    u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok().map(|id| id as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_read_by_path() {
        let found = watches("/a\n\t0x10\n\t0x11\n/b c\n\t0x10\n");
        assert_eq!(found["/a"], BTreeSet::from([0x10, 0x11]));
        assert_eq!(found["/b c"], BTreeSet::from([0x10]));
        assert!(watches("This ZooKeeper instance is not currently serving requests\n").is_empty());
    }

    #[test]
    fn ephemerals_are_read_by_session() {
        let dump = "SessionTracker dump:\nSession Sets (1)/(1):\n1 expire at x:\n\t0x9\nephemeral nodes dump:\n\
                    Sessions with Ephemerals (2):\n0xff00000000000001:\n\t/a\n\t/b\n0x2:\n\t/c\n\
                    Connections dump:\nConnections Sets (1)/(1):\n0 expire at x:\n\tip: /127.0.0.1:1 sessionId: 0x9\n";
        let found = ephemerals(dump);
        assert_eq!(found[&-0xff_ffff_ffff_ffff], BTreeSet::from(["/a".to_owned(), "/b".to_owned()]));
        assert_eq!(found[&2], BTreeSet::from(["/c".to_owned()]));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn connected_sessions_are_those_with_an_id() {
        let cons = " /127.0.0.1:5[0](queued=0,recved=1,sent=0)\n \
                    /127.0.0.1:6[1](queued=0,recved=2,sent=2,sid=0x1f,lop=PING,est=1)\n";
        assert_eq!(connected(cons), BTreeSet::from([0x1f]));
    }

    #[test]
    fn figures_and_modes_are_found() {
        assert_eq!(figure("zk_a\t1\nzk_watch_count\t7\n", "zk_watch_count"), Some(7));
        assert_eq!(figure("zk_a\t1\n", "zk"), None);
        assert_eq!(mode("Zxid: 0x0\nMode: leader\n"), Some("leader"));
    }
}
