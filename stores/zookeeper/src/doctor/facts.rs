//! What is known of the servers.

use std::time::Duration;

/// All that was found out.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) servers: Vec<Server>,
    /// Why we were not let in.
    pub(super) login: Option<String>,
    /// How long sessions should be, and how long they are.
    pub(super) asked: Duration,
    pub(super) given: Option<Duration>,
    /// What the server allows.
    pub(super) shortest: Option<Duration>,
    pub(super) longest: Option<Duration>,
    /// A round trip through the leader.
    pub(super) round_trip: Option<Duration>,
    /// How far the leader's clock is ahead of ours, in milliseconds.
    pub(super) ahead: Option<i64>,
    pub(super) locks: Option<usize>,
    /// The lock with the most entries, and how many it has.
    pub(super) longest_queue: Option<(String, usize)>,
}

impl Facts {
    pub(super) fn new(asked: Duration) -> Facts {
        Facts {
            servers: Vec::new(),
            login: None,
            asked,
            given: None,
            shortest: None,
            longest: None,
            round_trip: None,
            ahead: None,
            locks: None,
            longest_queue: None,
        }
    }
}

/// One server of the URL.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) address: String,
    pub(super) words: Words,
}

/// What a server says of itself when it is asked with the four letters `srvr`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Words {
    /// Nobody answers there.
    Unreachable,
    /// It does not say: not allowed, or encrypted.
    Silent,
    /// It is there, and has lost the others of its ensemble.
    NotServing,
    Said(Said),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    /// Major, minor, patch.
    pub(super) version: Option<(u32, u32, u32)>,
    /// `standalone`, `leader`, `follower`, `observer`.
    pub(super) mode: String,
    pub(super) zxid: Option<u64>,
}

impl Words {
    pub(super) fn read(answer: &str) -> Words {
        if answer.contains("not currently serving requests") {
            return Words::NotServing;
        }
        let line = |key: &str| answer.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let Some(mode) = line("Mode:") else { return Words::Silent };
        let version = line("Zookeeper version:").and_then(read_version);
        let zxid = line("Zxid:").and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok());
        Words::Said(Said { version, mode: mode.to_owned(), zxid })
    }
}

/// `3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on …`
fn read_version(text: &str) -> Option<(u32, u32, u32)> {
    let numbers = text.split(['-', ',', ' ']).next()?;
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_server_are_read() {
        let answer = "Zookeeper version: 3.8.0-${mvngit.commit.id}, built on 2024-12-29 17:54 UTC\nLatency min/avg/max: \
                      0/0.0/0\nZxid: 0x500000007\nMode: follower\nNode count: 5\n";
        let said = Said { version: Some((3, 8, 0)), mode: "follower".into(), zxid: Some(0x5_0000_0007) };
        assert_eq!(Words::read(answer), Words::Said(said));
        assert_eq!(
            Words::read("This ZooKeeper instance is not currently serving requests\n"),
            Words::NotServing
        );
        for silent in ["", "srvr is not executed because it is not in the whitelist.\n", "\0\0"] {
            assert_eq!(Words::read(silent), Words::Silent);
        }
    }
}
